// SPDX-License-Identifier: MIT
// A flow returns the way it came: what both programs remember, and what they make of it.
#include "tests/packet/cases.hpp"

namespace podlane::packet {
namespace {

struct Family {
    const char *name;
    Frame there; // from the pod to the peer, without a transport header
    Frame back;
    Frame delivered; // to the pod by the host stack, from the peer
    Frame quote;     // the beginning of `back`'s packets, as an ICMP error quotes them
    ip_addr local;
    ip_addr peer;
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
            pod4(),
            peer4(),
            {.type = 3}};
}
Family family6() {
    const Frame back = Frame(Ipv6{peer6(), pod6()}.layer());
    return {"v6",
            from_pod() / to_peer6(),
            Ethernet{kHostMac, kPeerMac} / back,
            Ethernet{kPodMac, kHostMac} / back,
            back,
            pod6(),
            peer6(),
            icmp6(1)};
}

class PathCache : public PacketTest {
  protected:
    void from_pod_ends_in(const Bytes &frame, reason why) { expect_ends_in(node(), node().run(frame), why); }
    void from_peer_ends_in(const Bytes &frame, reason why) {
        const std::uint32_t peer = node().peer.ifindex;
        expect_ends_in(node(), node().run(frame, {.ifindex = peer}), why, peer);
    }
    void delivered_by_host(const Bytes &frame) {
        expect_ends_in(node(), node().run(frame, {.program = PODLANE_PROGRAM_TO_POD}), REASON_RECEIVED_HOST);
    }
    // enum path_via at the pod's (or the peer's) end of the flow pod:40000 – peer:80, 0 where nothing is remembered.
    std::uint32_t remembered(const Family &family, std::uint8_t protocol, bool at_peer = false) {
        path_key key{};
        key.ifindex = at_peer ? node().peer.ifindex : node().pod.ifindex;
        key.local = at_peer ? family.peer : family.local;
        key.peer = at_peer ? family.local : family.peer;
        key.local_port = htons(at_peer ? 80 : 40000);
        key.peer_port = htons(at_peer ? 40000 : 80);
        key.protocol = protocol;
        const auto found = require(node().paths().find(key));
        return found ? found->via : 0;
    }
    template <typename Test> void each_family(Test test) {
        for (const Family &family : {family4(), family6()}) {
            SCOPED_TRACE(family.name);
            node().forget_paths();
            test(family);
        }
    }
};

TEST_F(PathCache, SynIsCachedAtBothEndsAndItsAnswersFollow) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn}, REASON_SENT_DIRECT);
        EXPECT_EQ(remembered(family, IPPROTO_TCP), PATH_DIRECT);
        EXPECT_EQ(remembered(family, IPPROTO_TCP, true), PATH_DIRECT);
        from_peer_ends_in(family.back / Tcp{80, 40000, kSyn | kAck}, REASON_SENT_DIRECT);
        from_pod_ends_in(family.there / Tcp{40000, 80, kAck}, REASON_SENT_DIRECT);
        from_pod_ends_in(family.there / Tcp{40001, 80, kAck}, REASON_HOST_UNKNOWN_PATH);
    });
}

// The peer's SYN ACK cannot start a flow, so a SYN brings back an entry of the peer's that was evicted.
TEST_F(PathCache, SynOfAKnownFlowRestoresTheEntryAtThePeer) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn}, REASON_SENT_DIRECT);
        const path_key at_peer{node().peer.ifindex, family.peer, family.local, htons(80), htons(40000),
                               IPPROTO_TCP,         {}};
        require(node().paths().remove(at_peer));
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn}, REASON_SENT_DIRECT);
        EXPECT_EQ(remembered(family, IPPROTO_TCP, true), PATH_DIRECT);
        from_peer_ends_in(family.back / Tcp{80, 40000, kSyn | kAck}, REASON_SENT_DIRECT);
    });
}

TEST_F(PathCache, MidStreamIsNotCached) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Tcp{40000, 80, kAck}, REASON_HOST_UNKNOWN_PATH);
        EXPECT_EQ(require(node().paths().entries()).size(), 0U);
    });
}

TEST_F(PathCache, WhatTheHostDeliveredReturnsThroughTheHost) {
    each_family([&](const Family &family) {
        delivered_by_host(family.delivered / Tcp{80, 40000, kSyn});
        EXPECT_EQ(remembered(family, IPPROTO_TCP), PATH_HOST);
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn | kAck}, REASON_HOST_PATH);
        from_pod_ends_in(family.there / Tcp{40000, 80, kSyn}, REASON_HOST_PATH);
    });
}

