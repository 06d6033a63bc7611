// SPDX-License-Identifier: MIT
// Rules of nf_tables, iptables-nft's included, that work by packet and not by connection: the packets of a connection
// that take the fast path do not meet them.
#pragma once

#include "loader/net/netlink.hpp"

#include <string>
#include <vector>

namespace podlane::net {

// The rules of one chain at a hook that forwarded packets traverse, and of the chains it leads to.
struct PacketRules {
    std::string family; // "ip", "ip6", "inet", "netdev"
    std::string table;
    std::string chain;
    std::vector<std::string> what; // "limit", "quota", …: each once, sorted
};

// "chain filter FORWARD (ip): limit, quota"
std::string words_of(const PacketRules &rules);

// Chains without such a rule are left out, and so are those of kube-proxy and Podlane, chains of type nat (they see
// first packets only) and rules for packets that take the slow path: of new or invalid connections, with SYN, FIN or
// RST, and of other protocols than TCP and UDP. iptables gives every rule a counter: those do not count.
Result<std::vector<PacketRules>> packet_rules(Netlink &netfilter);

} // namespace podlane::net
