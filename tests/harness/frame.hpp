// SPDX-License-Identifier: MIT
// Frames as values: Ethernet{} / Ipv4{...} / Tcp{...} / bytes(20). Lengths, types and the IPv4 checksum follow from the
// layers unless a layer says otherwise; transport checksums are 0 (harness/wire.hpp makes packets that have them).
#pragma once

#include "maps/ip.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace podlane::frames {

using Bytes = std::vector<std::uint8_t>;

inline Bytes bytes(std::size_t count, std::uint8_t value = 0) { return Bytes(count, value); }
inline void put16(Bytes &out, std::size_t value) {
    out.insert(out.end(), {static_cast<std::uint8_t>(value >> 8U), static_cast<std::uint8_t>(value)});
}
inline void put32(Bytes &out, std::uint32_t value) {
    put16(out, value >> 16U);
    put16(out, value & 0xffffU);
}
inline void append(Bytes &out, std::span<const std::uint8_t> more) { out.insert(out.end(), more.begin(), more.end()); }
inline void append(Bytes &out, const ip_addr &addr) {
    const auto *first = reinterpret_cast<const std::uint8_t *>(addr.word);
    out.insert(out.end(), first + (is_ipv4(addr) ? 12 : 0), first + 16);
}
// For comparisons that people can read.
inline std::string hex(std::span<const std::uint8_t> of) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < of.size(); ++i) {
        text += i == 0 ? "" : i % 16 == 0 ? "\n" : " ";
        text += kDigits[of[i] >> 4U];
        text += kDigits[of[i] & 15U];
    }
    return text;
}
inline ip_addr ip(const char *text) { return *parse_ip(text); }
inline Mac mac(const char *text) { return *parse_mac(text); }

// The internet checksum (RFC 1071), as it is to be written: 0 over bytes that hold their own.
inline std::uint16_t checksum(std::span<const std::uint8_t> of, std::uint32_t start = 0) {
    std::uint32_t sum = start;
    for (std::size_t i = 0; i < of.size(); ++i)
        sum += i % 2 == 0 ? std::uint32_t{of[i]} << 8U : of[i];
    while (sum >> 16U != 0)
        sum = (sum & 0xffffU) + (sum >> 16U);
    return static_cast<std::uint16_t>(~sum);
}

// One header: what names it in the layer below, and its bytes in front of the `rest` bytes of the layers above.
struct Layer {
    std::uint16_t ethertype = 0;
    std::uint8_t protocol = IPPROTO_NONE;
    std::function<Bytes(const Layer *above, std::size_t rest)> write;
};

class Frame {
  public:
    Frame(Layer layer) : layers_{std::move(layer)} {}
    Frame operator/(const Layer &layer) const {
        Frame longer = *this;
        longer.layers_.push_back(layer);
        return longer;
    }
    Frame operator/(const Frame &above) const {
        Frame longer = *this;
        longer.layers_.insert(longer.layers_.end(), above.layers_.begin(), above.layers_.end());
        return longer;
    }
    Frame operator/(Bytes payload) const {
        return *this / Layer{0, IPPROTO_NONE, [payload](const Layer *, std::size_t) { return payload; }};
    }
    operator Bytes() const {
        Bytes all;
        for (std::size_t i = layers_.size(); i-- > 0;) {
            Bytes longer = layers_[i].write(i + 1 < layers_.size() ? &layers_[i + 1] : nullptr, all.size());
            append(longer, all);
            all = std::move(longer);
        }
        return all;
    }

  private:
    std::vector<Layer> layers_;
};

// A header's struct turns into a frame of one layer.
template <typename Header>
concept AHeader = requires(const Header &header) {
    header.layer();
};
template <AHeader Below, typename Above> Frame operator/(const Below &below, const Above &above) {
    return Frame(below.layer()) / above;
}
template <AHeader Above> Frame operator/(const Frame &below, const Above &above) { return below / above.layer(); }

struct Ethernet {
    Mac destination;
    Mac source;
    std::optional<std::uint16_t> type{};

