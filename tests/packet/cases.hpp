// SPDX-License-Identifier: MIT
// One packet a line and the reason it must end in: the tables of from_pod.
#pragma once

#include "tests/packet/run.hpp"

#include <limits>

namespace podlane::packet {

struct Case {
    const char *name;
    Bytes frame;
    reason why;
    How run{};
};

// Counted once where it enters, and at `receiver` if an uplink's program delivers it there.
inline Outcome expect_case(Node &node, const Case &given, std::uint32_t receiver) {
    SCOPED_TRACE(given.name);
    const Outcome outcome = node.run(given.frame, given.run);
    std::vector<Counted> expected{
        {given.run.ifindex == 0 ? node.pod.ifindex : given.run.ifindex, given.why, 1, outcome.frame.size()}};
    if (given.why == REASON_UPLINK_DELIVERED)
        expected.push_back({receiver, REASON_RECEIVED_UPLINK, 1, outcome.frame.size()});
    std::ranges::sort(expected, {}, &Counted::ifindex);
    EXPECT_EQ(outcome.counted, expected);
    EXPECT_EQ(outcome.verdict, given.why == REASON_UPLINK_SENT ? kNext : verdict_of(given.why));
    return outcome;
}

// Limits and times of tests about them.
inline constexpr std::uint64_t kMs = 1000000;
inline constexpr std::uint64_t kRate = 12112000; // a full frame takes 1 ms
inline constexpr std::uint64_t kAuto = 0x7fffffff;
inline constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

// Reasons of packets to and from other nodes only.
inline constexpr std::array kUplinkReasons = {REASON_SENT_UPLINK, REASON_RECEIVED_UPLINK, REASON_UPLINK_DELIVERED,
                                              REASON_UPLINK_SENT, REASON_UPLINK_SENT_HOST, REASON_HOST_NO_ROUTE,
                                              REASON_HOST_NO_UPLINK, REASON_HOST_SOURCE_LOCAL, REASON_HOST_NO_NEIGHBOUR,
                                              REASON_SENT_WAY, REASON_UPLINK_ARP, REASON_UPLINK_ND,
                                              // attack_reset_test
                                              REASON_DROP_FORGED_END, REASON_DROP_HIDDEN_HEADER};

// Reasons of packets of limited endpoints only.
inline constexpr std::array kLimitReasons = {REASON_DROP_EGRESS_LIMIT, REASON_DROP_INGRESS_LIMIT};

inline Ethernet from_pod() { return {kHostMac, kPodMac}; }
inline ip_addr pod4() { return ip("192.0.2.10"); }
inline ip_addr pod6() { return ip("2001:db8::10"); }
inline ip_addr pod_local() { return link_local_from_mac(kPodMac); }
inline ip_addr peer4() { return ip("192.0.2.20"); }
inline ip_addr peer6() { return ip("2001:db8::20"); }
// With whatever else of its header is not as usual.
inline Ipv4 to_peer4(Ipv4 header = {}) {
    header.source = pod4();
    header.destination = peer4();
    return header;
}
inline Ipv6 to_peer6(Ipv6 header = {}) {
    header.source = pod6();
    header.destination = peer6();
    return header;
}
inline Frame ip4(const char *from, const char *to) { return from_pod() / Ipv4{ip(from), ip(to)} / Udp{}; }
inline Frame ip6(const char *from, const char *to) { return from_pod() / Ipv6{ip(from), ip(to)} / Udp{}; }
inline Bytes cut(Bytes frame, std::size_t length) {
    frame.resize(length);
    return frame;
}

inline std::vector<Case> protocol_cases() {
    constexpr reason kDirect = REASON_SENT_DIRECT;
    const Frame quoted(Ipv4{peer4(), pod4()}.layer());
    return {
        {"tcp4 syn", from_pod() / to_peer4() / Tcp{}, kDirect},
        {"tcp6 syn", from_pod() / to_peer6() / Tcp{}, kDirect},
        {"udp4", from_pod() / to_peer4() / Udp{} / bytes(100), kDirect},
        {"udp6", from_pod() / to_peer6() / Udp{} / bytes(100), kDirect},
        // conntrack cannot be queried about anything else
        {"sctp4", from_pod() / to_peer4() / Udp{.protocol = IPPROTO_SCTP} / bytes(8), REASON_HOST_UNCONFIRMED},
        {"sctp6", from_pod() / to_peer6() / Udp{.protocol = IPPROTO_SCTP} / bytes(8), REASON_HOST_UNCONFIRMED},
        {"echo4", from_pod() / to_peer4() / Icmp{}, REASON_HOST_UNCONFIRMED},
        {"echo6", from_pod() / to_peer6() / icmp6(128), REASON_HOST_UNCONFIRMED},
        {"echo reply 6", from_pod() / to_peer6() / icmp6(129), REASON_HOST_UNCONFIRMED},
        {"gre4", from_pod() / to_peer4({.protocol = 47}) / bytes(20), REASON_HOST_UNCONFIRMED},
        {"esp6", from_pod() / to_peer6({.next = 50}) / bytes(20), REASON_HOST_UNCONFIRMED},
        {"ip4 without payload", from_pod() / to_peer4(), REASON_HOST_UNCONFIRMED},
        {"ip4 padded by Ethernet", from_pod() / to_peer4({.length_error = -20}) / Udp{} / bytes(20),
         REASON_HOST_LENGTH},
        {"ip4 checksum wrong", from_pod() / to_peer4({.checksum_error = 1}) / Udp{}, REASON_HOST_CHECKSUM},
        {"tcp4 synack", from_pod() / to_peer4() / Tcp{.flags = kSyn | kAck}, kDirect},
        {"tcp4 ack", from_pod() / to_peer4() / Tcp{.flags = kAck}, kDirect},
        {"tcp6 ack", from_pod() / to_peer6() / Tcp{.flags = kAck}, kDirect},
        {"tcp4 cut", from_pod() / to_peer4({.protocol = 6}) / bytes(13), REASON_HOST_NO_FLOW},
        {"udp6 cut", from_pod() / to_peer6({.next = 17}) / bytes(3), REASON_HOST_NO_FLOW},
        {"icmp4 cut", from_pod() / to_peer4({.protocol = 1}) / bytes(7), REASON_HOST_NO_FLOW},
        {"icmp4 error quoting nothing", from_pod() / to_peer4() / Icmp{.type = 3}, REASON_HOST_NO_FLOW},
        {"icmp6 error quoting nothing", from_pod() / to_peer6() / icmp6(1), REASON_HOST_NO_FLOW},
        {"icmp4 error", from_pod() / to_peer4() / Icmp{.type = 3} / quoted / Udp{}, kDirect},
        {"icmp4 redirect", from_pod() / to_peer4() / Icmp{.type = 5} / quoted / Udp{}, kDirect},
        {"icmp4 time exceeded", from_pod() / to_peer4() / Icmp{.type = 11} / quoted / Udp{}, kDirect},
        {"icmp4 parameter problem", from_pod() / to_peer4() / Icmp{.type = 12} / quoted / Udp{}, kDirect},
        {"icmp4 error of an echo", from_pod() / to_peer4() / Icmp{.type = 3} / quoted / Icmp{},
         REASON_HOST_UNCONFIRMED},
        {"icmp4 error to another host than the sender of what it quotes",
         from_pod() / Ipv4{pod4(), ip("198.51.100.1")} / Icmp{.type = 3} / quoted / Udp{}, REASON_HOST_NOT_LOCAL},
        {"icmp6 error", from_pod() / to_peer6() / icmp6(2) / Frame(Ipv6{peer6(), pod6()}.layer()) / Udp{}, kDirect},
    };
}

inline std::vector<Case> destination_cases() {
    constexpr reason kElsewhere = REASON_HOST_NOT_LOCAL;
    return {
        {"elsewhere4", ip4("192.0.2.10", "198.51.100.1"), kElsewhere},
        {"elsewhere6", ip6("2001:db8::10", "2001:db8:1::1"), kElsewhere},
        {"another network's 4", ip4("192.0.2.10", "192.0.2.30"), kElsewhere},
        {"another network's 6", ip6("2001:db8::10", "2001:db8::30"), kElsewhere},
        {"multicast4", ip4("192.0.2.10", "224.0.0.1"), kElsewhere},
        {"multicast6", ip6("2001:db8::10", "ff02::1"), kElsewhere},
        {"broadcast4", ip4("192.0.2.10", "255.255.255.255"), kElsewhere},
        {"any4", ip4("192.0.2.10", "0.0.0.0"), kElsewhere},
        {"any6", ip6("2001:db8::10", "::"), kElsewhere},
        {"gateway4", ip4("192.0.2.10", "169.254.1.1"), kElsewhere},
        {"gateway6", ip6("2001:db8::10", "fe80::ecee:eeff:feee:eeee"), kElsewhere},
        {"itself4", ip4("192.0.2.10", "192.0.2.10"), REASON_HOST_SELF},
        {"itself6", ip6("2001:db8::10", "2001:db8::10"), REASON_HOST_SELF},
        {"another MAC 4", Ethernet{kForeignMac, kPodMac} / to_peer4() / Udp{}, REASON_HOST_L2},
        {"another MAC 6", Ethernet{kForeignMac, kPodMac} / to_peer6() / Udp{}, REASON_HOST_L2},
        {"unicast in a broadcast", Ethernet{kBroadcastMac, kPodMac} / to_peer4() / Udp{}, REASON_HOST_L2},
        {"no address yet: DHCP", Ethernet{kBroadcastMac, kPodMac} / Ipv4{ip("0.0.0.0"), ip("255.255.255.255")} / Udp{},
         REASON_DROP_SOURCE_ADDRESS},
        {"own link-local as source", from_pod() / Ipv6{pod_local(), peer6()} / Udp{}, REASON_HOST_SCOPE},
        {"report from nobody to a pod", from_pod() / Ipv6{ip("::"), peer6()} / icmp6(143), REASON_HOST_SCOPE},
    };
}

inline std::vector<Case> source_cases() {
    constexpr reason kSource = REASON_DROP_SOURCE_ADDRESS;
    return {
        {"source MAC 4", Ethernet{kHostMac, kForeignMac} / to_peer4() / Udp{}, REASON_DROP_SOURCE_MAC},
        {"source MAC 6", Ethernet{kHostMac, kForeignMac} / to_peer6() / Udp{}, REASON_DROP_SOURCE_MAC},
        {"source MAC of no protocol", Frame(Ethernet{kHostMac, kForeignMac, 0x88cc}.layer()) / bytes(40),
         REASON_DROP_SOURCE_MAC},
        {"source MAC in a VLAN", Ethernet{kHostMac, kForeignMac} / Vlan{} / to_peer4() / Udp{}, REASON_DROP_SOURCE_MAC},
        {"the peer's 4", ip4("192.0.2.20", "192.0.2.20"), kSource},
        {"the peer's 6", ip6("2001:db8::20", "2001:db8::20"), kSource},
        {"the gateway's 4", ip4("169.254.1.1", "192.0.2.20"), kSource},
        {"the gateway's 6", ip6("fe80::ecee:eeff:feee:eeee", "2001:db8::20"), kSource},
        {"another's link-local", ip6("fe80::1", "2001:db8::20"), kSource},
        {"none 4", ip4("0.0.0.0", "192.0.2.20"), kSource},
        {"none 6", ip6("::", "2001:db8::20"), kSource},
        {"loopback 4", ip4("127.0.0.1", "192.0.2.20"), kSource},
        {"loopback 6", ip6("::1", "2001:db8::20"), kSource},
        {"multicast 4", ip4("224.0.0.1", "192.0.2.20"), kSource},
        {"multicast 6", ip6("ff02::1", "2001:db8::20"), kSource},
        {"spoofed later fragment",
         from_pod() / Ipv4{.source = peer4(), .destination = peer4(), .fragment = 100} / bytes(40), kSource},
        {"spoofed with options",
         from_pod() / Ipv4{.source = peer4(), .destination = peer4(), .options = bytes(4, 1)} / Udp{}, kSource},
        {"spoofed behind extensions",
         from_pod() / Ipv6{peer6(), peer6()} / Extension{} / Extension{IPPROTO_DSTOPTS} / Udp{}, kSource},
        {"spoofed advertisement behind an extension", from_pod() / to_peer6() / Extension{} / Nd{136, peer6()},
         REASON_DROP_ND_SPOOFED},
    };
}

inline std::vector<Case> detour_cases() {
    constexpr reason kOptions = REASON_HOST_OPTIONS;
    constexpr reason kFragment = REASON_HOST_FRAGMENT;
    constexpr reason kLength = REASON_HOST_LENGTH;
    const auto ext = [](std::uint8_t type, std::uint8_t units = 1) { return Extension{type, units}; };
    return {
        {"VLAN", from_pod() / Vlan{} / to_peer4() / Udp{}, REASON_DROP_VLAN},
        {"VLAN 802.1ad", from_pod() / Vlan{5, 0x88a8} / to_peer6() / Udp{}, REASON_DROP_VLAN},
        {"LLDP", Frame(Ethernet{kHostMac, kPodMac, 0x88cc}.layer()) / bytes(40), REASON_DROP_ETHER_TYPE},
        {"802.3 length", Frame(Ethernet{kHostMac, kPodMac, 40}.layer()) / bytes(40), REASON_DROP_ETHER_TYPE},
        {"nothing behind Ethernet", Frame(Ethernet{kHostMac, kPodMac, 0x88cc}.layer()) / bytes(1),
         REASON_DROP_ETHER_TYPE},
        {"first fragment 4", from_pod() / to_peer4({.fragment = 0x2000}) / Udp{}, kFragment},
        {"later fragment 4", from_pod() / to_peer4({.fragment = 9}) / bytes(40), kFragment},
        {"first fragment 6", from_pod() / to_peer6() / Extension{44, 1, 1} / Udp{}, kFragment},
        {"later fragment 6", from_pod() / to_peer6() / Extension{44, 1, 0x0040, IPPROTO_UDP} / bytes(40), kFragment},
        {"atomic fragment 6", from_pod() / to_peer6() / Extension{44} / Udp{}, kFragment},
        {"router alert", from_pod() / to_peer4({.options = {0x94, 4, 0, 0}}) / Udp{}, kOptions},
        {"all the options", from_pod() / to_peer4({.options = bytes(40, 1)}) / Udp{}, kOptions},
        {"hop-by-hop", from_pod() / to_peer6() / ext(0) / Udp{}, kOptions},
        {"routing", from_pod() / to_peer6() / ext(43, 3) / Udp{}, kOptions},
        {"destination options", from_pod() / to_peer6() / ext(60, 2) / Udp{}, kOptions},
        {"three headers", from_pod() / to_peer6() / ext(0) / ext(43) / ext(60) / Udp{}, kOptions},
        {"four headers", from_pod() / to_peer6() / ext(0) / ext(60) / ext(43) / ext(60) / Udp{}, kOptions},
        {"nine headers",
         from_pod() / to_peer6() / ext(0) / ext(60) / ext(60) / ext(60) / ext(60) / ext(60) / ext(60) / ext(60) /
             ext(60) / Udp{},
         REASON_DROP_ND_SPOOFED},
        {"header past the end", from_pod() / to_peer6() / Extension{.next = 60} / bytes(0), kOptions},
        {"length 4 beyond the frame", from_pod() / to_peer4({.length_error = 1}) / Udp{}, kLength},
        {"length 6 beyond the frame", from_pod() / to_peer6({.length_error = 1}) / Udp{}, kLength},
        {"length 4 within the header", from_pod() / to_peer4({.length_error = -9}) / Udp{}, kLength},
        {"length 4 zero", from_pod() / to_peer4({.length_error = -28}) / Udp{}, kLength},
    };
}

inline std::vector<Case> limit_cases() {
    const auto ttl4 = [](std::uint8_t ttl) { return from_pod() / Ipv4{pod4(), peer4(), ttl} / Udp{}; };
    const auto ttl6 = [](std::uint8_t hops) { return from_pod() / Ipv6{pod6(), peer6(), hops} / Udp{}; };
    const auto long4 = [](std::size_t size) { return from_pod() / to_peer4() / Udp{} / bytes(size - 28); };
    const auto long6 = [](std::size_t size) { return from_pod() / to_peer6() / Udp{} / bytes(size - 48); };
    const Bytes tcp4 = from_pod() / to_peer4() / Tcp{} / bytes(2900);
    const Bytes tcp4_options = from_pod() / to_peer4() / Tcp{.options = bytes(12, 1)} / bytes(2900);
    const Bytes tcp6 = from_pod() / to_peer6() / Tcp{} / bytes(2900);
    const Bytes udp4 = from_pod() / to_peer4() / Udp{} / bytes(2900);
    const Bytes other = from_pod() / to_peer4({.protocol = 47}) / bytes(2900);
    const Bytes no_length4 = from_pod() / to_peer4({.length_error = -2940}) / Tcp{} / bytes(2900);
    const auto gso = [](std::uint32_t size) { return How{.gso_size = size, .gso_segments = 3}; };
    return {
        {"ttl 0", ttl4(0), REASON_HOST_TTL},
        {"ttl 1", ttl4(1), REASON_HOST_TTL},
        {"ttl 2", ttl4(2), REASON_SENT_DIRECT},
        {"ttl 255", ttl4(255), REASON_SENT_DIRECT},
        {"hop limit 0", ttl6(0), REASON_HOST_TTL},
        {"hop limit 1", ttl6(1), REASON_HOST_TTL},
        {"hop limit 2", ttl6(2), REASON_SENT_DIRECT},
        {"hop limit 255", ttl6(255), REASON_SENT_DIRECT},
        {"mtu 4", long4(kMtu), REASON_SENT_DIRECT},
        {"mtu 4 and one", long4(kMtu + 1), REASON_HOST_MTU},
        {"mtu 6", long6(kMtu), REASON_SENT_DIRECT},
        {"mtu 6 and one", long6(kMtu + 1), REASON_HOST_MTU},
        {"tcp4 segments of mtu", tcp4, REASON_SENT_DIRECT, gso(kMtu - 40)},
        {"tcp4 segments of mtu and one", tcp4, REASON_HOST_MTU, gso(kMtu - 39)},
        {"tcp4 with options, segments of mtu", tcp4_options, REASON_SENT_DIRECT, gso(kMtu - 52)},
        {"tcp4 with options, segments of mtu and one", tcp4_options, REASON_HOST_MTU, gso(kMtu - 51)},
        {"tcp6 segments of mtu", tcp6, REASON_SENT_DIRECT, gso(kMtu - 60)},
        {"tcp6 segments of mtu and one", tcp6, REASON_HOST_MTU, gso(kMtu - 59)},
        {"udp4 segments of mtu", udp4, REASON_SENT_DIRECT, gso(kMtu - 28)},
        {"udp4 segments of mtu and one", udp4, REASON_HOST_MTU, gso(kMtu - 27)},
        {"segments of a protocol not known", other, REASON_HOST_MTU, gso(100)},
        {"a length of 0 in a GSO packet of less than 64 KiB", no_length4, REASON_HOST_LENGTH, gso(1000)},
    };
}

// Test runs refuse IP headers that are cut short (6.18): those are left to tests on the wire.
inline std::vector<Case> malformed_cases() {
    constexpr reason kMalformed = REASON_DROP_MALFORMED;
    return {
        {"version 4", from_pod() / to_peer4({.version = 6}) / Udp{}, kMalformed},
        {"version 6", from_pod() / to_peer6({.version = 4}) / Udp{}, kMalformed},
        {"header of 16 bytes", from_pod() / to_peer4({.ihl = 4}) / Udp{}, kMalformed},
        {"header of none", from_pod() / to_peer4({.ihl = 0}) / Udp{}, kMalformed},
    };
}

} // namespace podlane::packet
