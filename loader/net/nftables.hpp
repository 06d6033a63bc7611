// SPDX-License-Identifier: MIT
// Elements of nf_tables sets, comments of rules, and a rule that turns connection tracking on, in tables of family
// inet. It runs no program, and its cost does not depend on the size of the rule set.
#pragma once

#include "loader/net/netlink.hpp"
#include "maps/ip.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::net {

// Where IPv4 and IPv6 addresses go: sets of type ipv4_addr and ipv6_addr in one table.
struct AddressSets {
    std::string table;
    std::string ipv4;
    std::string ipv6;
};

// One transaction. Elements that are there already stay. false: a set or the table is missing, and nothing changed.
Result<bool> add_elements(Netlink &netfilter, const AddressSets &sets, std::span<const ip_addr> addresses);
// One transaction. Missing elements count as removed. false: a set or the table is missing, and nothing changed.
Result<bool> remove_elements(Netlink &netfilter, const AddressSets &sets, std::span<const ip_addr> addresses);

// Whether all of them are there. false: a set or the table may be missing as well.
Result<bool> has_elements(Netlink &netfilter, const AddressSets &sets, std::span<const ip_addr> addresses);

// The same for an interface's name, in sets of type ifname of one table. It is no matter which of them hold it if it is
// removed.
Result<bool> add_interface(Netlink &netfilter, const std::string &table, std::span<const char *const> sets,
                           const std::string &ifname);
Result<bool> remove_interface(Netlink &netfilter, const std::string &table, std::span<const char *const> sets,
                              const std::string &ifname);
Result<bool> has_interface(Netlink &netfilter, const std::string &table, std::span<const char *const> sets,
                           const std::string &ifname);

// With its chains, rules and sets. false: was missing.
Result<bool> remove_table(Netlink &netfilter, const std::string &table);

// With its rules, and these sets that no other chain uses. false: one was missing, and nothing changed.
Result<bool> remove_chain(Netlink &netfilter, const std::string &table, const std::string &chain,
                          std::span<const char *const> sets = {});

// Adds a chain, and its table if that is missing, with one rule that needs connection tracking: the kernel tracks
// connections of both families in this namespace as long as the rule exists. The chain has no hook, so that no packet
// traverses it. The kernel loads the modules it needs. Replaces the chain's rules.
Result<void> add_tracking(Netlink &netfilter, const std::string &table, const std::string &chain);
// Adds the same and removes it in one transaction, so that the modules are loaded.
Result<void> load_tracking(Netlink &netfilter);
// Of an operation on tables: this kernel has no nf_tables, and so none of them.
[[nodiscard]] bool lacks_nf_tables(const Error &error);

// Whether iptables-nft has made this chain in its table `nat`.
Result<bool> has_iptables_chain(Netlink &netfilter, bool ipv4, const std::string &chain);
// Properties of a chain beside its rules. The kernel calls it at a hook (enum nf_inet_hooks) in the order of
// priorities.
struct BaseChain {
    std::string type; // empty: nothing calls it
    std::uint32_t hook = 0;
    std::int32_t priority = 0;
    std::uint32_t policy = 0;      // NF_ACCEPT or NF_DROP
    std::uint32_t table_flags = 0; // of its table; one is "dormant": nothing calls its chains

    [[nodiscard]] bool is_called_as(const BaseChain &other) const {
        return type == other.type && hook == other.hook && priority == other.priority;
    }
    bool operator==(const BaseChain &) const = default;
};
BaseChain postrouting_nat(); // accepts what no rule takes, as the next one
BaseChain forward_filter();
// None if the chain is missing.
Result<std::optional<BaseChain>> find_base_chain(Netlink &netfilter, const std::string &table,
                                                 const std::string &chain);

// A transaction of its own: the kernel takes no other change of a table's flags and of its chains at once. false: the
// table is missing.
Result<bool> clear_table_flags(Netlink &netfilter, const std::string &table);

// Whether the chain exists and has a rule.
Result<bool> has_rules(Netlink &netfilter, const std::string &table, const std::string &chain);

// The comments of a chain's rules in their order, empty for a rule without one; none if the chain is missing.
Result<std::vector<std::string>> rule_comments(Netlink &netfilter, const std::string &table, const std::string &chain);

// Tables with a rule whose comment begins with `mark`.
Result<std::set<std::string>> tables_with_mark(Netlink &netfilter, std::string_view mark);

// The sum of the counters of a chain's rules; nothing if it has none, or the chain is missing.
Result<std::optional<std::uint64_t>> counted_packets(Netlink &netfilter, const std::string &table,
                                                     const std::string &chain);

} // namespace podlane::net
