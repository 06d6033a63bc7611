// SPDX-License-Identifier: MIT
// Chains of netfilter at the hook "forward" that drop all forwarded packets of pods: a firewall's that does not know
// the pods.
#pragma once

#include "maps/ip.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl::forwarding {

struct Pods {
    std::vector<std::string> interfaces{}; // on the node, of the pods
    std::vector<std::string> ways{};       // interfaces by which routes lead away from the node
    std::vector<Prefix> ranges{};          // of the pods' addresses
    bool uses_ipv4 = false;
    bool uses_ipv6 = false;
};

// As "chain filter FORWARD (ip)", of what `nft list ruleset` and `iptables-save -t filter` print: chains that end by a
// drop, and of which no rule may accept a new connection of a pod. A condition that is not understood may hold.
std::vector<std::string> refusing_chains_of_nft(std::string_view listing, const Pods &pods);
std::vector<std::string> refusing_chains_of_iptables(std::string_view listing, std::string_view family,
                                                     const Pods &pods);

} // namespace podlane::ctl::forwarding
