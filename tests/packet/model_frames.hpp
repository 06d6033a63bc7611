// SPDX-License-Identifier: MIT
// Frames for the model: whole ones of every kind, and changes that leave them half right.
#pragma once

#include "tests/packet/model.hpp"

#include <random>

namespace podlane::packet {

class ModelFrames {
  public:
    ModelFrames(const ModelSender &sender, std::vector<ip_addr> addresses, std::mt19937_64 &random)
        : sender_(sender), addresses_(std::move(addresses)), random_(random) {}

    Bytes next() {
        if (left_ == 0) {
            base_ = whole();
            if (base_[12] == 0x86 && base_.size() > 54 && base_[20] == kIcmp6 && below(4) == 0) // a target, or a quote
                put_mapped(base_, base_[54] >= 128 ? 62 : std::array<std::size_t, 2>{70, 86}[below(2)]);
            left_ = 32;
        }
        --left_;
        Bytes frame = base_;
        for (std::size_t changes = below(4); changes > 0; --changes)
            change(frame);
        if (below(4) != 0)
            repair_checksum(frame);
        return frame;
    }

  private:
    static constexpr std::uint8_t kIcmp = IPPROTO_ICMP;
    static constexpr std::uint8_t kIcmp6 = IPPROTO_ICMPV6;

    std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
    template <typename T> const T &any(const std::vector<T> &of) { return of[below(of.size())]; }
    std::uint8_t byte() { return static_cast<std::uint8_t>(random_()); }
    Bytes noise(std::size_t size) {
        Bytes out(size);
        for (std::uint8_t &one : out)
            one = byte();
        return out;
    }
    ip_addr address(bool v4) {
        for (;;)
            if (const ip_addr &one = any(addresses_); is_ipv4(one) == v4)
                return one;
    }
    ip_addr own_address6() {
        std::vector<ip_addr> own;
        std::ranges::copy_if(sender_.addresses, std::back_inserter(own),
                             [](const ip_addr &one) { return !is_ipv4(one); });
        return own.empty() ? address(false) : any(own);
    }
    const ModelFlow &flow(bool v4) {
        for (;;)
            if (const ModelFlow &one = any(sender_.flows); is_ipv4(one.source) == v4)
                return one;
    }

