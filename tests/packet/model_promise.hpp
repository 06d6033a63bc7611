// SPDX-License-Identifier: MIT
// Who sends a frame of the model, and what is promised about it.
#pragma once

#include "maps/abi/flow.h"
#include "tests/packet/cases.hpp"

#include <arpa/inet.h>

#include <set>
#include <string>

namespace podlane::packet {

// A connection that the host has confirmed, in one direction.
struct ModelFlow {
    ip_addr source;
    ip_addr destination;
    std::uint16_t source_port = 0;
    std::uint16_t destination_port = 0;
    ip_addr new_source;
    ip_addr new_destination;
    std::uint16_t new_source_port = 0;
    std::uint16_t new_destination_port = 0;
    Mac receiver{}; // of the pod that new_destination belongs to
    std::size_t receiver_mtu = 0;
    bool is_direct = false; // "firstPacket": "direct": of all ports, untranslated, and not confirmed

    [[nodiscard]] bool is_translated() const {
        return !(source == new_source && destination == new_destination && source_port == new_source_port &&
                 destination_port == new_destination_port);
    }
    [[nodiscard]] flow_key key(std::uint8_t protocol) const {
        flow_key key{};
        key.source = source;
        key.destination = destination;
        key.source_port = htons(source_port);
        key.destination_port = htons(destination_port);
        key.protocol = protocol;
        return key;
    }
    // Its entry, as if conntrack had confirmed it now, of what comes by this interface.
    [[nodiscard]] flow confirmed(const flow_key &key, std::uint32_t ifindex, std::uint64_t now_ns) const {
        flow value{};
        value.source = new_source;
        value.destination = new_destination;
        value.source_port = htons(new_source_port);
        value.destination_port = htons(new_destination_port);
        value.confirmed_ns = now_ns & ~FLOW_LOST;
        value.ifindex = ifindex;
        value.flags = is_translated() ? std::uint32_t{FLOW_TRANSLATED} : 0U;
        value.check = flow_check(&key);
        return value;
    }
};

// The sender of frames: a pod, or, without addresses, whoever is on the link of an uplink.
struct ModelSender {
    bool is_pod = true;
    bool is_bound = true; // anti-spoofing binds it to its own addresses
    Mac mac{};
    Mac gateway{};
    std::vector<ip_addr> addresses{};
    std::vector<ModelFlow> flows{};
    std::vector<Prefix> allowed{};         // sources besides its addresses
    std::set<std::string> ether_types{};   // allowedEtherTypes
    std::vector<ip_addr> peer_addresses{}; // of the container's other interface
    Mac peer_mac{};                        // of that one
    std::vector<ip_addr> isolated{};       // of a pod that does not let it in
    std::vector<ip_addr> refused_names{};  // of isolated pods of this node, as sources
    bool is_left_to_bridge = false; // Podlane is chained after `bridge`: no fast path, no answers for the gateway
    const Pod *pod = nullptr;       // none: Node::pod
};

inline bool is_one_of(const std::vector<ip_addr> &all, const ip_addr &addr) {
    return std::ranges::any_of(all, [&](const ip_addr &one) { return std::ranges::equal(one.word, addr.word); });
}

// Whether one of the prefixes holds the address. Families are never mixed.
inline bool is_in(const std::vector<Prefix> &prefixes, const ip_addr &addr) {
    return std::ranges::any_of(
        prefixes, [&](const Prefix &one) { return is_ipv4(one.addr) == is_ipv4(addr) && contains(one, addr); });
}

inline bool is_tag(std::uint16_t type) { return type == 0x8100 || type == 0x88a8; }

inline bool is_extension(std::uint8_t protocol) {
    return protocol == IPPROTO_HOPOPTS || protocol == IPPROTO_ROUTING || protocol == IPPROTO_DSTOPTS ||
           protocol == IPPROTO_FRAGMENT || protocol == IPPROTO_AH;
}

enum class Demand { none, drop, no_drop };

struct Promise {
    Demand demand = Demand::none;
    const char *why = "";
    bool may_be_answered = false; // ARP or a neighbour solicitation, for the gateway
    bool must_be_answered = false;
    const ModelFlow *flow = nullptr; // may be delivered; nothing else may
    bool must_be_delivered = false;  // by the fast path
    bool ends_flow = false;          // FIN, RST, SYN
    bool may_be_handed_over = false; // to the container's other interface, which owns the source
    bool must_be_handed_over = false;
};

} // namespace podlane::packet
