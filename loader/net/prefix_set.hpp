// SPDX-License-Identifier: MIT
// The content of a set of addresses or of intervals of nf_tables, in a table of family inet.
#pragma once

#include "loader/net/netlink.hpp"
#include "maps/ip.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane::net {

// The prefixes of one family in a set of intervals, in the order of their addresses; none of a missing set. nullopt: an
// interval is no prefix.
Result<std::optional<std::vector<Prefix>>> list_prefixes(Netlink &netfilter, const std::string &table,
                                                         const std::string &set);

// The elements of a set of single addresses; none of a missing set.
Result<std::vector<ip_addr>> list_set_addresses(Netlink &netfilter, const std::string &table, const std::string &set);

} // namespace podlane::net
