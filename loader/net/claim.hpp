// SPDX-License-Identifier: MIT
// Claims of addresses in frames of ARP and neighbour discovery: bytes that others on the link send. No sockets.
#pragma once

#include "maps/ip.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace podlane::net {

struct Claim {
    ip_addr addr{};
    Mac mac{}; // of whoever has it
};

// The claim that a frame makes, whose Ethernet header is its first byte; the kernel has moved a VLAN tag out of it. Any
// bytes may be given, of any number: nothing behind them is read, and all fields are in network byte order. Bytes
// behind the packet (padding) are ignored. A frame claims an address if it is
//  - ARP between Ethernet and IPv4, a request or a reply: its sender has the address (RFC 5227, 2.1.1), and `mac` is
//    the sender's;
//  - a neighbour advertisement that hosts would believe (RFC 4861, 7.1.2): hop limit 255, which no router has lowered,
//  a
//    right checksum, options without a gap. Its target has an owner (RFC 4862, 5.4.4), and `mac` is where the frame
//    came from. Behind extension headers it counts as none.
std::optional<Claim> claim_in(std::span<const std::uint8_t> frame);
// The claim, if it is that of another station than `own`, and one of `addresses`.
std::optional<Claim> foreign_claim(std::span<const std::uint8_t> frame, const Mac &own,
                                   std::span<const ip_addr> addresses);

// Of an ICMPv6 message between two IPv6 addresses (RFC 4443, 2.3), in host byte order: 0 over a message whose
// checksum is right.
std::uint16_t icmp6_checksum(const ip_addr &source, const ip_addr &destination, std::span<const std::uint8_t> message);

} // namespace podlane::net
