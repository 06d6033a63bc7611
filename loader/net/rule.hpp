// SPDX-License-Identifier: MIT
// Routing rules: by source address, or for one kind of query.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace podlane::net {

// A query of the routes that only a program makes: no packet of this protocol has ports (Linux 4.17).
struct QueryKind {
    std::string interface; // as if it had come by this one
    std::uint8_t protocol = 0;
    std::uint16_t source_port = 0; // host byte order
};

struct RuleSpec {
    Prefix source{}; // its family is the rule's; length 0: from anywhere
    std::uint32_t table = 0;
    std::uint32_t priority = 0;
    std::optional<QueryKind> only{};
    std::optional<std::uint8_t> protocol{}; // who added it (RTPROT_*)
};

// false: was there already.
Result<bool> add_rule(Netlink &netlink, const RuleSpec &rule);
// false: was not there.
Result<bool> remove_rule(Netlink &netlink, const RuleSpec &rule);
Result<bool> has_rule(Netlink &netlink, const RuleSpec &rule);

} // namespace podlane::net
