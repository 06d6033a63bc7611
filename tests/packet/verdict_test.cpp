// SPDX-License-Identifier: MIT
// Every sort of packet ends in the reason it should, with the verdict of that reason, counted once.
#include "tests/packet/neighbour_cases.hpp"

namespace podlane::packet {
namespace {

using Verdict = PacketTest;

// Unchanged, unless it is answered or handed on.
void expect_frame(const Case &given, const Outcome &outcome) {
    const reason_kind kind = kReasons[given.why].kind;
    if (kind != REASON_KIND_FAST && kind != REASON_KIND_ANSWER) {
        EXPECT_EQ(hex(outcome.frame), hex(given.frame));
    }
}

void expect_cases(Node &node, const std::vector<Case> &cases) {
    for (const Case &given : cases) {
        SCOPED_TRACE(given.name);
        node.forget_paths();
        const Outcome outcome = node.run(given.frame, given.run);
        expect_ends_in(node, outcome, given.why, given.run.ifindex);
        expect_frame(given, outcome);
    }
}

TEST_F(Verdict, CarriesTcpAndUdpOnly) { expect_cases(node(), protocol_cases()); }
TEST_F(Verdict, FindsThePathOfEachDestination) { expect_cases(node(), destination_cases()); }
TEST_F(Verdict, DropsForeignSources) { expect_cases(node(), source_cases()); }
TEST_F(Verdict, LeavesDetoursToTheHostStack) { expect_cases(node(), detour_cases()); }
TEST_F(Verdict, DropsBeyondTheLimits) { expect_cases(node(), limit_cases()); }
TEST_F(Verdict, DropsMalformedFrames) { expect_cases(node(), malformed_cases()); }
TEST_F(Verdict, DropsForgedArp) { expect_cases(node(), arp_cases()); }
TEST_F(Verdict, DropsForgedNeighbourDiscovery) { expect_cases(node(), nd_cases()); }

void put_checksum(Bytes &frame) {
    frame[24] = frame[25] = 0;
    const std::uint16_t sum = checksum(std::span(frame).subspan(14, 20));
    frame[24] = static_cast<std::uint8_t>(sum >> 8U);
    frame[25] = static_cast<std::uint8_t>(sum);
}

// The IPv4 checksum follows the TTL; everything else arrives as it was sent.
TEST_F(Verdict, HandsOnWithNothingButTtlAndMacsChanged) {
    for (const Bytes &given : {Bytes(from_pod() / to_peer4() / Udp{} / bytes(37, 0xa5)),
                               Bytes(from_pod() / Ipv4{pod4(), peer4(), 2} / Tcp{} / bytes(37, 0xa5)),
                               Bytes(from_pod() / Ipv4{pod4(), peer4(), 255} / Tcp{} / bytes(37, 0xa5)),
                               Bytes(from_pod() / to_peer6() / Udp{} / bytes(37, 0xa5)),
                               Bytes(from_pod() / Ipv6{pod6(), peer6(), 2} / Tcp{} / bytes(37, 0xa5))}) {
        const Outcome outcome = node().run(given);

        expect_ends_in(node(), outcome, REASON_SENT_DIRECT);
        Bytes expected = given;
        std::ranges::copy(kPeerMac, expected.begin());
        std::ranges::copy(kHostMac, expected.begin() + 6);
        const bool v4 = given[12] == 0x08;
        --expected[v4 ? 22 : 21];
        if (v4)
            put_checksum(expected);
        EXPECT_EQ(hex(outcome.frame), hex(expected));
    }
}

// The carry is where an incremental update goes wrong: all identifications give all sums.
TEST_F(Verdict, KeepsTheIpv4ChecksumRightForEverySum) {
    Bytes frame = from_pod() / to_peer4() / Udp{};
    for (unsigned identification = 0; identification < 0x10000; ++identification) {
        frame[18] = static_cast<std::uint8_t>(identification >> 8U);
        frame[19] = static_cast<std::uint8_t>(identification);
        put_checksum(frame);
        const Bytes sent = node().run_uncounted(frame).frame;
        Bytes expected = sent;
        put_checksum(expected);
        ASSERT_EQ(hex(sent), hex(expected)) << identification;
    }
}

TEST_F(Verdict, DeliversAndCountsWhatTheHostStackSends) {
    const Ethernet to_pod{kPodMac, kHostMac};
    const How run{.program = PODLANE_PROGRAM_TO_POD};
    const std::vector<Case> cases{
        {"peer4", to_pod / Ipv4{peer4(), pod4()} / Tcp{}, REASON_RECEIVED_HOST, run},
        {"peer6", to_pod / Ipv6{peer6(), pod6()} / Tcp{}, REASON_RECEIVED_HOST, run},
        {"outside4", to_pod / Ipv4{ip("198.51.100.1"), pod4()} / Udp{}, REASON_RECEIVED_HOST, run},
        {"outside6", to_pod / Ipv6{ip("2001:db8:1::1"), pod6()} / Udp{}, REASON_RECEIVED_HOST, run},
        {"fragment", to_pod / Ipv4{.source = peer4(), .destination = pod4(), .fragment = 9} / bytes(40),
         REASON_RECEIVED_HOST, run},
        {"extensions", to_pod / Ipv6{peer6(), pod6()} / Extension{} / Udp{}, REASON_RECEIVED_HOST, run},
        {"ARP", to_pod / Arp{1, kHostMac, gateway4(), pod4()}, REASON_RECEIVED_HOST, run},
        {"VLAN", to_pod / Vlan{} / Ipv4{peer4(), pod4()} / Udp{}, REASON_RECEIVED_HOST, run},
        {"not IP", Frame(Ethernet{kPodMac, kHostMac, 0x88cc}.layer()) / bytes(40), REASON_RECEIVED_HOST, run},
        {"error", to_pod / Ipv4{peer4(), pod4()} / Icmp{.type = 3} / Frame(Ipv4{pod4(), peer4()}.layer()) / Udp{},
         REASON_RECEIVED_HOST, run},
        {"malformed", to_pod / Ipv4{.source = peer4(), .destination = pod4(), .ihl = 4} / Udp{}, REASON_DROP_MALFORMED,
         run},
    };
    expect_cases(node(), cases);
}

TEST_F(Verdict, DropsPacketsOfNoEndpointAndCountsThemUnderKeyZero) {
    for (const char *program : {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD}) {
        const How run{.program = program, .ifindex = node().unknown_ifindex};
        expect_ends_in(node(), node().run(from_pod() / to_peer4() / Udp{}, run), REASON_DROP_UNKNOWN_ENDPOINT);
    }
}

TEST_F(Verdict, WorksOnIfCountersAreMissing) {
    ASSERT_TRUE(node().tables().counters.remove(node().pod.ifindex));

    const Outcome outcome = node().run(from_pod() / to_peer4() / Udp{});

    EXPECT_EQ(outcome.verdict, kRedirected);
    EXPECT_EQ(outcome.counted,
              (std::vector<Counted>{{node().peer.ifindex, REASON_RECEIVED_DIRECT, 1, outcome.frame.size()}}));
}

TEST_F(Verdict, LeavesPodsWithTheFastPathOffToTheHostStack) {
    for (Pod *end : {&node().pod, &node().peer}) {
        const Pod before = *end;
        end->flags &= ~static_cast<std::uint32_t>(INTERFACE_FAST_LOCAL);
        node().put(*end);
        expect_cases(node(), {{"v4", from_pod() / to_peer4() / Udp{}, REASON_HOST_FAST_PATH_OFF},
                              {"v6", from_pod() / to_peer6() / Udp{}, REASON_HOST_FAST_PATH_OFF}});
        *end = before;
        node().put(*end);
    }
}

TEST_F(Verdict, PassesEachOfSeveralAddresses) {
    Pod &pod = node().pod;
    pod.flags |= INTERFACE_MORE_ADDRESSES;
    pod.addresses = {pod4(), pod6(), ip("192.0.2.11"), ip("2001:db8::11")};
    node().put(pod);
    expect_cases(node(), {
                             {"first 4", ip4("192.0.2.10", "192.0.2.20"), REASON_SENT_DIRECT},
                             {"second 4", ip4("192.0.2.11", "192.0.2.20"), REASON_SENT_DIRECT},
                             {"second 6", ip6("2001:db8::11", "2001:db8::20"), REASON_SENT_DIRECT},
                             {"to its second", ip4("192.0.2.10", "192.0.2.11"), REASON_HOST_SELF},
                             {"the peer's", ip4("192.0.2.20", "192.0.2.20"), REASON_DROP_SOURCE_ADDRESS},
                             {"another network's", ip4("192.0.2.30", "192.0.2.20"), REASON_DROP_SOURCE_ADDRESS},
                             {"nobody's", ip6("2001:db8::12", "2001:db8::20"), REASON_DROP_SOURCE_ADDRESS},
                         });
}

TEST_F(Verdict, PassesAllowedSources) {
    node().pod.allowed = {*parse_prefix("198.51.100.0/24"), *parse_prefix("2001:db8:5::/48"),
                          *parse_prefix("203.0.113.7/32")};
    node().put(node().pod);
    constexpr reason kDrop = REASON_DROP_SOURCE_ADDRESS;
    Arp announced = arp_request(ip("198.51.100.9"));
    announced.sender = ip("198.51.100.9");
    expect_cases(node(), {
                             {"first of 4", ip4("198.51.100.0", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"last of 4", ip4("198.51.100.255", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"beyond 4", ip4("198.51.101.0", "192.0.2.20"), kDrop},
                             {"before 4", ip4("198.51.99.255", "192.0.2.20"), kDrop},
                             {"host prefix", ip4("203.0.113.7", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"beside it", ip4("203.0.113.6", "192.0.2.20"), kDrop},
                             {"in 6", ip6("2001:db8:5:ffff::1", "2001:db8::20"), REASON_HOST_UNCONFIRMED},
                             {"beyond 6", ip6("2001:db8:6::", "2001:db8::20"), kDrop},
                             {"own", ip4("192.0.2.10", "192.0.2.20"), REASON_SENT_DIRECT},
                             {"ARP for an allowed one", arp(announced), REASON_HOST_ARP},
                         });
    const Bytes from_peer = Ethernet{kHostMac, kPeerMac} / Ipv4{ip("198.51.100.9"), pod4()} / Udp{};
    expect_ends_in(node(), node().run(from_peer, {.ifindex = node().peer.ifindex}), kDrop, node().peer.ifindex);
}

TEST_F(Verdict, PassesForeignSourcesWithAntiSpoofOff) {
    node().put_without(node().pod, INTERFACE_ANTI_SPOOF);
    expect_cases(node(),
                 {
                     {"another source 4", ip4("203.0.113.1", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                     {"another source 6", ip6("2001:db8:9::1", "2001:db8::20"), REASON_HOST_UNCONFIRMED},
                     {"another MAC", Ethernet{kHostMac, kForeignMac} / to_peer4() / Udp{}, REASON_SENT_DIRECT},
                     {"malformed", from_pod() / Ipv4{.source = pod4(), .destination = peer4(), .ihl = 4} / Udp{},
                      REASON_DROP_MALFORMED},
                 });
}

// The host stack decides about sources that no router forwards (RFC 6890), also if the pod may send from any address.
TEST_F(Verdict, SourcesThatStayOnTheirLinkAreNotForwarded) {
    node().put_without(node().pod, INTERFACE_ANTI_SPOOF);
    constexpr reason kScope = REASON_HOST_SCOPE;
    expect_cases(node(), {
                             {"this network", ip4("0.0.0.1", "192.0.2.20"), kScope},
                             {"beside this network", ip4("1.0.0.1", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"before loopback", ip4("126.255.255.255", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"loopback", ip4("127.0.0.1", "192.0.2.20"), kScope},
                             {"the last of loopback", ip4("127.255.255.255", "192.0.2.20"), kScope},
                             {"behind loopback", ip4("128.0.0.0", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"before link-local", ip4("169.253.255.255", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"the gateway", ip4("169.254.1.1", "192.0.2.20"), kScope},
                             {"the last link-local", ip4("169.254.255.255", "192.0.2.20"), kScope},
                             {"behind link-local", ip4("169.255.0.0", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"before multicast", ip4("223.255.255.255", "192.0.2.20"), REASON_HOST_UNCONFIRMED},
                             {"multicast", ip4("224.0.0.1", "192.0.2.20"), kScope},
                             {"reserved", ip4("240.0.0.1", "192.0.2.20"), kScope},
                             {"broadcast", ip4("255.255.255.255", "192.0.2.20"), kScope},
                             {"loopback 6", ip6("::1", "2001:db8::20"), kScope},
                             {"beside loopback 6", ip6("::2", "2001:db8::20"), REASON_HOST_UNCONFIRMED},
                             {"before link-local 6", ip6("fe7f::1", "2001:db8::20"), REASON_HOST_UNCONFIRMED},
                             {"link-local 6", ip6("fe80::1", "2001:db8::20"), kScope},
                             {"the last link-local 6", ip6("febf::1", "2001:db8::20"), kScope},
                             {"behind link-local 6", ip6("fec0::1", "2001:db8::20"), REASON_HOST_UNCONFIRMED},
                             {"multicast 6", ip6("ff02::1", "2001:db8::20"), kScope},
                         });
}

// Each word of "allowedEtherTypes" allows its own types and no others; a tag within the frame stays forbidden, for the
// kernel has moved the outermost one out of it.
TEST_F(Verdict, DropsEtherTypesThatAreNotAllowed) {
    const std::vector<std::pair<std::uint16_t, std::uint32_t>> types = {
        {40, INTERFACE_ETHER_LLC},      {0x88cc, INTERFACE_ETHER_LLDP},  {0x8847, INTERFACE_ETHER_MPLS},
        {0x8848, INTERFACE_ETHER_MPLS}, {0x8863, INTERFACE_ETHER_PPPOE}, {0x8864, INTERFACE_ETHER_PPPOE},
        {0x88b5, INTERFACE_ETHER_ANY}};
    for (std::uint32_t allowed = INTERFACE_ETHER_LLC; allowed <= INTERFACE_ETHER_ANY; allowed <<= 1U) {
        node().pod.flags = kAllFlags | allowed;
        node().put(node().pod);
        for (const auto &[type, flag] : types)
            expect_cases(node(), {{"", Frame(Ethernet{kHostMac, kPodMac, type}.layer()) / bytes(40),
                                   (allowed & (flag | INTERFACE_ETHER_ANY)) != 0 ? REASON_HOST_NOT_IP
                                                                                 : REASON_DROP_ETHER_TYPE}});
        for (const std::uint16_t tag : {0x8100, 0x88a8})
            for (const std::uint16_t id : {0, 5})
                expect_cases(node(), {{"", from_pod() / Vlan{id, tag} / to_peer4() / Udp{}, REASON_DROP_VLAN}});
        expect_cases(node(), {{"", ip4("192.0.2.20", "192.0.2.20"), REASON_DROP_SOURCE_ADDRESS}});
    }
}

// Prefixes of one family never speak of the other, however short they are.
TEST_F(Verdict, AnIpv6PrefixAllowsNoIpv4Source) {
    node().pod.allowed = {*parse_prefix("::/0")};
    node().put(node().pod);
    const std::vector<Case> cases = {
        {"another source 6", ip6("2001:db8:9::1", "2001:db8::20"), REASON_HOST_UNCONFIRMED},
        {"another source 4", ip4("203.0.113.1", "192.0.2.20"), REASON_DROP_SOURCE_ADDRESS}};
    expect_cases(node(), cases);
    node().pod.allowed = {*parse_prefix("0.0.0.0/0")};
    node().put(node().pod);
    expect_cases(node(), {{"another source 6", ip6("2001:db8:9::1", "2001:db8::20"), REASON_DROP_SOURCE_ADDRESS},
                          {"another source 4", ip4("203.0.113.1", "192.0.2.20"), REASON_HOST_UNCONFIRMED}});
}

TEST_F(Verdict, MappedAddressesInIpv6HeadersAreDropped) {
    constexpr std::size_t kSource = 14 + 8;
    constexpr std::size_t kTarget = 14 + 40 + 8; // of neighbour discovery
    const auto with = [](Bytes frame, std::size_t at, const ip_addr &mapped) {
        std::memcpy(&frame.at(at), &mapped, sizeof mapped);
        return frame;
    };
    const Bytes sent = from_pod() / to_peer6() / Udp{};
    const Bytes claimed = nd(pod6()) / Nd{136, pod6()} / nd_option(2, kPodMac);
    expect_cases(node(), {{"as source", with(sent, kSource, pod4()), REASON_DROP_MALFORMED},
                          {"as destination", with(sent, kSource + 16, peer4()), REASON_DROP_MALFORMED},
                          {"as target", with(claimed, kTarget, pod4()), REASON_DROP_ND_SPOOFED}});
}

// A pod without IPv6 has no IPv6 source at all, and a zero in its entry is no address.
TEST_F(Verdict, DropsTheFamilyWithoutAnAddress) {
    node().pod.addresses = {pod4()};
    node().put(node().pod);
    interface own = **node().tables().interfaces.find(node().pod.ifindex);
    own.link_local = {};
    require(node().tables().interfaces.update(node().pod.ifindex, own));
    expect_cases(node(), {
                             {"none 6", ip6("::", "2001:db8::20"), REASON_DROP_SOURCE_ADDRESS},
                             {"detection of nothing", nd(ip("::")) / Nd{135, ip("::")}, REASON_DROP_ND_SPOOFED},
                             {"its 4", ip4("192.0.2.10", "192.0.2.20"), REASON_SENT_DIRECT},
                         });
}

// Another plugin's gateway is not ours to answer for.
TEST_F(Verdict, AnswersForNoGatewayOfAnotherPlugin) {
    node().put_without(node().pod, INTERFACE_GATEWAY);
    expect_cases(node(), {
                             {"ARP", arp(arp_request(gateway4())), REASON_HOST_ARP},
                             {"ND", nd(pod6()) / Nd{135, gateway6()} / own_option(), REASON_HOST_ND},
                             {"spoofed ARP", arp({1, kPodMac, peer4(), gateway4()}), REASON_DROP_ARP_SPOOFED},
                         });
}

// Packets that the host stack delivers, and the interface by which they came.
struct Arrival {
    Bytes frame;
    std::uint32_t came_by;
    reason why;
};
void expect_arrivals(Node &node, const std::vector<Arrival> &all) {
    for (const auto &[frame, came_by, why] : all) {
        SCOPED_TRACE(hex(frame));
        const Outcome outcome = node.run(frame, {.program = PODLANE_PROGRAM_TO_POD, .came_by = came_by});
        EXPECT_EQ(outcome.counted, (std::vector<Counted>{{node.pod.ifindex, why, 1, frame.size()}}));
    }
}

// A router forwards no neighbour discovery: it arrives with its hop limit of 255.
TEST_F(Verdict, IsolatedPodsGetTheirOwnPacketsAndAddressResolutionOnly) {
    node().put_with(node().pod, INTERFACE_ISOLATED_GROUP);
    const Ethernet delivered{kPodMac, kHostMac};
    const auto solicitation = [&](std::uint8_t hop_limit) -> Bytes {
        return delivered / Ipv6{peer6(), pod6(), hop_limit} / Nd{135, pod6()};
    };
    const Bytes datagram = delivered / Ipv4{peer4(), pod4()} / Udp{};
    const std::uint32_t own = node().pod.ifindex, other = node().peer.ifindex;
    expect_arrivals(node(), {{solicitation(255), other, REASON_RECEIVED_HOST},
                             {solicitation(64), other, REASON_DROP_ISOLATION},
                             {datagram, own, REASON_RECEIVED_HOST},
                             {datagram, other, REASON_DROP_ISOLATION}});
}

// Whoever may open connections: an error is let in because of the connection that it is about.
TEST_F(Verdict, IsolatedPodsGetNoErrorsAboutConnectionsThatThereAreNot) {
    node().pod.limits.isolation = {.by = cni::IsolateBy::group, .host = false, .outside = true};
    node().put_with(node().pod, INTERFACE_ISOLATED_GROUP);
    const ip_addr outside = ip("203.0.113.9");
    const Frame delivered = Ethernet{kPodMac, kHostMac} / Ipv4{outside, pod4()};
    const Bytes datagram = delivered / Udp{};
    const Bytes error = delivered / Icmp{.type = 3} / Frame(Ipv4{pod4(), outside}.layer()) / Udp{};
    constexpr std::uint32_t kNode = 0;
    const std::uint32_t uplink = node().unknown_ifindex;
    expect_arrivals(node(), {{datagram, uplink, REASON_RECEIVED_HOST},
                             {error, uplink, REASON_DROP_ISOLATION},
                             {datagram, kNode, REASON_DROP_ISOLATION},
                             {error, kNode, REASON_RECEIVED_HOST}});
}

TEST_F(Verdict, EveryReasonHasAPacket) {
    std::set<reason> produced{REASON_NONE, REASON_HOST_UNKNOWN_ENDPOINT}; // never counted
    const auto collect = [&](const Bytes &frame, How how = {}) {
        for (const Counted &counted : node().run(frame, how).counted)
            produced.insert(counted.why);
    };
    for (const auto &cases : {protocol_cases(), destination_cases(), source_cases(), detour_cases(), limit_cases(),
                              malformed_cases(), arp_cases(), nd_cases()})
        for (const Case &given : cases)
            collect(given.frame, given.run);
    for (const char *program : {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD})
        collect(from_pod() / to_peer4() / Udp{}, {.program = program, .ifindex = node().unknown_ifindex});
    collect(Ethernet{kPodMac, kHostMac} / Ipv4{peer4(), pod4()} / Udp{53, 40000}, {.program = PODLANE_PROGRAM_TO_POD});
    collect(from_pod() / to_peer4() / Udp{});
    for (const auto flag : {INTERFACE_FAST_LOCAL, INTERFACE_FIRST_DIRECT}) {
        node().pod.flags = kAllFlags & ~static_cast<std::uint32_t>(flag);
        node().put(node().pod);
        collect(from_pod() / to_peer4() / Udp{});
    }
    node().pod.flags = 0;
    node().put(node().pod);
    collect(from_pod() / Vlan{} / to_peer4() / Udp{});
    collect(Frame(Ethernet{kHostMac, kPodMac, 0x88cc}.layer()) / bytes(40));
    // Of networks with an egress route: source_test.
    for (const reason why : {REASON_SENT_SIBLING, REASON_HOST_UNKNOWN_PATH})
        produced.insert(why);
    node().pod.flags = kAllFlags;
    node().put(node().pod);
    node().confirm(from_pod() / to_peer4() / Tcp{});
    collect(from_pod() / to_peer4() / Tcp{});
    node().put_with(node().peer, INTERFACE_ISOLATED_GROUP); // and its groups are lost
    collect(from_pod() / to_peer4() / Tcp{.source = 40001, .flags = 2});
    for (const reason why : kUplinkReasons) // those of uplink_test and source_test
        produced.insert(why);
    for (const reason why : kLimitReasons) // those of limit_test
        produced.insert(why);
    produced.insert(REASON_HOST_IPSEC); // netns/ipsec_test: policies need a node
    for (int i = 0; i < REASON_COUNT; ++i)
        EXPECT_TRUE(produced.contains(static_cast<reason>(i))) << kReasons[i].name;
}

} // namespace
} // namespace podlane::packet
