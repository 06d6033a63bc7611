// SPDX-License-Identifier: MIT
#include "loader/net/claim.hpp"

#include <linux/if_ether.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace podlane::net {
namespace {

using FrameBytes = std::span<const std::uint8_t>;

constexpr std::size_t kMacBytes = 6;

std::uint16_t get16(FrameBytes bytes, std::size_t at) {
    return static_cast<std::uint16_t>(bytes[at] << 8U | bytes[at + 1]);
}
Mac mac_at(FrameBytes bytes, std::size_t at) {
    Mac mac{};
    std::ranges::copy(bytes.subspan(at, mac.size()), mac.begin());
    return mac;
}
ip_addr ipv6_at(FrameBytes bytes, std::size_t at) {
    return *addr_from_bytes(bytes.subspan(at, sizeof(ip_addr)).data(), sizeof(ip_addr));
}

// Other hardware has addresses of other lengths, and the sender's elsewhere. Like the kernel, takes Ethernet and IEEE
// 802.
std::optional<Claim> claim_in_arp(FrameBytes packet) {
    constexpr std::size_t kBytes = 28;
    constexpr std::size_t kOperation = 6;
    constexpr std::size_t kSenderMac = 8;
    constexpr std::size_t kSender = 14;
    if (packet.size() < kBytes)
        return std::nullopt;
    const std::uint16_t hardware = get16(packet, 0);
    const std::uint16_t operation = get16(packet, kOperation);
    if ((hardware != ARPHRD_ETHER && hardware != ARPHRD_IEEE802) || get16(packet, 2) != ETH_P_IP ||
        packet[4] != kMacBytes || packet[5] != sizeof(in_addr) ||
        (operation != ARPOP_REQUEST && operation != ARPOP_REPLY))
        return std::nullopt;
    const FrameBytes sender = packet.subspan(kSender, sizeof(in_addr));
    return Claim{*addr_from_bytes(sender.data(), sender.size()), mac_at(packet, kSenderMac)};
}

// Each has a type and its length, in units of 8 bytes.
bool are_options(FrameBytes options) {
    constexpr std::size_t kUnit = 8;
    while (!options.empty()) {
        const std::size_t bytes = options.size() < 2 ? 0 : options[1] * kUnit;
        if (bytes == 0 || bytes > options.size())
            return false;
        options = options.subspan(bytes);
    }
    return true;
}

bool is_multicast(const ip_addr &addr) { return (ntohl(addr.word[0]) >> 24U) == 0xff; }

// An IPv4 address in its mapped form is no target: nobody claims it but by ARP.
std::optional<ip_addr> target_of_advertisement(const ip_addr &source, const ip_addr &destination, FrameBytes message) {
    constexpr std::size_t kFlags = 4;
    constexpr std::size_t kTarget = 8;
    constexpr std::uint8_t kSolicited = 0x40;
    if (message.size() < sizeof(nd_neighbor_advert) || message[0] != ND_NEIGHBOR_ADVERT || message[1] != 0 ||
        (is_multicast(destination) && (message[kFlags] & kSolicited) != 0) ||
        !are_options(message.subspan(sizeof(nd_neighbor_advert))) || icmp6_checksum(source, destination, message) != 0)
        return std::nullopt;
    const ip_addr target = ipv6_at(message, kTarget);
    return is_multicast(target) || is_ipv4(target) ? std::nullopt : std::optional(target);
}

std::optional<ip_addr> target_in_ipv6(FrameBytes packet) {
    constexpr std::size_t kHeader = 40;
    constexpr std::size_t kPayload = 4;
    constexpr std::size_t kNextHeader = 6;
    constexpr std::size_t kHopLimit = 7;
    constexpr std::size_t kSource = 8;
    constexpr std::size_t kDestination = 24;
    constexpr std::uint8_t kFromTheLink = 255;
    if (packet.size() < kHeader || packet[0] >> 4U != 6 || packet[kNextHeader] != IPPROTO_ICMPV6 ||
        packet[kHopLimit] != kFromTheLink || get16(packet, kPayload) > packet.size() - kHeader)
        return std::nullopt;
    return target_of_advertisement(ipv6_at(packet, kSource), ipv6_at(packet, kDestination),
                                   packet.subspan(kHeader, get16(packet, kPayload)));
}

} // namespace

std::optional<Claim> claim_in(FrameBytes frame) {
    constexpr std::size_t kSourceMac = 6;
    constexpr std::size_t kType = 12;
    if (frame.size() < ETH_HLEN)
        return std::nullopt;
    const FrameBytes packet = frame.subspan(ETH_HLEN);
    if (get16(frame, kType) == ETH_P_ARP)
        return claim_in_arp(packet);
    const auto target = get16(frame, kType) == ETH_P_IPV6 ? target_in_ipv6(packet) : std::nullopt;
    return target ? std::optional(Claim{*target, mac_at(frame, kSourceMac)}) : std::nullopt;
}

std::optional<Claim> foreign_claim(FrameBytes frame, const Mac &own, std::span<const ip_addr> addresses) {
    const auto claim = claim_in(frame);
    const bool is_foreign = claim && claim->mac != own && std::ranges::find(addresses, claim->addr) != addresses.end();
    return is_foreign ? claim : std::nullopt;
}

std::uint16_t icmp6_checksum(const ip_addr &source, const ip_addr &destination, FrameBytes message) {
    std::uint64_t sum = message.size() + IPPROTO_ICMPV6;
    for (const ip_addr *addr : {&source, &destination})
        for (const std::uint32_t word : addr->word)
            sum += ntohl(word);
    for (std::size_t i = 0; i < message.size(); ++i)
        sum += i % 2 == 0 ? std::uint64_t{message[i]} << 8U : message[i];
    while (sum >> 16U != 0)
        sum = (sum & 0xffffU) + (sum >> 16U);
    return static_cast<std::uint16_t>(~sum);
}

} // namespace podlane::net
