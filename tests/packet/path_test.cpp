// SPDX-License-Identifier: MIT
// First packets on the fast path (firstPacket: direct): between two pods of the node, if conntrack knows nothing of
// their connection, and never from or to anybody else.
#include "tests/packet/cases.hpp"

namespace podlane::packet {
namespace {

constexpr std::uint8_t kFin = 0x01;

struct Family {
    const char *name;
    Frame there; // from the pod to the peer, without a transport header
    Frame back;
    Frame delivered; // to the pod by the host stack, from the peer
    Frame quote;     // the beginning of `back`'s packets, as an ICMP error quotes them
    Icmp error;
};

Family family4() {
    const auto ip_of = [](Ipv4 header) { return Frame(header.layer()); };
    const Frame back = ip_of({peer4(), pod4()});
    return {"v4",
            from_pod() / to_peer4(),
            Ethernet{kHostMac, kPeerMac} / back,
            Ethernet{kPodMac, kHostMac} / back,
            back,
            {.type = 3}};
}
Family family6() {
    const Frame back = Frame(Ipv6{peer6(), pod6()}.layer());
    return {
        "v6",    from_pod() / to_peer6(), Ethernet{kHostMac, kPeerMac} / back, Ethernet{kPodMac, kHostMac} / back, back,
        icmp6(1)};
}

class DirectFirst : public PacketTest {
  protected:
    void from_pod_ends_in(const Bytes &frame, reason why) { expect_ends_in(node(), node().run(frame), why); }
    void from_peer_ends_in(const Bytes &frame, reason why) {
        const std::uint32_t peer = node().peer.ifindex;
        expect_ends_in(node(), node().run(frame, {.ifindex = peer}), why, peer);
    }
    // The flags of the frame's entry in the flow cache; nothing if there is none.
    std::optional<std::uint32_t> cached(const Bytes &frame) {
        const auto found = require(node().flows().find(key_of(frame)));
        return found ? std::optional(found->flags) : std::nullopt;
    }
    // In both directions, and nothing is cached.
    void expect_udp_is_the_hosts(const Family &family) {
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_HOST_UNCONFIRMED);
        from_peer_ends_in(family.back / Udp{80, 40000}, REASON_HOST_UNCONFIRMED);
        EXPECT_EQ(require(node().flows().keys()).size(), 0U);
    }
    template <typename Test> void each_family(Test test) {
        for (const Family &family : {family4(), family6()}) {
            SCOPED_TRACE(family.name);
            node().forget_flows();
            test(family);
        }
    }
};

TEST_F(DirectFirst, ConnectionsThatConntrackDoesNotKnowAreDirectInBothDirections) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn}, REASON_SENT_DIRECT);
        from_peer_ends_in(family.back / Tcp{80, 40000, kSyn | kAck}, REASON_SENT_DIRECT);
        from_pod_ends_in(family.there / Tcp{40000, 80, kAck}, REASON_SENT_DIRECT);
        from_peer_ends_in(family.back / Tcp{80, 40000, kFin | kAck}, REASON_SENT_DIRECT);
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_SENT_DIRECT);
        from_peer_ends_in(family.back / Udp{80, 40000}, REASON_SENT_DIRECT);
        EXPECT_EQ(cached(family.there / Udp{40000, 80}), FLOW_UNTRACKED);
        const auto entry = require(node().flows().find(key_of(family.there / Udp{40000, 80})));
        EXPECT_EQ(entry.value().source_port, htons(40000));
    });
}

TEST_F(DirectFirst, AnEntryThatIsEvictedCostsNothing) {
    each_family([&](const Family &family) {
        for (int i = 0; i < 3; ++i) {
            from_pod_ends_in(family.there / Tcp{40000, 80, kAck}, REASON_SENT_DIRECT);
            EXPECT_EQ(cached(family.there / Tcp{40000, 80, kAck}), FLOW_UNTRACKED);
            node().forget_flows();
        }
    });
}

// It begins another connection, which conntrack may know by now.
TEST_F(DirectFirst, ASynOfACachedFlowQueriesConntrack) {
    each_family([&](const Family &family) {
        const Bytes data = family.there / Tcp{40000, 80, kAck};
        const auto confirmed_ns = [&] { return require(node().flows().find(key_of(data))).value().confirmed_ns; };
        from_pod_ends_in(data, REASON_SENT_DIRECT);
        const std::uint64_t before = confirmed_ns();
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn}, REASON_SENT_DIRECT);
        EXPECT_GT(confirmed_ns(), before);
    });
}