    Bytes whole() {
        const Mac source = below(12) == 0 ? kForeignMac : sender_.mac;
        const Mac destination = below(12) == 0 ? (below(2) == 0 ? kBroadcastMac : kForeignMac) : sender_.gateway;
        const Frame link(Ethernet{destination, source}.layer());
        const bool v4 = below(2) == 0;
        switch (below(11)) {
        case 0:
            return link / arp();
        case 1:
            return Ethernet{destination, source,
                            std::array<std::uint16_t, 8>{0x88cc, 0x8847, 0x8848, 0x8863, 0x8864, 0x0040, 0x86dd,
                                                         0x0800}[below(8)]} /
                   (below(8) == 0 ? Bytes(below(90), 0xff) : noise(below(90)));
        case 2:
        case 3:
            return maybe_cut(link / ip_header(address(v4), address(v4)) / any_transport(flow(v4)));
        case 4: {
            const bool is_own = below(3) == 0; // all that it claims
            return link /
                   ip6(is_own ? own_address6() : address(false), below(2) == 0 ? ip("ff02::1") : address(false),
                       below(8) == 0 ? 64 : 255) /
                   discovery(is_own);
        }
        default:
            const ModelFlow &of = flow(v4);
            return maybe_cut(link / ip_header(of.source, of.destination) /
                             (below(8) == 0 ? any_transport(of) : transport(of)));
        }
    }
    // A first fragment of IPv4 may end within the transport header.
    Bytes maybe_cut(Bytes frame) {
        const std::size_t l4 = 14 + (frame[14] & 15U) * std::size_t{4};
        const bool is_first = frame[12] == 0x08 && (frame[20] & 0x3fU) == 0x20 && frame[21] == 0;
        if (is_first && frame.size() > l4 + 20 && below(2) == 0) {
            frame.resize(l4 + below(20));
            count(frame);
            repair_checksum(frame);
        }
        return frame;
    }
    Frame arp() {
        Arp out{static_cast<std::uint16_t>(1 + below(2)), below(4) == 0 ? kForeignMac : sender_.mac, address(true),
                below(2) == 0 ? gateway4() : address(true)};
        if (below(8) == 0)
            out.hardware = 6; // IEEE 802, which Linux takes as well
        return Frame(out.layer());
    }
    Frame ip_header(const ip_addr &from, const ip_addr &to) { return is_ipv4(from) ? ip4(from, to) : ip6(from, to); }
    Frame ip4(const ip_addr &from, const ip_addr &to) {
        Ipv4 header{from, to};
        header.ttl = hops();
        if (below(10) == 0)
            header.options = options();
        if (below(10) == 0) {
            header.fragment = fragment();
            header.id = static_cast<std::uint16_t>(random_());
        }
        return Frame(header.layer());
    }
    // The first one, one in the middle, the last one, or any.
    std::uint16_t fragment() {
        const auto near = static_cast<std::uint16_t>(1 + below(16));
        return std::array<std::uint16_t, 4>{0x2000, static_cast<std::uint16_t>(0x2000U | near), near,
                                            static_cast<std::uint16_t>(random_())}[below(4)];
    }
    Bytes options() {
        Bytes out(below(4), 1); // they begin later
        for (std::size_t i = 1 + below(2); i > 0; --i)
            append(out, option());
        out.resize(std::min<std::size_t>(40, (out.size() + 3) / 4 * 4));
        if (below(4) == 0)
            out.resize(4 * (1 + below(out.size() / 4))); // the last one is cut
        return out;
    }
    // Router alert, timestamps, the route so far, and both source routes.
    Bytes option() {
        const std::uint8_t kind = std::array<std::uint8_t, 5>{148, 68, 7, 131, 137}[below(5)];
        Bytes out = kind == 148 ? Bytes{kind, 0, 0, 0} : kind == 68 ? Bytes{kind, 0, 5, 0} : Bytes{kind, 0, 4};
        for (std::size_t i = kind == 148 ? 0 : 1 + below(3); i > 0; --i)
            append(out, address(true));
        out[1] = static_cast<std::uint8_t>(out.size());
        return out;
    }
    Frame ip6(const ip_addr &from, const ip_addr &to, std::uint8_t hop_limit = 0) {
        Frame out(Ipv6{from, to, hop_limit == 0 ? hops() : hop_limit}.layer());
        constexpr std::array<std::uint8_t, 4> kTypes = {IPPROTO_HOPOPTS, IPPROTO_ROUTING, IPPROTO_DSTOPTS,
                                                        IPPROTO_FRAGMENT};
        for (std::size_t i = below(6) == 0 ? 1 + below(9) : 0; i > 0; --i)
            out = below(5) == 0 ? out / authentication(static_cast<std::uint8_t>(1 + below(3)))
                                : out / Extension{kTypes[below(4)], static_cast<std::uint8_t>(1 + below(3)),
                                                  static_cast<std::uint16_t>(below(3) == 0 ? random_() : below(2))}
                                            .layer();
        return out;
    }
    // RFC 4302: its length counts 4 bytes, without the first 8.
    static Layer authentication(std::uint8_t units) {
        return {
            0, IPPROTO_AH, [units](const Layer *above, std::size_t) {
                Bytes out{above == nullptr ? std::uint8_t{59} : above->protocol, static_cast<std::uint8_t>(2 * units)};
                out.resize(8U + 8U * units);
                return out;
            }};
    }
    std::uint8_t hops() { return std::array<std::uint8_t, 8>{0, 1, 2, 64, 64, 64, 255, 255}[below(8)]; }
    Frame transport(const ModelFlow &of) {
        const std::size_t data = std::array<std::size_t, 8>{0, 1, 33, 100, 100, 1332, 1400, 2900}[below(8)];
        if (below(2) == 0)
            return Udp{of.source_port, of.destination_port} / noise(data);
        const std::uint8_t flags = below(6) == 0 ? byte() : kAck;
        const std::size_t payload = below(4) == 0 ? 0 : data;
        return Tcp{of.source_port, of.destination_port, flags, Bytes(4 * below(6), 1)} / noise(payload);
    }
    Frame any_transport(const ModelFlow &of) {
        const bool v4 = is_ipv4(of.source);
        switch (below(6)) {
        case 0: {
            ModelFlow back = of;
            std::swap(back.source_port, back.destination_port);
            return Icmp{v4 ? std::array<std::uint8_t, 4>{3, 5, 11, 12}[below(4)]
                           : static_cast<std::uint8_t>(1 + below(4)),
                        7, v4 ? kIcmp : kIcmp6} /
                   packet_back(back);
        }
        case 1:
        case 2:
            return tunnel();
        case 3:
            return Frame(Layer{0, std::array<std::uint8_t, 4>{47, 50, 51, 132}[below(4)],
                               [data = noise(40)](const Layer *, std::size_t) { return data; }});
        case 4: // echo, or listeners of multicast
            return Icmp{v4 ? std::uint8_t{8} : std::array<std::uint8_t, 3>{128, 131, 143}[below(3)], 7,
                        v4 ? kIcmp : kIcmp6} /
                   noise(below(80));
        default:
            return transport(of);
        }
    }
    // From the destination of the flow to its source.
    Frame packet_back(const ModelFlow &of) {
        const Frame header = is_ipv4(of.source) ? Frame(Ipv4{of.destination, of.source}.layer())
                                                : Frame(Ipv6{of.destination, of.source}.layer());
        return header / transport(of);
    }
    // A packet of either family: in another one (IP in IP, 6in4, 4in6), or behind GRE, or as a frame in VXLAN or
    // Geneve.
    Frame tunnel() {
        const bool v4 = below(2) == 0;
        const Frame inner = packet_back(flow(v4));
        const Layer link = Ethernet{kPeerMac, kForeignMac}.layer();
        switch (below(4)) {
        case 0:
            return inner;
        case 1:
            return Frame(Layer{0, 47,
                               [v4](const Layer *, std::size_t) {
                                   return v4 ? Bytes{0, 0, 0x08, 0x00} : Bytes{0, 0, 0x86, 0xdd};
                               }}) /
                   inner;
        case 2:
            return Udp{40000, 4789} / Bytes{8, 0, 0, 0, 0, 0, 42, 0} / link / inner;
        default: // with one option
            return Udp{40000, 6081} / Bytes{1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 0x80, 0} / link / inner;
        }
    }
    // `is_own`: claims nothing of others.
    Frame discovery(bool is_own) {
        const auto type = static_cast<std::uint8_t>(is_own ? 133 + 2 * below(2) : 133 + below(5));
        const ip_addr target = below(4) == 0 ? gateway6() : address(false);
        Frame out = type == 133 ? Frame(icmp6(type, 0).layer()) : Frame(Nd{type, target}.layer());
        for (std::size_t i = below(6); i > 0; --i)
            out = out / nd_option(static_cast<std::uint8_t>(1 + below(4)),
                                  !is_own && below(3) == 0 ? kForeignMac : sender_.mac);
        if (below(4) == 0) { // one that is large
            const std::size_t units = std::array<std::size_t, 4>{2, 100, 176, 255}[below(4)];
            Bytes large = nd_option(14, {}, static_cast<std::uint8_t>(units));
            large.resize(8 * units);
            out = out / large;
        }
        return out;
    }

