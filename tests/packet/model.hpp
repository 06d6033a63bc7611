// SPDX-License-Identifier: MIT
// The promises about one frame, written down a second time: its owner, the places it may reach, and its bytes there.
// It shares no code with the programs.
#pragma once

#include "tests/packet/model_neighbour.hpp"

namespace podlane::packet {

class Model : private NeighbourReader {
  public:
    // `segment`: bytes of data in each segment, if the frame is of GSO.
    Model(const ModelSender &sender, const Bytes &frame, std::size_t segment = 0)
        : NeighbourReader(sender, frame, segment) {}
    using NeighbourReader::answer;
    using NeighbourReader::is_discovery;
    using NeighbourReader::names_only_own;

    // A checksum of what is behind `start` is left to be written at `offset` from there, after all checks.
    void leave_checksum(std::size_t start, std::size_t offset) {
        sum_start_ = start;
        sum_at_ = start + offset;
    }
    [[nodiscard]] Promise promise() {
        read();
        Promise out;
        out.flow = find_flow(out);
        if (v6_ && !tagged_ && (is_ipv4(source_) || is_ipv4(destination_)))
            judge(out, Demand::drop, "an IPv4-mapped address in an IPv6 header");
        else if (!sender_.is_pod)
            judge_outside(out);
        else if (sender_.is_bound)
            judge_pod(out);
        else
            judge_unbound_pod(out);
        out.must_be_answered = out.may_be_answered && out.demand == Demand::no_drop && (v6_ ? plain_ : is_usual_arp());
        if (out.demand == Demand::drop)
            out.flow = nullptr;
        else if (is_one_of(sender_.isolated, destination_))
            out.demand = Demand::none;
        return out;
    }