TEST_F(DirectFirst, OnlyTheSendersOwnEntryIsWritten) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_SENT_DIRECT);
        EXPECT_EQ(cached(family.back / Udp{80, 40000}), std::nullopt);
        EXPECT_EQ(require(node().flows().keys()).size(), 1U);
    });
}

// A packet that the host delivers leaves no trace: it cannot change the path of the pod's own packets.
TEST_F(DirectFirst, DeliveredPacketsWriteNothing) {
    each_family([&](const Family &family) {
        for (const Bytes &frame :
             {Bytes(family.delivered / Udp{80, 40000}), Bytes(family.delivered / Tcp{80, 40000, kSyn})})
            expect_ends_in(node(), node().run(frame, {.program = PODLANE_PROGRAM_TO_POD}), REASON_RECEIVED_HOST);
        EXPECT_EQ(require(node().flows().keys()).size(), 0U);
        EXPECT_EQ(require(node().paths().keys()).size(), 0U);
    });
}

TEST_F(DirectFirst, BothPodsMustWantIt) {
    node().put_without(node().peer, INTERFACE_FIRST_DIRECT);
    each_family([&](const Family &family) { expect_udp_is_the_hosts(family); });
}

// pl_to_pod caches which of the container's addresses a datagram is for.
TEST_F(DirectFirst, UdpOfContainersWithSeveralInterfacesIsTheHosts) {
    node().put_with(node().peer, INTERFACE_PEERS);
    each_family([&](const Family &family) {
        expect_udp_is_the_hosts(family);
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn}, REASON_SENT_DIRECT);
        from_peer_ends_in(family.back / Tcp{80, 40000, kSyn | kAck}, REASON_SENT_DIRECT);
    });
}

// A source that the pod is allowed, or that nobody checks, is not the pod, even if it is another one's: the host
// decides about it.
TEST_F(DirectFirst, ForeignSourcesAreNeverDirect) {
    node().pod.allowed = {*parse_prefix("198.51.100.0/24"), *parse_prefix("192.0.2.20/32")};
    node().put(node().pod);
    for (const char *allowed : {"198.51.100.7", "192.0.2.20"})
        from_pod_ends_in(ip4(allowed, "192.0.2.20"), REASON_HOST_UNCONFIRMED);
    node().put_without(node().pod, INTERFACE_ANTI_SPOOF);
    from_pod_ends_in(ip4("203.0.113.9", "192.0.2.20"), REASON_HOST_UNCONFIRMED);
    EXPECT_EQ(require(node().flows().keys()).size(), 0U);
}

TEST_F(DirectFirst, ErrorsFollowTheFlowTheyQuote) {
    each_family([&](const Family &family) {
        const Bytes error = family.there / family.error / family.quote / Udp{80, 40000};
        from_pod_ends_in(error, REASON_SENT_DIRECT);
        EXPECT_EQ(require(node().flows().keys()).size(), 0U) << "an error is cached";
        node().confirm(family.there / Udp{40000, 80});
        from_pod_ends_in(error, REASON_HOST_UNCONFIRMED);
    });
}

// The flow it quotes chooses the path only of an error to the sender of what is quoted.
TEST_F(DirectFirst, AnErrorIsNoTunnel) {
    const Bytes quote = Frame(Ipv4{ip("203.0.113.9"), pod4()}.layer()) / Udp{80, 40000};
    from_pod_ends_in(from_pod() / to_peer4() / Icmp{.type = 3} / quote, REASON_HOST_NO_FLOW);
}

// conntrack has no entry of it, and makes none of an end.
TEST_F(DirectFirst, AConfirmedConnectionThatConntrackHasLostEndsOnTheFastPath) {
    each_family([&](const Family &family) {
        const Bytes data = family.there / Tcp{40000, 80, kAck};
        node().confirm(data);
        from_pod_ends_in(data, REASON_SENT_DIRECT);
        from_pod_ends_in(family.there / Tcp{40000, 80, kFin | kAck}, REASON_SENT_DIRECT);
        EXPECT_NE(cached(data), std::nullopt);
    });
}

} // namespace
} // namespace podlane::packet