    [[nodiscard]] Layer layer() const {
        return {0, IPPROTO_NONE, [h = *this](const Layer *above, std::size_t) {
                    Bytes out;
                    append(out, h.destination);
                    append(out, h.source);
                    put16(out, h.type.value_or(above == nullptr ? 0 : above->ethertype));
                    return out;
                }};
    }
};

struct Vlan {
    std::uint16_t id = 1;
    std::uint16_t tag_type = 0x8100;

    [[nodiscard]] Layer layer() const {
        return {tag_type, IPPROTO_NONE, [h = *this](const Layer *above, std::size_t) {
                    Bytes out;
                    put16(out, h.id);
                    put16(out, above == nullptr ? 0 : above->ethertype);
                    return out;
                }};
    }
};

struct Ipv4 {
    ip_addr source{};
    ip_addr destination{};
    std::uint8_t ttl = 64;
    std::optional<std::uint8_t> protocol{};
    std::uint16_t fragment = 0x4000; // flags and offset: do not fragment
    Bytes options{};
    int length_error = 0;
    std::uint8_t version = 4;
    std::optional<std::uint8_t> ihl{};
    std::uint16_t checksum_error = 0;
    std::uint8_t traffic_class = 0;
    std::uint16_t id = 0x1234;
    std::optional<std::uint16_t> sum{};

    [[nodiscard]] Layer layer() const {
        return {0x0800, IPPROTO_IPIP, [h = *this](const Layer *above, std::size_t rest) {
                    const std::size_t header = 20 + h.options.size();
                    Bytes out{static_cast<std::uint8_t>(h.version << 4U | h.ihl.value_or(header / 4)), h.traffic_class};
                    put16(out, header + rest + static_cast<std::size_t>(h.length_error));
                    put16(out, h.id);
                    put16(out, h.fragment);
                    append(out, Bytes{h.ttl, h.protocol.value_or(above == nullptr ? 253 : above->protocol), 0, 0});
                    append(out, h.source);
                    append(out, h.destination);
                    append(out, h.options);
                    const std::uint16_t sum = h.sum.value_or(checksum(out) ^ h.checksum_error);
                    out[10] = static_cast<std::uint8_t>(sum >> 8U);
                    out[11] = static_cast<std::uint8_t>(sum);
                    return out;
                }};
    }
};

struct Ipv6 {
    ip_addr source{};
    ip_addr destination{};
    std::uint8_t hop_limit = 64;
    std::optional<std::uint8_t> next{};
    int length_error = 0;
    std::uint8_t version = 6;
    std::uint8_t traffic_class = 0;

    [[nodiscard]] Layer layer() const {
        return {0x86dd, IPPROTO_IPV6, [h = *this](const Layer *above, std::size_t rest) {
                    Bytes out{static_cast<std::uint8_t>(h.version << 4U | h.traffic_class >> 4U),
                              static_cast<std::uint8_t>(h.traffic_class << 4U), 0, 0};
                    put16(out, rest + static_cast<std::size_t>(h.length_error));
                    append(out, Bytes{h.next.value_or(above == nullptr ? 59 : above->protocol), h.hop_limit});
                    append(out, h.source);
                    append(out, h.destination);
                    return out;
                }};
    }
};

// A hop-by-hop, routing or destination header of `units` times 8 bytes; with type 44 a fragment header.
struct Extension {
    std::uint8_t type = IPPROTO_HOPOPTS;
    std::uint8_t units = 1;
    std::uint16_t fragment = 0; // offset and flags
    std::optional<std::uint8_t> next{};

    [[nodiscard]] Layer layer() const {
        return {0, type, [h = *this](const Layer *above, std::size_t) {
                    const bool fragment = h.type == IPPROTO_FRAGMENT;
                    Bytes out{h.next.value_or(above == nullptr ? 59 : above->protocol),
                              static_cast<std::uint8_t>(fragment ? 0 : h.units - 1)};
                    put16(out, h.fragment);
                    out.resize(fragment ? 8 : h.units * 8U);
                    return out;
                }};
    }
};