    void change(Bytes &frame) {
        switch (below(9)) {
        case 0:
            frame[below(std::min<std::size_t>(frame.size(), 110))] ^= static_cast<std::uint8_t>(1U << below(8));
            break;
        case 1:
            frame[below(std::min<std::size_t>(frame.size(), 110))] = byte();
            break;
        case 2:
            if (below(3) == 0)
                frame.resize(14 + below(frame.size() - 13));
            if (below(2) == 0)
                count(frame);
            break;
        case 3:
            frame.resize(frame.size() + below(61));
            break;
        case 4:
            if (below(3) == 0)
                frame = tagged(frame, tags());
            break;
        case 5:
        case 6:
            replace_address(frame);
            break;
        case 7: // odd lengths
            if (frame.size() > 20)
                frame[frame[12] == 0x08 ? 17 : 19] = byte();
            if (frame.size() > 20 && below(4) == 0) // of GSO packets over 64 KiB
                for (const std::size_t at : {0U, 1U})
                    frame[(frame[12] == 0x08 ? 16 : 18) + at] = 0;
            break;
        default: // a checksum that is not zero
            change_checksum(frame);
        }
    }
    // Half of them are stacked.
    std::vector<Tag> tags() {
        std::vector<Tag> out(below(2) == 0 ? 1 : 2 + below(2));
        for (Tag &one : out)
            one = {below(2) == 0 ? std::uint16_t{0x8100} : std::uint16_t{0x88a8},
                   static_cast<std::uint16_t>(below(2) == 0 ? 0 : below(4096))};
        return out;
    }
    // The length is that of the frame.
    static void count(Bytes &frame) {
        const bool v4 = frame[12] == 0x08 && frame[13] == 0, v6 = frame[12] == 0x86 && frame[13] == 0xdd;
        const std::size_t at = v4 ? 16 : 18, length = frame.size() - (v4 ? 14 : 54);
        if ((!v4 && !v6) || frame.size() < (v4 ? 34U : 54U))
            return;
        frame[at] = static_cast<std::uint8_t>(length >> 8U);
        frame[at + 1] = static_cast<std::uint8_t>(length);
    }
    void change_checksum(Bytes &frame) {
        const bool v4 = frame[12] == 0x08;
        const std::size_t at = v4 ? 34 : 54;
        if (frame.size() > at + 18)
            frame[at + (frame[v4 ? 23 : 20] == IPPROTO_TCP ? 16U : 6U)] = byte();
    }
    void replace_address(Bytes &frame) {
        const bool v4 = frame[12] == 0x08 && frame[13] == 0;
        const std::size_t at = v4 ? (below(2) == 0 ? 26 : 30) : (below(2) == 0 ? 22 : 38);
        if (!v4 && below(16) == 0)
            return put_mapped(frame, at);
        Bytes other;
        append(other, address(v4));
        if (frame.size() >= at + other.size())
            std::ranges::copy(other, frame.begin() + static_cast<std::ptrdiff_t>(at));
    }
    void put_mapped(Bytes &frame, std::size_t at) {
        Bytes mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        append(mapped, address(true));
        if (frame.size() >= at + mapped.size())
            std::ranges::copy(mapped, frame.begin() + static_cast<std::ptrdiff_t>(at));
    }
    static void repair_checksum(Bytes &frame) {
        if (frame[12] != 0x08 || frame[13] != 0 || frame.size() < 34)
            return;
        const std::size_t header = (frame[14] & 15U) * 4U;
        if (header < 20 || frame.size() < 14 + header)
            return;
        frame[24] = frame[25] = 0;
        const std::uint16_t sum = checksum(std::span(frame).subspan(14, header));
        frame[24] = static_cast<std::uint8_t>(sum >> 8U);
        frame[25] = static_cast<std::uint8_t>(sum);
    }

    const ModelSender &sender_;
    std::vector<ip_addr> addresses_;
    std::mt19937_64 &random_;
    Bytes base_;
    unsigned left_ = 0;
};

} // namespace podlane::packet
