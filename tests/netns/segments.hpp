// SPDX-License-Identifier: MIT
// TCP segments by their numbers, in fragments, and behind IPv6 extension headers.
#pragma once

#include "tests/netns/sources.hpp"

namespace podlane::test {

inline constexpr std::uint8_t kFragment = 44;
inline constexpr std::uint8_t kDestinationOptions = 60;
inline constexpr std::uint8_t kAuthentication = 51;

// The upper half of the sequence number; the window makes up for it in the checksum.
inline void put_sequence(Packet &packet, std::uint32_t upper) {
    constexpr std::uint32_t kSum = 0x0102 + 0x2000; // as tcp() has made both
    const std::uint32_t window = (kSum + 0xffff - upper) % 0xffff;
    const auto put = [&](std::size_t at, std::uint32_t value) {
        packet.payload[at] = static_cast<std::uint8_t>(value >> 8U);
        packet.payload[at + 1] = static_cast<std::uint8_t>(value & 0xffU);
    };
    put(4, upper);
    put(14, window);
}

struct Numbers {
    std::uint32_t sequence;
    std::uint32_t ack;
};

inline void put_numbers(Packet &packet, const Numbers &numbers) {
    const std::uint32_t sequence = htonl(numbers.sequence), ack = htonl(numbers.ack);
    std::memcpy(&packet.payload[4], &sequence, sizeof sequence);
    std::memcpy(&packet.payload[8], &ack, sizeof ack);
    set_checksum(packet, 16);
}

// The sequence number after the last segment of this sender on the wire, and its acknowledgment.
inline Numbers last_numbers_from(const Wire &wire, const ip_addr &sender) {
    Numbers last{};
    for (const Bytes &one : wire.arrived()) {
        if (!is_from(one, sender))
            continue;
        const std::size_t header = is_ipv4(sender) ? 20 : 40;
        const Bytes packet = layer3(one);
        std::uint32_t sequence = 0, ack = 0;
        std::memcpy(&sequence, &packet.at(header + 4), sizeof sequence);
        std::memcpy(&ack, &packet.at(header + 8), sizeof ack);
        const std::size_t data = packet.size() - header - (packet.at(header + 12) >> 4U) * 4U;
        last = {ntohl(sequence) + static_cast<std::uint32_t>(data), ntohl(ack)};
    }
    return last;
}

// Part of the payload, as one fragment.
inline Packet fragment_of(const Packet &whole, std::size_t from, std::size_t bytes, bool is_ipv4) {
    Packet part = whole;
    const auto start = whole.payload.begin() + static_cast<std::ptrdiff_t>(from);
    const bool more = from + bytes < whole.payload.size();
    part.payload.assign(start, more ? start + static_cast<std::ptrdiff_t>(bytes) : whole.payload.end());
    if (is_ipv4) {
        part.fragment = static_cast<std::uint16_t>((more ? 0x2000U : 0U) | from / 8);
        return part;
    }
    part.extension = kFragment;
    part.options = {IPPROTO_TCP,
                    0,
                    static_cast<std::uint8_t>(from >> 8U),
                    static_cast<std::uint8_t>((from & 0xf8U) | (more ? 1U : 0U)),
                    0,
                    0,
                    0x42,
                    0x42};
    return part;
}

inline std::vector<Packet> fragments(const Packet &whole, std::size_t first, bool is_ipv4) {
    return {fragment_of(whole, 0, first, is_ipv4), fragment_of(whole, first, whole.payload.size() - first, is_ipv4)};
}

// One of a header that is 8 bytes long (authentication: 16) for each type, the last one names TCP.
inline Packet behind(const Packet &whole, const std::vector<std::uint8_t> &types) {
    Packet out = whole;
    out.extension = types.front();
    for (std::size_t i = 0; i < types.size(); ++i) {
        const bool authenticates = types[i] == kAuthentication;
        Bytes header(authenticates ? 16 : 8, 0);
        header[0] = i + 1 < types.size() ? types[i + 1] : std::uint8_t{IPPROTO_TCP};
        header[1] = authenticates ? 2 : 0;
        if (!authenticates) // PadN
            header[2] = 1, header[3] = 4;
        out.options.insert(out.options.end(), header.begin(), header.end());
    }
    return out;
}

} // namespace podlane::test
