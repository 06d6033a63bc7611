// SPDX-License-Identifier: MIT
// A frame as it arrives at a pod: what of a conversation it is.
#pragma once

#include "tests/netns/captured.hpp"
#include "tests/packet/model_reader.hpp"

#include <optional>
#include <string>
#include <utility>

namespace podlane::test {

using FragmentOf = std::pair<std::string, std::uint32_t>; // the sender's address, and the packet's identification

class ArrivedFrame : private packet::FrameReader {
  public:
    explicit ArrivedFrame(const Bytes &frame) : FrameReader(frame, false, 0) { read(); }

    [[nodiscard]] const ip_addr &source() const { return source_; }
    // ARP, and solicitations and advertisements that no router has forwarded.
    [[nodiscard]] bool is_of_link() const {
        return !tagged_ && (type_ == ETHERTYPE_ARP || (v6_ && has_transport(8) && protocol_ == IPPROTO_ICMPV6 &&
                                                       hops_ == 255 && (frame_[l4_] == 135 || frame_[l4_] == 136)));
    }
    // Of either ICMP in either family, as the programs count them.
    [[nodiscard]] bool is_error() const {
        if (!has_transport(8))
            return false;
        const std::uint8_t type = frame_[l4_];
        return protocol_ == IPPROTO_ICMPV6
                   ? type < 128
                   : protocol_ == IPPROTO_ICMP && (type == 3 || type == 4 || type == 5 || type == 11 || type == 12);
    }
    [[nodiscard]] bool is_datagram(const Endpoint &from, const Endpoint &to) const {
        return has_transport(4) && protocol_ == IPPROTO_UDP && source_ == from.addr && destination_ == to.addr &&
               word(l4_) == from.port && word(l4_ + 2) == to.port;
    }
    // Of a packet in fragments: whose it is.
    [[nodiscard]] std::optional<FragmentOf> fragment() const {
        if (!is_packet())
            return {};
        if (v4_)
            return (word(l3_ + 6) & 0x3fffU) != 0 ? std::optional(FragmentOf(to_string(source_), word(l3_ + 4)))
                                                  : std::nullopt;
        std::uint8_t header = frame_[l3_ + 6];
        for (std::size_t at = l3_ + 40; packet::is_extension(header) && has(at + 8);) {
            if (header == IPPROTO_FRAGMENT)
                return FragmentOf(to_string(source_), static_cast<std::uint32_t>(word(at + 4) << 16U | word(at + 6)));
            const std::size_t words = frame_[at + 1];
            const std::uint8_t next = frame_[at];
            at += header == IPPROTO_AH ? (words + 2) * 4 : (words + 1) * 8;
            header = next;
        }
        return {};
    }
    // It has no ports. The first one, which has, comes before it.
    [[nodiscard]] bool is_later_of(const ip_addr &to) const { return is_packet() && is_later() && destination_ == to; }
    // To `own`, about a datagram from there to `peer`.
    [[nodiscard]] bool is_error_about(const Endpoint &own, const Endpoint &peer) const {
        const std::size_t quoted = l4_ + 8;
        if (!is_error() || !(destination_ == own.addr) || !has(quoted + (v4_ ? 20 : 40)))
            return false;
        const std::size_t ports = quoted + (v4_ ? (frame_[quoted] & 15U) * std::size_t{4} : 40);
        return frame_[quoted + (v4_ ? 9 : 6)] == IPPROTO_UDP && has(ports + 4) &&
               address(quoted + (v4_ ? 12 : 8), v4_) == own.addr &&
               address(quoted + (v4_ ? 16 : 24), v4_) == peer.addr && word(ports) == own.port &&
               word(ports + 2) == peer.port;
    }

  private:
    [[nodiscard]] bool is_packet() const { return !tagged_ && (v4_ || v6_); }
    [[nodiscard]] bool is_later() const { return later_fragment_ || (v4_ && (word(l3_ + 6) & 0x1fffU) != 0); }
    [[nodiscard]] bool has_transport(std::size_t bytes) const {
        return is_packet() && !cut_ && !is_later() && has(l4_ + bytes);
    }
};

} // namespace podlane::test
