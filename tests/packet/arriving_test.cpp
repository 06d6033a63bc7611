// SPDX-License-Identifier: MIT
// Packets that come by the uplink of a network with an egress route: padded, in fragments, of sources that the host
// stack refuses.
#include "tests/packet/sources.hpp"

namespace podlane::packet {
namespace {

const Ethernet kArriving{kUplinkMac, kNeighbourMac};
const ip_addr kOwn4 = ip("192.168.133.20"), kNeighbour4 = ip("192.168.133.9");
const ip_addr kOwn6 = ip("2001:db8:133::20"), kNeighbour6 = ip("2001:db8:133::9");
constexpr const char *kNodes = "203.0.113.2"; // an address of the node, as kSetUp gives it

Bytes padded(Bytes frame, std::size_t bytes) {
    frame.resize(frame.size() + bytes, 0xa5);
    return frame;
}

// Ethernet's least frame has 60 bytes: a short packet takes the path of a longer one, and arrives as it was sent.
TEST_F(Source, PaddingIsTakenOff) {
    const Ipv4 later{.source = kNeighbour4, .destination = kOwn4, .fragment = 100};
    const Ipv4 first{.source = kNeighbour4, .destination = kOwn4, .fragment = 0x2000};
    for (const Bytes &whole : std::vector<Bytes>{
             kArriving / Ipv4{kNeighbour4, kOwn4} / Udp{} / bytes(4),
             kArriving / Ipv4{kNeighbour4, kOwn4} / Tcp{.flags = kAck}, kArriving / Ipv4{kNeighbour4, kOwn4} / Icmp{},
             kArriving / Ipv4{.source = kNeighbour4, .destination = kOwn4, .protocol = 6} / bytes(10),
             kArriving / first / Udp{} / bytes(8), kArriving / later / bytes(8),
             kArriving / Ipv6{kNeighbour6, kOwn6} / Udp{}}) {
        const Outcome expected = node().run(whole, in());
        ASSERT_EQ(expected.verdict, kRedirected) << hex(whole);
        for (const std::size_t more : {1U, 18U, 1500U}) {
            const Outcome outcome = node().run(padded(whole, more), in());
            EXPECT_EQ(outcome.verdict, kRedirected) << more << "\n" << hex(whole);
            EXPECT_EQ(hex(outcome.frame), hex(expected.frame)) << more;
        }
    }
}

// RFC 1858: the next fragment would bring other flags than those that the padding shows.
TEST_F(Source, NoHeaderIsReadOfThePadding) {
    const Bytes first4 =
        kArriving / Ipv4{.source = kNeighbour4, .destination = kOwn4, .protocol = 6, .fragment = 0x2000} / bytes(8);
    const Bytes first6 = kArriving / Ipv6{kNeighbour6, kOwn6} / Extension{44, 1, 1, IPPROTO_TCP} / bytes(8);
    for (const Bytes &first : {first4, first6}) {
        expect({"a first fragment of TCP without flags", first, REASON_DROP_HIDDEN_HEADER, in()});
        Bytes with_flags = padded(first, 40);
        with_flags.at(first.size() + 4) = 0x50; // a header of 20 bytes ...
        with_flags.at(first.size() + 5) = kAck; // ... that ends nothing
        expect({"with flags in the padding", with_flags, REASON_DROP_HIDDEN_HEADER, in()});
    }
    // The next fragment brings the header of TCP, where the padding shows another protocol.
    const Extension fragment{44, 1, 1, IPPROTO_DSTOPTS}, other{IPPROTO_DSTOPTS, 1};
    const Bytes begins{IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0};
    const Bytes near = kArriving / Ipv6{kNeighbour6, kOwn6} / fragment / begins;
    const Bytes far = kArriving / Ipv6{kNeighbour6, kOwn6} / other / other / other / other / fragment / begins;
    for (const Bytes &first : {near, far}) {
        Bytes decoy = padded(first, 24);
        decoy.at(first.size()) = IPPROTO_UDP;
        expect({"with headers in the padding", decoy, REASON_DROP_HIDDEN_HEADER, in()});
    }
}

// A packet that is cut is none that is padded, and of others nothing is taken off.
TEST_F(Source, OnlyPaddingIsTakenOff) {
    const Bytes cut_packet = kArriving / Ipv4{.source = kNeighbour4, .destination = kOwn4, .length_error = 1} / Udp{};
    expect({"cut", cut_packet, REASON_HOST_LENGTH, in()});
    const Bytes segments =
        kArriving / Ipv4{.source = kNeighbour4, .destination = kOwn4, .length_error = -1} / Udp{} / bytes(1000);
    expect({"segments",
            segments,
            REASON_HOST_LENGTH,
            {.program = PODLANE_PROGRAM_FROM_UPLINK, .ifindex = lan_, .gso_size = 500, .gso_segments = 2}});
    const Bytes elsewhere = padded(kArriving / Ipv4{kNeighbour4, ip("203.0.113.77")} / Udp{}, 18);
    EXPECT_EQ(hex(node().run(elsewhere, in()).frame), hex(elsewhere)) << "of others the programs change nothing";
}

// A fragment is one wherever its header is: all of a packet take one path, and name no flow for what arrives.
TEST_F(Source, FragmentsBehindOtherHeadersTakeOnePath) {
    const Extension options{IPPROTO_HOPOPTS, 1};
    const Bytes first = kArriving / Ipv6{kNeighbour6, kOwn6} / options / Extension{44, 1, 1} / Udp{};
    const Bytes later =
        kArriving / Ipv6{kNeighbour6, kOwn6} / options / Extension{44, 1, 0x0040, IPPROTO_UDP} / bytes(40);
    const ip_addr local = ip("2001:db8:9::9");
    const Frame sent = of_second() / Ipv6{kOwn6, local} / options;
    const Bytes sent_first = sent / Extension{44, 1, 1} / Udp{};
    const Bytes sent_later = sent / Extension{44, 1, 0x0040, IPPROTO_UDP} / bytes(40);
    for (const path_via via : {PATH_UPLINK, PATH_HOST}) {
        const auto by = static_cast<std::uint32_t>(via);
        require(node().paths().update({second_.ifindex, kOwn6, kNeighbour6, htons(53), htons(40000), IPPROTO_UDP, {}},
                                      {0, by, lan_}));
        expect({"first", first, REASON_UPLINK_DELIVERED, in()});
        expect({"later", later, REASON_UPLINK_DELIVERED, in()});
        require(node().paths().update({second_.ifindex, kOwn6, local, htons(40000), htons(53), IPPROTO_UDP, {}},
                                      {0, by, lan_}));
        for (const Bytes &fragment : {sent_first, sent_later})
            expect({"sent", fragment, via == PATH_HOST ? REASON_HOST_PATH : REASON_SENT_WAY, from_second()});
    }
    node().forget_paths();
    expect({"unknown", first, REASON_UPLINK_DELIVERED, in()});
    EXPECT_EQ(require(node().paths().keys()).size(), 0U) << "a fragment names no flow";
}

// An error is of its sender, whatever flow it quotes.
TEST_F(Source, ErrorsOfRefusedSourcesAreLeftToTheHostStack) {
    shell("ip route add default via 203.0.113.1 dev caliCp");
    const path_key flow{second_.ifindex, kOwn4, kNeighbour4, htons(40000), htons(53), IPPROTO_UDP, {}};
    const auto error_of = [&](const char *source) {
        return kArriving / Ipv4{ip(source), kOwn4} / Icmp{.type = 3} / Frame(Ipv4{kOwn4, kNeighbour4}.layer()) / Udp{};
    };
    require(node().paths().update(flow, {monotonic_ns(), PATH_UPLINK, lan_}));
    expect({"of the node", error_of(kNodes), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"of a pod's network", error_of("198.51.100.9"), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"of the peer", error_of("192.168.133.9"), REASON_UPLINK_DELIVERED, in()});
    expect({"of a router", error_of("192.168.133.1"), REASON_UPLINK_DELIVERED, in()});
    EXPECT_EQ(require(node().paths().find(flow))->uplink, lan_);
}

// Links that are no uplinks lead to what is behind the node; the default route's is one.
TEST_F(Source, SourcesBehindOtherLinksAreLeftToTheHostStack) {
    const ip_addr chained = ip("198.18.7.7");
    const std::uint32_t netns = require(netns_of(node().root()));
    shell("ip route add default via 203.0.113.1 dev caliCp; ip link add inner type veth peer name innerp; "
          "ip link set inner up; ip link set innerp up; ip addr add 198.18.9.1/24 dev inner; "
          "ip route add 198.18.10.0/24 via 198.18.9.9; ip route add 198.18.11.0/24 via 203.0.113.7");
    const auto from = [](const char *source) { return kArriving / Ipv4{ip(source), kOwn4} / Udp{}; };
    expect({"behind another link", from("198.18.9.9"), REASON_HOST_SOURCE_LOCAL, in()});
    for (const char *source : {"198.18.10.9", "198.18.11.9", "203.0.113.9", "198.18.7.7"})
        expect({source, from(source), REASON_UPLINK_DELIVERED, in()});
    const auto key = make_cluster_cidr_key(network_id("lan"), *parse_prefix("198.18.0.0/16"));
    require(node().tables().cluster_cidrs.update(key, make_prefix_value(*parse_prefix("198.18.0.0/16"))));
    node().forget_paths();
    for (const char *source : {"198.18.9.9", "198.18.10.9", "198.18.11.9"})
        expect({source, from(source), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"by the default route", from("198.18.7.7"), REASON_UPLINK_DELIVERED, in()});
    node().forget_paths();
    require(node().tables().senders.update({netns, chained}, second_.ifindex));
    expect({"a pod of this node", from("198.18.7.7"), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"a neighbour's", from("192.168.133.9"), REASON_UPLINK_DELIVERED, in()});
    const Bytes sent = of_second() / Ipv4{kOwn4, chained} / Udp{};
    expect({"to it", sent, REASON_HOST_NOT_LOCAL, from_second()});
}

// The pod's interface forwards, whatever the uplink does.
TEST_F(Source, SourcesAreJudgedOnAnUplinkThatDoesNotForward) {
    shell("ip route add default via 203.0.113.1 dev caliCp; ip route add blackhole 198.18.4.0/24; "
          "echo 0 >/proc/sys/net/ipv4/conf/lan0/forwarding");
    const auto from = [](const char *source) { return kArriving / Ipv4{ip(source), kOwn4} / Udp{}; };
    for (const char *source : {kNodes, "198.51.100.9", "198.18.4.9"})
        expect({source, from(source), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"a neighbour's", from("192.168.133.9"), REASON_UPLINK_DELIVERED, in()});
}

// A peer whom the host stack has come to refuse is judged once a second, however much the pod sends to it.
TEST_F(Source, APathIsJudgedAgain) {
    const path_key flow{second_.ifindex, kOwn4, ip("198.18.4.9"), htons(53), htons(40000), IPPROTO_UDP, {}};
    const Bytes arriving = kArriving / Ipv4{ip("198.18.4.9"), kOwn4} / Udp{};
    const Bytes sent = of_second() / Ipv4{kOwn4, ip("198.18.4.9")} / Udp{.source = 53, .destination = 40000};
    const auto used = [&](std::uint64_t ms_ago) {
        require(node().paths().update(flow, {monotonic_ns() - ms_ago * 1'000'000, PATH_UPLINK, lan_}));
    };
    expect({"unknown", arriving, REASON_UPLINK_DELIVERED, in()});
    shell("ip route add blackhole 198.18.4.0/24");
    used(0);
    expect({"just judged", arriving, REASON_UPLINK_DELIVERED, in()});
    for (const std::uint64_t ms_ago : {1500U, 6000U}) {
        used(ms_ago);
        expect({"sent", sent, REASON_SENT_WAY, from_second()});
        expect({"refused", arriving, REASON_HOST_SOURCE_LOCAL, in()});
        expect({"still refused", arriving, REASON_HOST_SOURCE_LOCAL, in()});
    }
    node().forget_paths();
    expect({"sent first", sent, REASON_SENT_WAY, from_second()});
    expect({"refused", arriving, REASON_HOST_SOURCE_LOCAL, in()});
    shell("ip route del blackhole 198.18.4.0/24");
    expect({"accepted", arriving, REASON_UPLINK_DELIVERED, in()});
    EXPECT_EQ(require(node().paths().find(flow))->uplink, lan_);
}

// In the pod's own gateway's name (RFC 3927).
TEST_F(Source, SourcesThatStayOnTheirLinkAreLeftToTheHostStack) {
    for (const char *source : {"169.254.1.1", "169.254.9.9"})
        expect({source, kArriving / Ipv4{ip(source), kOwn4} / Udp{}, REASON_HOST_SCOPE, in()});
    expect({"fe80::9", kArriving / Ipv6{ip("fe80::9"), kOwn6} / Udp{}, REASON_HOST_SCOPE, in()});
    for (const char *source : {"169.253.255.255", "169.255.0.0"})
        expect({source, kArriving / Ipv4{ip(source), kOwn4} / Udp{}, REASON_UPLINK_DELIVERED, in()});
}

// Nobody on an uplink speaks for a pod of any network. But what a pod has sent by its own uplink may come back.
TEST_F(Source, EndsInTheNameOfAPodOfAnotherNetworkAreDropped) {
    const std::uint32_t netns = require(netns_of(node().root())), other = if_nametoindex("plan0");
    require(node().tables().senders.update({netns, pod4()}, node().pod.ifindex));
    require(node().tables().senders.update({netns, kOwn4}, second_.ifindex));
    require(node().tables().counters.update(other, counter_shares{}));
    shell(("ip link set plan0 address " + to_string(kUplinkMac)).c_str());
    uplink entry{};
    entry.networks[0] = network_id("elsewhere");
    require(require(open_uplinks(node().root(), Access::read_write)).update(other, entry));
    How by_other = in();
    by_other.ifindex = other;
    constexpr std::uint8_t kFin = 0x11, kReset = 0x04;
    for (const std::uint8_t flags : {kFin, kReset}) {
        const auto end = [&](const ip_addr &of, const char *to) {
            return kArriving / Ipv4{of, ip(to)} / Tcp{.flags = flags};
        };
        expect({"of another network", end(pod4(), "203.0.113.77"), REASON_DROP_FORGED_END, in()});
        expect({"of its own", end(kOwn4, "203.0.113.77"), REASON_DROP_FORGED_END, in()});
        expect({"to a pod", end(pod4(), "192.168.133.20"), REASON_HOST_SOURCE_LOCAL, in()});
        expect({"by a third one", end(pod4(), "203.0.113.77"), REASON_DROP_FORGED_END, by_other});
        const Bytes passing =
            Ethernet{{2, 0, 0, 0, 0, 0x77}, kNeighbourMac} / Ipv4{pod4(), ip("203.0.113.77")} / Tcp{.flags = flags};
        expect({"for a macvlan on that link", passing, REASON_HOST_NOT_LOCAL, by_other});
        expect({"come back", end(kOwn4, "203.0.113.77"), REASON_HOST_NOT_LOCAL, by_other});
    }
}

} // namespace
} // namespace podlane::packet
