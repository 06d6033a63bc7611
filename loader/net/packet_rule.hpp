// SPDX-License-Identifier: MIT
// One rule of nf_tables, as far as it works by packet. Internal: see message.hpp.
#pragma once

#include "loader/net/message.hpp"

#include <set>
#include <tuple>

namespace podlane::net {

using ChainId = std::tuple<std::uint8_t, std::string, std::string>; // family, table, chain

struct Rule {
    ChainId chain;
    std::set<std::string> what{};
    std::vector<std::string> leads_to{};
    std::vector<std::string> maps{}; // verdict maps, whose elements lead to chains as well
    std::vector<std::string> sets{}; // and maps, in which it looks something up
    bool slow_path_only = false;     // for packets that never take the fast path, such as a connection's first ones
};

constexpr std::string_view kKubeProxy = "KUBE-";

// The effect by packet of an nf_tables expression, or of an iptables match or target. Empty: none.
std::string effect_by_packet(const std::string &expression);

// None for the chains of kube-proxy and Podlane, and those that no IP packet meets.
std::optional<ChainId> id_of(nlmsghdr *answer, const std::string &table, const std::string &chain);

std::optional<Rule> parse_rule(nlmsghdr *answer);

// Adds the chain that a verdict leads to, if it does.
void take_verdict(nlattr *data, std::vector<std::string> &leads_to);

} // namespace podlane::net
