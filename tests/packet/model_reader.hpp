// SPDX-License-Identifier: MIT
// The headers of a frame as a receiver reads them. It shares no code with the programs.
#pragma once

#include "tests/packet/model_promise.hpp"

namespace podlane::packet {

class FrameReader {
  protected:
    // `is_pod`: not from the link of an uplink. `segment`: bytes of data in each segment, if the frame is of GSO.
    FrameReader(const Bytes &frame, bool is_pod, std::size_t segment)
        : frame_(frame), segment_(segment), is_pod_(is_pod) {}

    // Through any tags, as a receiver that strips them reads it.
    void read() {
        type_ = word(12);
        l3_ = 14;
        while (is_tag(type_) && has(l3_ + 4)) {
            tagged_ = true;
            type_ = word(l3_ + 2);
            l3_ += 4;
        }
        if (type_ == 0x0800 && has(l3_ + 20))
            read_ipv4();
        if (type_ == 0x86dd && has(l3_ + 40))
            read_ipv6();
    }
    void read_ipv4() {
        v4_ = true;
        const unsigned header = (frame_[l3_] & 15U) * 4;
        const std::size_t length = word(l3_ + 2);
        source_ = address(l3_ + 12, true);
        destination_ = address(l3_ + 16, true);
        protocol_ = frame_[l3_ + 9];
        hops_ = frame_[l3_ + 8];
        well_formed_ = frame_[l3_] >> 4U == 4 && header >= 20 && length >= header && has(l3_ + length);
        plain_ = well_formed_ && header == 20 && (word(l3_ + 6) & 0x3fffU) == 0 &&
                 is_counted(l3_ + length, length > 20) &&
                 (!is_pod_ || header_error() == 0); // a network card checks what arrives
        l4_ = l3_ + header;
    }
    void read_ipv6() {
        v6_ = true;
        source_ = address(l3_ + 8, false);
        destination_ = address(l3_ + 24, false);
        hops_ = frame_[l3_ + 7];
        const std::size_t length = word(l3_ + 4);
        well_formed_ = frame_[l3_] >> 4U == 6 && has(l3_ + 40 + length) && !is_ipv4(source_) && !is_ipv4(destination_);
        plain_ = well_formed_ && is_counted(l3_ + 40 + length, length > 0);
        protocol_ = frame_[l3_ + 6];
        l4_ = l3_ + 40;
        for (; is_extension(protocol_); ++extensions_) {
            plain_ = false;
            if (!has(l4_ + 8)) { // none is shorter
                cut_ = true;
                return;
            }
            later_fragment_ |= protocol_ == IPPROTO_FRAGMENT && (word(l4_ + 2) & 0xfff8U) != 0;
            first_fragment_ |= protocol_ == IPPROTO_FRAGMENT && (word(l4_ + 2) & 0xfff8U) == 0;
            const std::uint8_t next = frame_[l4_];
            l4_ += protocol_ == IPPROTO_FRAGMENT ? 8U
                   : protocol_ == IPPROTO_AH     ? (frame_[l4_ + 1] + 2U) * 4
                                                 : (frame_[l4_ + 1] + 1U) * 8;
            protocol_ = next;
        }
    }

    // Whether the IP packet, if there is one, ends with the frame, or with padding, which only a link adds.
    bool is_counted(std::size_t end, bool has_payload) {
        end_ = end;
        return frame_.size() == end || (!is_pod_ && segment_ == 0 && has_payload);
    }
    [[nodiscard]] std::uint16_t word(std::size_t at) const {
        return static_cast<std::uint16_t>(frame_[at] << 8U | frame_[at + 1]);
    }
    [[nodiscard]] bool has(std::size_t bytes) const { return frame_.size() >= bytes; }
    [[nodiscard]] ip_addr address(std::size_t at, bool v4) const {
        ip_addr addr{};
        auto *to = reinterpret_cast<std::uint8_t *>(addr.word);
        if (v4)
            to[10] = to[11] = 0xff;
        std::copy_n(frame_.begin() + static_cast<std::ptrdiff_t>(at), v4 ? 4 : 16, to + (v4 ? 12 : 0));
        return addr;
    }
    [[nodiscard]] std::uint16_t header_error() const { return checksum(std::span(frame_).subspan(l3_, 20)); }

    const Bytes &frame_;
    const std::size_t segment_;
    const bool is_pod_;
    std::size_t sum_start_ = 0; // 0: no checksum is left
    std::size_t sum_at_ = 0;
    std::uint16_t type_ = 0;
    std::size_t l3_ = 14;
    std::size_t l4_ = 14;
    bool tagged_ = false;
    bool v4_ = false;
    bool v6_ = false;
    bool well_formed_ = false; // a host would take it
    bool plain_ = false;       // and nothing about it is unusual
    std::size_t end_ = 0;      // of the IP packet: Ethernet pads small ones
    bool later_fragment_ = false;
    bool first_fragment_ = false;
    bool cut_ = false;
    unsigned extensions_ = 0;
    ip_addr source_{};
    ip_addr destination_{};
    std::uint8_t protocol_ = 0;
    std::uint8_t hops_ = 0;
};

} // namespace podlane::packet