    // The frame as a router would deliver it, translated; empty if its header is broken. Its transport checksum is that
    // of the frame: see checksum_error().
    [[nodiscard]] Bytes delivered(const ModelFlow &flow) const {
        Bytes out = cut(frame_, end_);
        std::ranges::copy(flow.receiver, out.begin());
        std::ranges::copy(kHostMac, out.begin() + 6);
        out[v4_ ? 22 : 21] = static_cast<std::uint8_t>(out[v4_ ? 22 : 21] - 1);
        put_address(out, v4_ ? 26 : 22, flow.new_source);
        put_address(out, v4_ ? 30 : 38, flow.new_destination);
        if (!flow.is_direct) {
            put_port(out, l4_, flow.new_source_port);
            put_port(out, l4_ + 2, flow.new_destination_port);
        }
        if (v4_) {
            out[24] = out[25] = 0;
            const std::uint16_t sum = checksum(std::span(out).subspan(14, 20));
            put_port(out, 24, sum);
            if (header_error() != 0) // and is as wrong as before
                return {};
        }
        return out;
    }
    // As the container's other interface would have sent it.
    [[nodiscard]] Bytes handed_over() const {
        Bytes out = frame_;
        std::ranges::copy(sender_.gateway, out.begin());
        std::ranges::copy(sender_.peer_mac, out.begin() + 6);
        return out;
    }
    // Whether a limit has marked the packet, which is capable of ECN, as having met congestion (RFC 3168).
    [[nodiscard]] static bool is_marked(const Bytes &before, const Bytes &after) {
        const unsigned shift = before[12] == 0x08 ? 0 : 4, ecn = before[15] >> shift & 3U;
        return (ecn == 1 || ecn == 2) && after.size() > 15 && (after[15] >> shift & 3U) == 3;
    }
    static void mark(Bytes &out) {
        const bool v4 = out[12] == 0x08;
        out[15] |= v4 ? 0x03 : 0x30;
        if (!v4)
            return;
        put_port(out, 24, 0);
        put_port(out, 24, checksum(std::span(out).subspan(14, 20)));
    }
    // The address that decides whether a limit of the sender applies; none: it does.
    [[nodiscard]] const ip_addr *limited_address() const { return is_ip() && !tagged_ ? &destination_ : nullptr; }
    // The same of a limit of whom a bridge brings it to.
    [[nodiscard]] const ip_addr *limited_source() const { return is_ip() && !tagged_ ? &source_ : nullptr; }
    // By a bridge, to one of its ports with this MAC.
    [[nodiscard]] bool is_for_port(const Mac &mac) const {
        return (frame_[0] & 1U) != 0 || std::equal(mac.begin(), mac.end(), frame_.begin());
    }
    // But for ARP, in which the sender may be replaced (names_only_own()).
    [[nodiscard]] bool must_be_unchanged() const {
        return sender_.is_pod && (type_ != 0x0806 || sender_.is_left_to_bridge);
    }
    [[nodiscard]] std::size_t checksum_at() const { return l4_ + (protocol_ == IPPROTO_TCP ? 16U : 6U); }
    // The error of the transport checksum; nothing if the sender computed none.
    [[nodiscard]] std::optional<std::uint16_t> checksum_error(const Bytes &frame) const {
        if (protocol_ == IPPROTO_UDP && frame[checksum_at()] == 0 && frame[checksum_at() + 1] == 0)
            return {};
        const std::size_t addresses = v4_ ? 26 : 22;
        const std::size_t length = std::min(frame.size(), end_) - l4_;
        std::uint32_t start = protocol_ + static_cast<std::uint32_t>(length);
        for (std::size_t i = addresses; i < addresses + (v4_ ? 8U : 32U); i += 2)
            start += std::uint32_t{frame[i]} << 8U | frame[i + 1];
        const std::uint16_t sum = checksum(std::span(frame).subspan(l4_, length), start);
        return sum == 0xffff ? 0 : sum; // both are zero in one's complement
    }
    [[nodiscard]] const ip_addr &source() const { return source_; }
    [[nodiscard]] const ip_addr &destination() const { return destination_; }
    [[nodiscard]] bool is_ip() const { return v4_ || v6_; }
    [[nodiscard]] bool is_plain() const { return plain_ && !tagged_; }
    [[nodiscard]] bool is_header_right() const {
        return !v4_ || !well_formed_ || checksum(std::span(frame_).subspan(l3_, l4_ - l3_)) == 0;
    }
    // Whether its options are a route or times, which routers write (RFC 791); or look like it.
    [[nodiscard]] bool is_recorded() const {
        return v4_ && well_formed_ &&
               std::ranges::any_of(std::span(frame_).subspan(l3_ + 20, l4_ - l3_ - 20),
                                   [](std::uint8_t one) { return one == 7 || one == 68; });
    }
    [[nodiscard]] bool is_fragment() const {
        return later_fragment_ || first_fragment_ || (v4_ && (word(l3_ + 6) & 0x3fffU) != 0);
    }
    // A segment of TCP that acknowledges, and has no data.
    [[nodiscard]] bool is_only_ack() const {
        return protocol_ == IPPROTO_TCP && transport_bytes() && (frame_[l4_ + 13] & 0x17U) == kAck &&
               frame_.size() == l4_ + *transport_bytes();
    }
    // On the wire: each segment has the headers. If nobody knows them, they count as the most that TCP has.
    [[nodiscard]] std::size_t wire_bytes() const {
        const bool has_l4 = v4_ || (v6_ && !later_fragment_ && !cut_ && extensions_ <= 4);
        std::size_t headers = (has_l4 ? l4_ : 54) + transport_bytes().value_or(60);
        if (sum_start_ != 0 && !transport_bytes() && has(sum_start_ + 13)) // the kernel cuts there
            headers = sum_start_ + (protocol_ == IPPROTO_TCP ? (frame_[sum_start_ + 12] >> 4U) * 4U : 8U);
        const std::size_t bytes = plain_ ? end_ : frame_.size();
        if (segment_ == 0 || bytes <= headers)
            return bytes;
        return bytes + (bytes - headers - 1) / segment_ * headers;
    }