TEST_F(PathCache, TheSlowPathWinsOverTheDirectOne) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_SENT_DIRECT);
        EXPECT_EQ(remembered(family, IPPROTO_UDP), PATH_DIRECT);
        delivered_by_host(family.delivered / Udp{80, 40000});
        EXPECT_EQ(remembered(family, IPPROTO_UDP), PATH_HOST);
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_HOST_PATH);
    });
}

// A Service's translation lets the peer see such a flow: only connection tracking can tell the two apart.
TEST_F(PathCache, AFlowThatThePeerHasFromTheHostStackIsNotStartedDirectly) {
    each_family([&](const Family &family) {
        const std::uint32_t peer = node().peer.ifindex;
        const Bytes syn = family.there / Tcp{40000, 80, kSyn};
        expect_ends_in(node(), node().run(syn, {.program = PODLANE_PROGRAM_TO_POD, .ifindex = peer}),
                       REASON_RECEIVED_HOST, peer);
        EXPECT_EQ(remembered(family, IPPROTO_TCP, true), PATH_HOST);
        from_pod_ends_in(syn, REASON_HOST_PATH);
        EXPECT_EQ(remembered(family, IPPROTO_TCP), 0U);
    });
}

TEST_F(PathCache, UdpAndSctpFollowToo) {
    each_family([&](const Family &family) {
        for (const std::uint8_t protocol : {IPPROTO_UDP, IPPROTO_SCTP}) {
            from_pod_ends_in(family.there / Udp{40000, 80, protocol} / sctp_chunk(kSctpInit), REASON_SENT_DIRECT);
            EXPECT_EQ(remembered(family, protocol, true), PATH_DIRECT);
            from_peer_ends_in(family.back / Udp{80, 40000, protocol} / sctp_chunk(kSctpData), REASON_SENT_DIRECT);
        }
    });
}

TEST_F(PathCache, ErrorsTakeThePathOfTheFlowTheyQuote) {
    each_family([&](const Family &family) {
        const Bytes error = family.there / family.error / family.quote / Udp{80, 40000};
        from_pod_ends_in(error, REASON_HOST_UNKNOWN_PATH);
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_SENT_DIRECT);
        from_pod_ends_in(error, REASON_SENT_DIRECT);
        delivered_by_host(family.delivered / Udp{80, 40000});
        from_pod_ends_in(error, REASON_HOST_PATH);
    });
}

// The flow it quotes chooses the path only of an error to the sender of what is quoted.
TEST_F(PathCache, AnErrorIsNoTunnel) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_SENT_DIRECT);
        const Bytes right = family.there / family.error / family.quote / Udp{80, 40000};
        from_pod_ends_in(right, REASON_SENT_DIRECT);
    });
    const Bytes quote = Frame(Ipv4{ip("203.0.113.9"), pod4()}.layer()) / Udp{80, 40000};
    from_pod_ends_in(from_pod() / to_peer4() / Icmp{.type = 3} / quote, REASON_HOST_NO_FLOW);
}

TEST_F(PathCache, AnErrorTheHostDeliversChangesNoPath) {
    each_family([&](const Family &family) {
        from_pod_ends_in(family.there / Udp{40000, 80}, REASON_SENT_DIRECT);
        const Bytes quoted = family.there / Udp{40000, 80};
        delivered_by_host(family.delivered / family.error / Bytes(quoted.begin() + 14, quoted.end()));
        EXPECT_EQ(remembered(family, IPPROTO_UDP), PATH_DIRECT);
    });
}

TEST_F(PathCache, FlowsWithTheOutsideAreNotCached) {
    delivered_by_host(Ethernet{kPodMac, kHostMac} / Ipv4{ip("198.51.100.1"), pod4()} / Udp{});
    delivered_by_host(Ethernet{kPodMac, kHostMac} / Ipv4{ip("192.0.2.30"), pod4()} / Udp{}); // another network's
    from_pod_ends_in(ip4("192.0.2.10", "198.51.100.1"), REASON_HOST_NOT_LOCAL);
    EXPECT_EQ(require(node().paths().entries()).size(), 0U);
}

TEST_F(PathCache, EchoesAreToldApartByIdentifier) {
    from_pod_ends_in(from_pod() / to_peer4() / Icmp{8, 1}, REASON_SENT_DIRECT);
    delivered_by_host(Ethernet{kPodMac, kHostMac} / Ipv4{peer4(), pod4()} / Icmp{8, 2});
    from_pod_ends_in(from_pod() / to_peer4() / Icmp{0, 2}, REASON_HOST_PATH);
    from_pod_ends_in(from_pod() / to_peer4() / Icmp{8, 1}, REASON_SENT_DIRECT);
}

} // namespace
} // namespace podlane::packet
