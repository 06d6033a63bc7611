// SPDX-License-Identifier: MIT
// ARP and neighbour discovery as a pod sends them, and the reason each must end in.
#pragma once

#include "tests/packet/cases.hpp"

namespace podlane::packet {

inline Arp arp_request(const ip_addr &target) { return {1, kPodMac, pod4(), target}; }
inline Frame arp(const Arp &packet) { return Ethernet{kBroadcastMac, kPodMac} / packet; }

inline std::vector<Case> arp_cases() {
    constexpr reason kSpoofed = REASON_DROP_ARP_SPOOFED;
    constexpr reason kMalformed = REASON_DROP_MALFORMED;
    const Arp gateway = arp_request(gateway4());
    const auto with = [&](auto change) {
        Arp changed = gateway;
        change(changed);
        return arp(changed);
    };
    return {
        {"gateway", arp(gateway), REASON_GATEWAY_ARP},
        {"gateway, padded", arp(gateway) / bytes(18), REASON_GATEWAY_ARP},
        {"gateway, by unicast", from_pod() / gateway, REASON_GATEWAY_ARP},
        {"gateway, probed", with([](Arp &a) { a.sender = ip("0.0.0.0"); }), REASON_GATEWAY_ARP},
        {"the peer", arp(arp_request(peer4())), REASON_HOST_ARP},
        {"probe of its own address", arp({.sender_mac = kPodMac, .sender = ip("0.0.0.0"), .target = pod4()}),
         REASON_HOST_ARP},
        {"probe of the peer's address", arp({.sender_mac = kPodMac, .sender = ip("0.0.0.0"), .target = peer4()}),
         kSpoofed},
        {"reply without a sender",
         arp({.operation = 2, .sender_mac = kPodMac, .sender = ip("0.0.0.0"), .target = pod4()}), kSpoofed},
        {"announcement of its own address", arp(arp_request(pod4())), REASON_HOST_ARP},
        {"reply in its own name", with([](Arp &a) { a.operation = 2; }), REASON_HOST_ARP},
        {"operation 9", with([](Arp &a) { a.operation = 9; }), REASON_HOST_ARP},
        {"the peer's address", with([](Arp &a) { a.sender = peer4(); }), kSpoofed},
        {"the gateway's address", with([](Arp &a) { a.sender = gateway4(); }), kSpoofed},
        {"another MAC inside", with([](Arp &a) { a.sender_mac = kForeignMac; }), kSpoofed},
        {"reply in the peer's name", with([](Arp &a) { a.operation = 2, a.sender = peer4(); }), kSpoofed},
        {"probe with another MAC", with([](Arp &a) { a.sender_mac = kForeignMac, a.sender = ip("0.0.0.0"); }),
         kSpoofed},
        {"another MAC outside", Ethernet{kBroadcastMac, kForeignMac} / gateway, REASON_DROP_SOURCE_MAC},
        {"not of IPv4", with([](Arp &a) { a.protocol = 0x86dd; }), kMalformed},
        {"MACs of 8 bytes", with([](Arp &a) { a.hardware_size = 8; }), kMalformed},
        {"addresses of 16 bytes", with([](Arp &a) { a.protocol_size = 16; }), kMalformed},
        {"cut", cut(arp(gateway), 41), kMalformed},
    };
}

inline Ethernet to_all_nodes() { return {{0x33, 0x33, 0xff, 0xee, 0xee, 0xee}, kPodMac}; }
inline Frame nd(const ip_addr &from, const char *to = "ff02::1:ffee:eeee") {
    return to_all_nodes() / Ipv6{from, ip(to), 255};
}
inline Bytes own_option() { return nd_option(1, kPodMac); }

// RFC 4861, 4.4 and RFC 4443, 2.3: the checksum goes over addresses, length, protocol and message.
inline Bytes advertisement(const Ethernet &mac, const ip_addr &target, const ip_addr &asker, std::uint32_t flags) {
    Bytes message = Frame(Nd{136, target, flags}.layer()) / nd_option(2, mac.source);
    Bytes summed;
    append(summed, target);
    append(summed, asker);
    put32(summed, static_cast<std::uint32_t>(message.size()));
    put32(summed, IPPROTO_ICMPV6);
    append(summed, message);
    const std::uint16_t sum = checksum(summed);
    message[2] = static_cast<std::uint8_t>(sum >> 8U);
    message[3] = static_cast<std::uint8_t>(sum);
    return mac / Ipv6{target, asker, 255, IPPROTO_ICMPV6} / message;
}

inline std::vector<Case> nd_cases() {
    constexpr reason kSpoofed = REASON_DROP_ND_SPOOFED;
    constexpr reason kAnswered = REASON_GATEWAY_ND;
    constexpr reason kHost = REASON_HOST_ND;
    const ip_addr none = ip("::");
    const Nd solicit{135, gateway6()};
    const Extension more{IPPROTO_FRAGMENT, 1, 1};
    const Frame four = nd(pod6()) / solicit / own_option() / nd_option(14, {}) / nd_option(14, {}) / nd_option(14, {});
    return {
        {"gateway", nd(pod6()) / solicit / own_option(), kAnswered},
        {"gateway, by link-local", nd(pod_local()) / solicit / own_option(), kAnswered},
        {"gateway, without option", nd(pod6()) / solicit, kAnswered},
        {"gateway, by unicast", from_pod() / Ipv6{pod6(), gateway6(), 255} / solicit, kAnswered},
        {"gateway, an option of 16 bytes", nd(pod6()) / solicit / nd_option(14, {}, 2) / bytes(8) / own_option(),
         kAnswered},
        {"four options", four, kAnswered},
        {"five options", four / nd_option(14, {}), kSpoofed},
        {"foreign option", nd(pod6()) / solicit / nd_option(1, kForeignMac), kSpoofed},
        {"foreign target option", nd(pod6()) / solicit / nd_option(2, kForeignMac), kSpoofed},
        {"foreign second option", nd(pod6()) / solicit / own_option() / nd_option(1, kForeignMac), kSpoofed},
        {"option cut", nd(pod6()) / solicit / cut(own_option(), 7), kSpoofed},
        {"option of no length", nd(pod6()) / solicit / nd_option(1, kPodMac, 0), kSpoofed},
        {"message cut", cut(nd(pod6()) / solicit, 14 + 40 + 23), REASON_DROP_MALFORMED},
        {"message short", nd(pod6()) / icmp6(135) / bytes(15), REASON_DROP_MALFORMED},
        {"the peer", nd(pod6()) / Nd{135, peer6()} / own_option(), kHost},
        {"address detection of its own", nd(none) / Nd{135, pod6()}, kHost},
        {"address detection of its link-local", nd(none) / Nd{135, pod_local()}, kHost},
        {"address detection of the peer's", nd(none) / Nd{135, peer6()}, kSpoofed},
        {"address detection of the gateway's", nd(none) / Nd{135, gateway6()}, kSpoofed},
        {"solicitation of another", nd(peer6()) / solicit, REASON_DROP_SOURCE_ADDRESS},
        {"advertisement of its own", nd(pod6()) / Nd{136, pod6()} / nd_option(2, kPodMac), kHost},
        {"advertisement of the peer's", nd(pod6()) / Nd{136, peer6()} / nd_option(2, kPodMac), kSpoofed},
        {"advertisement of the gateway's", nd(pod6()) / Nd{136, gateway6()} / nd_option(2, kPodMac), kSpoofed},
        {"advertisement with another MAC", nd(pod6()) / Nd{136, pod6()} / nd_option(2, kForeignMac), kSpoofed},
        {"advertisement that a router has forwarded",
         to_all_nodes() / Ipv6{pod6(), peer6(), 254} / Nd{136, pod6()} / nd_option(2, kPodMac), REASON_HOST_L2},
        {"advertisement from nobody", nd(none) / Nd{136, pod6()}, REASON_DROP_SOURCE_ADDRESS},
        {"router solicitation", nd(pod_local()) / icmp6(133, 0) / own_option(), kHost},
        {"router solicitation from nobody", nd(none) / icmp6(133, 0), kHost},
        {"router solicitation with another MAC", nd(pod_local()) / icmp6(133, 0) / nd_option(1, kForeignMac), kSpoofed},
        {"router advertisement", nd(pod_local()) / icmp6(134) / bytes(8), kSpoofed},
        {"redirect", nd(pod_local()) / Nd{137, peer6()} / bytes(16), kSpoofed},
        {"first fragment of a solicitation", nd(pod6()) / more / solicit / own_option(), kSpoofed},
        {"first fragment of router solicitation", nd(pod_local()) / more / icmp6(133, 0) / own_option(), kSpoofed},
        {"first fragment without the message", nd(pod6()) / more / Extension{60, 1, 0, 58}, kSpoofed},
        {"first fragment that ends before an extension header", nd(pod6()) / more / Extension{60, 1, 0, 60}, kSpoofed},
        {"first fragment of an echo", from_pod() / to_peer6() / more / icmp6(128) / bytes(64), REASON_HOST_FRAGMENT},
        {"listener report from nobody", nd(none) / Extension{} / icmp6(143), REASON_HOST_OPTIONS},
        {"old listener report from nobody", nd(none) / Extension{} / icmp6(131), REASON_HOST_OPTIONS},
        {"listener query from nobody", nd(none) / Extension{} / icmp6(130), REASON_DROP_SOURCE_ADDRESS},
        {"listener report", nd(pod_local(), "ff02::16") / Extension{} / icmp6(143), REASON_HOST_OPTIONS},
    };
}

} // namespace podlane::packet