  private:
    // Of the transport header as it says itself, if it is there to be read.
    [[nodiscard]] std::optional<std::size_t> transport_bytes() const {
        if (is_later_fragment() || cut_ || extensions_ > 4 || !is_ip())
            return {};
        if (protocol_ == IPPROTO_TCP && has(l4_ + 20))
            return (frame_[l4_ + 12] >> 4U) * 4U;
        if (protocol_ == IPPROTO_UDP && has(l4_ + 8))
            return 8;
        if (protocol_ == IPPROTO_SCTP && has(l4_ + 4))
            return 12;
        return {};
    }
    // Of the largest packet that a receiver gets.
    [[nodiscard]] std::size_t largest() const {
        return segment_ == 0 ? end_ - 14 : l4_ - 14 + transport_bytes().value_or(frame_.size()) + segment_;
    }
    static void put_port(Bytes &out, std::size_t at, std::uint16_t value) {
        out[at] = static_cast<std::uint8_t>(value >> 8U);
        out[at + 1] = static_cast<std::uint8_t>(value);
    }
    static void put_address(Bytes &out, std::size_t at, const ip_addr &addr) {
        Bytes text;
        append(text, addr);
        std::ranges::copy(text, out.begin() + static_cast<std::ptrdiff_t>(at));
    }
    // Only whole, unfragmented packets without options, for the router's own MAC.
    const ModelFlow *find_flow(Promise &out) const {
        const bool transport = protocol_ == IPPROTO_TCP || protocol_ == IPPROTO_UDP;
        out.ends_flow = !sender_.is_pod; // an end that arrives is judged behind tags and options, too
        if (tagged_ || !plain_ || !has(l4_ + (protocol_ == IPPROTO_TCP ? 14U : 4U)))
            return nullptr;
        out.ends_flow = false;
        const auto is_of = [&](const ModelFlow &one) {
            if (!same(one.source, source_) || !same(one.destination, destination_))
                return false;
            if (one.is_direct)
                return transport || quotes(one);
            return transport && one.source_port == word(l4_) && one.destination_port == word(l4_ + 2);
        };
        const auto found = std::ranges::find_if(sender_.flows, is_of);
        if (found == sender_.flows.end())
            return nullptr;
        out.ends_flow = !found->is_direct && protocol_ == IPPROTO_TCP && (frame_[l4_ + 13] & 7U) != 0;
        // conntrack knows none of the flows: FIN and RST go where the packets before them went.
        const bool opens = out.ends_flow && (frame_[l4_ + 13] & 2U) != 0;
        if (opens || !is_header_right() || sender_.is_left_to_bridge ||
            is_one_of(sender_.isolated, found->new_destination) || hops_ <= 1 || largest() > found->receiver_mtu ||
            !std::ranges::equal(std::span(frame_).first(6), sender_.gateway))
            return nullptr;
        // Nothing takes padding off in which a checksum is to be written.
        out.must_be_delivered = transport && end_ >= l4_ + (protocol_ == IPPROTO_TCP ? 20U : 8U) &&
                                (sum_start_ == 0 || sum_at_ + 2 <= end_);
        return &*found;
    }
    // An ICMP error about a packet that went the other way.
    [[nodiscard]] bool quotes(const ModelFlow &flow) const {
        const std::uint8_t type = frame_[l4_];
        const bool error =
            v4_ ? protocol_ == IPPROTO_ICMP && (type == 3 || type == 4 || type == 5 || type == 11 || type == 12)
                : protocol_ == IPPROTO_ICMPV6 && type < 128;
        const std::size_t quoted = l4_ + 8;
        const std::size_t at = quoted + (v4_ ? 12 : 8);
        if (!error || !has(quoted + (v4_ ? 20 : 40)))
            return false;
        const std::uint8_t protocol = frame_[quoted + (v4_ ? 9 : 6)];
        return (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && same(flow.destination, address(at, v4_)) &&
               same(flow.source, address(at + (v4_ ? 4 : 16), v4_));
    }

    static void judge(Promise &out, Demand demand, const char *why) {
        out.demand = demand;
        out.why = why;
    }
    void judge_outside(Promise &out) const {
        if (tagged_ || !is_ip())
            return;
        if (is_one_of(sender_.refused_names, source_))
            return judge(out, Demand::drop, "in the name of an isolated pod");
        if (cuts_tcp(16))
            return judge(out, Demand::drop, "a TCP header that goes on in the next fragment");
        const bool is_tcp = protocol_ == IPPROTO_TCP && !is_later_fragment();
        const bool ends =
            is_tcp && (extensions_ > 4 || l4_ + (is_first_fragment() ? 20 : 16) > end_ || (frame_[l4_ + 13] & 5U) != 0);
        if (shows_protocol() && !ends)
            judge(out, Demand::no_drop, "a packet that ends no connection");
    }
    // Of IPv6, behind up to eight extension headers. No first fragment is nested, or padded.
    [[nodiscard]] bool shows_protocol() const {
        if (!well_formed_ || (is_first_fragment() && (later_fragment_ || frame_.size() != end_)))
            return false;
        return v4_ || (!cut_ && extensions_ <= 8 && l4_ <= end_);
    }
    void judge_unbound_pod(Promise &out) const {
        const bool readable = type_ == 0x0806                      ? has(l3_ + 28)
                              : type_ == 0x0800 || type_ == 0x86dd ? well_formed_ && (!is_discovery() || has(l4_ + 24))
                                                                   : true;
        out.may_be_answered = is_for_gateway();
        if (readable)
            judge(out, Demand::no_drop, "a packet of a pod that may send any");
    }
    void judge_pod(Promise &out) const {
        const auto drop = [&](const char *why) { judge(out, Demand::drop, why); };
        if (!own_mac(6))
            return drop("source MAC");
        if (is_tag(word(12)) && (is_of_vlan() || is_tag(type_) || l3_ > 18))
            return judge_tag(out);
        if (type_ == 0x0806)
            return judge_arp(out);
        if (type_ != 0x0800 && type_ != 0x86dd)
            return judge_type(out);
        if (!v4_ && !v6_)
            return; // cut
        const bool nd = is_nd();
        if (of_peer(source_)) { // however large it is
            out.may_be_handed_over = true;
            out.must_be_handed_over = !tagged_ && well_formed_;
            return;
        }
        if (!own(source_) && !may_lack_source())
            return drop("source address");
        if (extensions_ > 4 && !later_fragment_ && (nd || cut_ || extensions_ > 8 || protocol_ == IPPROTO_TCP))
            return drop("what must not be behind more headers than are read");
        if (nd && hops_ == 255 && claims_foreign())
            return drop("neighbour discovery for others");
        if (first_fragment_ && ((nd && hops_ == 255) || hides_nd()))
            return drop("neighbour discovery that goes on in the next fragment");
        if (cuts_tcp(20))
            return drop("a TCP header that goes on in the next fragment");
        if (writes_over_headers()) {
            if (cut_ || extensions_ > 4)
                return; // its transport header is not known
            return drop("a checksum over what was checked");
        }
        out.may_be_answered = is_for_gateway();
        const bool is_nested = first_fragment_ && later_fragment_; // a fragment of a fragment
        const bool is_near = // ICMPv6 has no message of type 255 (RFC 4443), by which the programs know a cut one
            extensions_ <= 4 || (own(source_) && sum_start_ == 0 && l4_ + 8 <= end_ && !later_fragment_ &&
                                 !(protocol_ == IPPROTO_ICMPV6 && frame_[l4_] == 255));
        if (!tagged_ && well_formed_ && is_near && !cut_ && !is_nested && (!nd || is_own_discovery()))
            judge(out, Demand::no_drop, "the pod's own packet");
    }
    // Of any VLAN but 0: the tag hides what is behind it.
    [[nodiscard]] bool is_of_vlan() const { return has(16) && (word(14) & 0xfffU) != 0; }
    // A tag behind a priority tag is never allowed.
    void judge_tag(Promise &out) const {
        if (!is_of_vlan() || !is_allowed("vlan"))
            judge(out, Demand::drop, "VLAN tag");
        else if (sum_start_ == 0)
            judge(out, Demand::no_drop, "a VLAN tag that is allowed");
    }
    void judge_type(Promise &out) const {
        const bool is_llc = type_ < 0x600 && !(has(l3_ + 2) && word(l3_) == 0xffff);
        const char *name = is_llc                               ? "llc"
                           : type_ == 0x88cc                    ? "lldp"
                           : type_ == 0x8847 || type_ == 0x8848 ? "mpls"
                           : type_ == 0x8863 || type_ == 0x8864 ? "pppoe"
                                                                : "any";
        if (is_tag(type_) || !(is_allowed(name) || is_allowed("any")))
            judge(out, Demand::drop, "EtherType");
        else if (!tagged_)
            judge(out, Demand::no_drop, "an EtherType that is allowed");
    }
    [[nodiscard]] bool is_allowed(const char *ether_type) const { return sender_.ether_types.contains(ether_type); }
    [[nodiscard]] bool is_later_fragment() const { return later_fragment_ || (v4_ && (word(l3_ + 6) & 0x1fffU) != 0); }
    [[nodiscard]] bool is_first_fragment() const {
        return first_fragment_ || (v4_ && (word(l3_ + 6) & 0x3fffU) == 0x2000U);
    }
    // Whether a first fragment has less of it.
    [[nodiscard]] bool cuts_tcp(std::size_t bytes) const {
        return is_first_fragment() && !tagged_ && !later_fragment_ && !cut_ && extensions_ <= 4 &&
               protocol_ == IPPROTO_TCP && !has(l4_ + bytes);
    }
    // Over the addresses, or what another message begins with; of a header, its own checksum alone.
    [[nodiscard]] bool writes_over_headers() const {
        if (sum_start_ == 0)
            return false;
        if (sum_start_ < l4_ || (v6_ && later_fragment_))
            return true;
        const auto is_only = [&](std::size_t header, std::size_t place) {
            return sum_start_ >= l4_ + header || sum_at_ == l4_ + place;
        };
        return protocol_ == IPPROTO_TCP      ? !is_only(20, 16)
               : protocol_ == IPPROTO_UDP    ? !is_only(8, 6)
               : protocol_ == IPPROTO_SCTP   ? !is_only(12, 8)
               : protocol_ == IPPROTO_ICMP   ? !is_only(8, 2)
               : protocol_ == IPPROTO_ICMPV6 ? sum_at_ != l4_ + 2
                                             : false;
    }
    void judge_arp(Promise &out) const {
        if (sum_start_ != 0 || !is_usual_arp() || !own_mac(l3_ + 8) || !claims_own_by_arp())
            return judge(out, Demand::drop, "ARP for others, or of another link");
        out.may_be_answered = is_for_gateway();
        if (!tagged_)
            judge(out, Demand::no_drop, "the pod's own ARP");
    }
};

} // namespace podlane::packet
