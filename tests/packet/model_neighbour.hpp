// SPDX-License-Identifier: MIT
// ARP and neighbour discovery in the model: whose addresses a frame claims, and the gateway's answer to it, as RFC 826
// and RFC 4861 have it. It shares no code with the programs.
#pragma once

#include "tests/packet/model_reader.hpp"
#include "tests/packet/neighbour_cases.hpp"

namespace podlane::packet {

class NeighbourReader : protected FrameReader {
  public:
    [[nodiscard]] bool is_discovery() const { return is_nd() && hops_ == 255; }
    // Whether what is left of an ARP packet names the sender, if anybody.
    [[nodiscard]] bool names_only_own(const Bytes &out) const {
        if (type_ != 0x0806 || tagged_ || !sender_.is_pod || !sender_.is_bound || out.size() < 42)
            return true;
        ip_addr named = ip("0.0.0.0");
        std::copy_n(out.begin() + 28, 4, reinterpret_cast<std::uint8_t *>(named.word) + 12);
        return same(named, ip("0.0.0.0")) || own(named);
    }
    // The gateway's answer to a request for it.
    [[nodiscard]] Bytes answer() const {
        if (type_ == 0x0806)
            return arp_reply();
        constexpr std::uint32_t kRouterSolicitedOverride = 0xe0000000U;
        return advertisement({mac_at(6), sender_.gateway}, gateway6(), source_, kRouterSolicitedOverride);
    }

  protected:
    NeighbourReader(const ModelSender &sender, const Bytes &frame, std::size_t segment)
        : FrameReader(frame, sender.is_pod, segment), sender_(sender) {}

    [[nodiscard]] static bool same(const ip_addr &a, const ip_addr &b) { return std::ranges::equal(a.word, b.word); }
    // Families are never mixed: an IPv4-mapped address in IPv6 is nobody's.
    [[nodiscard]] bool own(const ip_addr &addr) const {
        return is_ipv4(addr) == (type_ != 0x86dd) &&
               (is_one_of(sender_.addresses, addr) || is_in(sender_.allowed, addr));
    }
    [[nodiscard]] bool of_peer(const ip_addr &addr) const {
        return !own(addr) && is_one_of(sender_.peer_addresses, addr);
    }
    [[nodiscard]] bool own_mac(std::size_t at) const {
        return has(at + 6) && std::equal(sender_.mac.begin(), sender_.mac.end(), frame_.begin() + static_cast<int>(at));
    }

    // Of IPv4 over Ethernet.
    [[nodiscard]] bool is_usual_arp() const {
        return type_ == 0x0806 && has(l3_ + 28) && word(l3_) == 1 && word(l3_ + 2) == 0x0800 && word(l3_ + 4) == 0x0604;
    }
    // A probe has no sender and claims its target; that of the gateway arrives nowhere.
    [[nodiscard]] bool claims_own_by_arp() const {
        const bool probe = word(l3_ + 14) == 0 && word(l3_ + 16) == 0;
        const ip_addr target = address(l3_ + 24, true);
        const ip_addr named = address(l3_ + 14, true);
        return probe ? word(l3_ + 6) == 1 && (own(target) || (!sender_.is_left_to_bridge && same(target, gateway4())))
                     : own(named) || of_peer(named);
    }
    [[nodiscard]] bool is_nd() const {
        return v6_ && !later_fragment_ && !cut_ && protocol_ == IPPROTO_ICMPV6 && has(l4_ + 8) && frame_[l4_] >= 133 &&
               frame_[l4_] <= 137;
    }
    [[nodiscard]] bool hides_nd() const {
        if (!v6_ || later_fragment_)
            return false;
        return cut_ || (protocol_ == IPPROTO_ICMPV6 && !has(l4_ + 8));
    }
    // Messages that a host may send before it has an address (RFC 3810, RFC 4861).
    [[nodiscard]] bool may_lack_source() const {
        if (!v6_ || !is_none(source_) || later_fragment_ || cut_ || protocol_ != IPPROTO_ICMPV6 || !has(l4_ + 8))
            return false;
        const std::uint8_t type = frame_[l4_];
        return type == 131 || type == 133 || type == 135 || type == 143;
    }
    // A claim that a receiver would believe.
    [[nodiscard]] bool claims_foreign() const {
        const std::uint8_t type = frame_[l4_];
        if (type == 134 || type == 137)
            return true;
        if (type != 133 && !has(l4_ + 24))
            return false;
        if ((type == 136 || (type == 135 && is_none(source_))) && !own(address(l4_ + 8, false)))
            return true;
        for (std::size_t at = options(); has_option(at); at += frame_[at + 1] * std::size_t{8})
            if ((frame_[at] == 1 || frame_[at] == 2) && !own_mac(at + 2))
                return true;
        return false;
    }
    // A message of discovery that ends with the last of its options, and claims nothing of others. Hosts send one or
    // two options; more than four are not read.
    [[nodiscard]] bool is_own_discovery() const {
        if (first_fragment_ || frame_.size() != end_ || claims_foreign() || !has(options()) ||
            (frame_[l4_] != 133 && is_ipv4(address(l4_ + 8, false))))
            return false;
        std::size_t at = options();
        for (int read = 0; read < 4 && has_option(at); ++read)
            at += frame_[at + 1] * std::size_t{8};
        return at == frame_.size();
    }
    // A request for the gateway, which answers on a link of its own.
    [[nodiscard]] bool is_for_gateway() const {
        if (tagged_ || sender_.is_left_to_bridge)
            return false;
        if (type_ == 0x0806)
            return has(l3_ + 28) && word(l3_ + 6) == 1 && same(address(l3_ + 24, true), gateway4());
        return is_discovery() && frame_[l4_] == 135 && has(l4_ + 24) && !is_none(source_) &&
               same(address(l4_ + 8, false), gateway6());
    }

    const ModelSender &sender_;

  private:
    [[nodiscard]] std::size_t options() const { return l4_ + (frame_[l4_] == 133 ? 8U : 24U); }
    [[nodiscard]] bool has_option(std::size_t at) const { return has(at + 8) && frame_[at + 1] != 0; }
    [[nodiscard]] Mac mac_at(std::size_t at) const {
        Mac mac{};
        std::copy_n(frame_.begin() + static_cast<std::ptrdiff_t>(at), mac.size(), mac.begin());
        return mac;
    }
    // To the sender that it names. A request in the name of the container's other interface has become its own.
    [[nodiscard]] Bytes arp_reply() const {
        const Mac mac = mac_at(l3_ + 8);
        ip_addr named = address(l3_ + 14, true);
        if (sender_.is_bound && of_peer(named))
            named = *std::ranges::find_if(sender_.addresses, [](const ip_addr &one) { return is_ipv4(one); });
        const Arp reply{2,         sender_.gateway, gateway4(),      named,          mac,
                        word(l3_), word(l3_ + 2),   frame_[l3_ + 4], frame_[l3_ + 5]};
        Bytes out = Ethernet{mac, sender_.gateway} / reply;
        out.insert(out.end(), frame_.begin() + 42, frame_.end()); // the padding is the request's
        return out;
    }
};

} // namespace podlane::packet
