// SPDX-License-Identifier: MIT
// Routing rules by source address.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>

namespace podlane::net {

struct RuleSpec {
    ip_addr source{}; // this one address
    std::uint32_t table = 0;
    std::uint32_t priority = 0;
};

// false: was there already.
Result<bool> add_rule(Netlink &netlink, const RuleSpec &rule);
// false: was not there.
Result<bool> remove_rule(Netlink &netlink, const RuleSpec &rule);
Result<bool> has_rule(Netlink &netlink, const RuleSpec &rule);

} // namespace podlane::net