// The frame with VLAN tags in front of what it carries, the outermost first.
struct Tag {
    std::uint16_t type = 0x8100;
    std::uint16_t id = 0;
};
inline Bytes tagged(Bytes frame, const std::vector<Tag> &tags) {
    Bytes all;
    for (const Tag &tag : tags) {
        put16(all, tag.type);
        put16(all, tag.id);
    }
    frame.insert(frame.begin() + 12, all.begin(), all.end());
    return frame;
}

inline constexpr std::uint8_t kSyn = 0x02;
inline constexpr std::uint8_t kAck = 0x10;

struct Tcp {
    std::uint16_t source = 40000;
    std::uint16_t destination = 80;
    std::uint8_t flags = kSyn;
    Bytes options{};

    [[nodiscard]] Layer layer() const {
        return {0, IPPROTO_TCP, [h = *this](const Layer *, std::size_t) {
                    Bytes out;
                    put16(out, h.source);
                    put16(out, h.destination);
                    out.resize(12);
                    append(out, Bytes{static_cast<std::uint8_t>((20 + h.options.size()) / 4 << 4U), h.flags});
                    out.resize(20);
                    append(out, h.options);
                    return out;
                }};
    }
};

struct Udp {
    std::uint16_t source = 40000;
    std::uint16_t destination = 53;
    std::uint8_t protocol = IPPROTO_UDP; // SCTP and UDP-Lite have their ports at the same place

    [[nodiscard]] Layer layer() const {
        return {0, protocol, [h = *this](const Layer *, std::size_t rest) {
                    Bytes out;
                    put16(out, h.source);
                    put16(out, h.destination);
                    put16(out, 8 + rest);
                    out.resize(8);
                    return out;
                }};
    }
};

struct Icmp {
    std::uint8_t type = 8;
    std::uint16_t identifier = 7;
    std::uint8_t protocol = IPPROTO_ICMP;

    [[nodiscard]] Layer layer() const {
        return {0, protocol, [h = *this](const Layer *, std::size_t) {
                    Bytes out{h.type, 0, 0, 0};
                    put16(out, h.identifier);
                    put16(out, 1);
                    return out;
                }};
    }
};
inline Icmp icmp6(std::uint8_t type, std::uint16_t identifier = 7) { return {type, identifier, IPPROTO_ICMPV6}; }

// A neighbour solicitation or advertisement, or with another type whatever has the same beginning.
struct Nd {
    std::uint8_t type;
    ip_addr target;
    std::uint32_t flags = 0;

    [[nodiscard]] Layer layer() const {
        return {0, IPPROTO_ICMPV6, [h = *this](const Layer *, std::size_t) {
                    Bytes out{h.type, 0, 0, 0};
                    put32(out, h.flags);
                    append(out, h.target);
                    return out;
                }};
    }
};

// Type 1 is the source's, 2 the target's link-layer address.
inline Bytes nd_option(std::uint8_t type, const Mac &of, std::uint8_t units = 1) {
    Bytes out{type, units};
    append(out, of);
    return out;
}

struct Arp {
    std::uint16_t operation = 1;
    Mac sender_mac;
    ip_addr sender;
    ip_addr target;
    Mac target_mac{};
    std::uint16_t hardware = 1;
    std::uint16_t protocol = 0x0800;
    std::uint8_t hardware_size = 6;
    std::uint8_t protocol_size = 4;

    [[nodiscard]] Layer layer() const {
        return {0x0806, IPPROTO_NONE, [h = *this](const Layer *, std::size_t) {
                    Bytes out;
                    put16(out, h.hardware);
                    put16(out, h.protocol);
                    append(out, Bytes{h.hardware_size, h.protocol_size});
                    put16(out, h.operation);
                    append(out, h.sender_mac);
                    append(out, h.sender);
                    append(out, h.target_mac);
                    append(out, h.target);
                    return out;
                }};
    }
};

} // namespace podlane::frames
