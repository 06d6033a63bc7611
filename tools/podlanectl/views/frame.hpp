// SPDX-License-Identifier: MIT
// Ethernet frames: built for explain, and parsed into addresses and ports.
#pragma once

#include "maps/ip.hpp"
#include "maps/map.hpp"
#include "maps/result.hpp"

#include <netinet/tcp.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace podlane::ctl {

// The packet to build. Ports in host order; for ICMP echo the source port is the identifier.
struct Question {
    Mac to_mac{};
    Mac from_mac{};
    ip_addr source{};
    ip_addr destination{};
    std::uint8_t protocol = 0; // IPPROTO_TCP, UDP, or ICMP of the family (an echo request)
    std::uint16_t source_port = 0;
    std::uint16_t destination_port = 0;
    std::uint8_t tcp_flags = TH_SYN;
    std::uint32_t ip_bytes = 0; // size of the IP packet; 0: the smallest possible
};
// With correct lengths and checksums. An error if `ip_bytes` is too small or too large.
Result<Bytes> build_frame(const Question &question);

// "0000 5e00 …", spaces and colons ignored.
Result<Bytes> frame_from_hex(std::string_view hex);

// Addresses and ports, as far as the captured bytes reach. Ports in network order.
struct FrameFacts {
    std::uint16_t ethertype = 0;
    bool is_ip = false;
    ip_addr source{};
    ip_addr destination{};
    std::uint8_t protocol = 0;
    std::uint16_t source_port = 0;
    std::uint16_t destination_port = 0;
};
FrameFacts read_frame(std::span<const std::uint8_t> frame);
// "tcp 192.0.2.1:40000 > 192.0.2.2:80", "arp", "ethertype 0x88cc".
std::string frame_words(const FrameFacts &facts);

} // namespace podlane::ctl
