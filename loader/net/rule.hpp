// SPDX-License-Identifier: MIT
// Routing rules: by source address, or for one kind of query.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// One that was found.
struct FoundRule {
    Prefix destination{};    // length 0: any
    std::uint32_t table = 0; // 0: its action is another one than a lookup
    std::uint32_t priority = 0;
    std::uint8_t action = 0;                   // FR_ACT_*
    std::optional<std::uint8_t> longer_than{}; // routes of this length and shorter ones do not count
    std::string text{};                        // as ip-rule(8) has it, without what narrows it
    bool is_narrowed = false;                  // by source, mark, interface, protocol or port, or inverted
    [[nodiscard]] bool is_for(const ip_addr &addr) const {
        return destination.length == 0 || contains(destination, addr);
    }
};
// In the order in which the kernel goes through them.
Result<std::vector<FoundRule>> list_rules(Netlink &netlink, Family family);

} // namespace podlane::net
