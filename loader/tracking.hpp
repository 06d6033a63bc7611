// SPDX-License-Identifier: MIT
// Connection tracking of the node, which the fast path follows: a rule for each network keeps the kernel tracking.
#pragma once

#include "maps/result.hpp"

#include <array>
#include <string>

namespace podlane {

// Adds the network's rule if it is missing. Fails on a kernel without nf_tables: then connections take the fast path
// only if another rule of the node has the kernel track them.
Result<void> start_tracking(const std::string &network);

// Removes the network's table; a missing one is no error.
Result<void> stop_tracking(const std::string &network);

// Of the key `egress` in the same table (plugin/egress_rules.hpp): a chain, and the sets it looks up.
inline constexpr const char *kEgressChain = "egress";
inline constexpr std::array<const char *, 4> kEgressSets = {"limited", "closed", "inside4", "inside6"};

// Removes all of the table but the rules that masquerade.
Result<void> stop_tracking_beside_masquerade(const std::string &network);

Result<bool> is_tracking(const std::string &network);

// Has the kernel load the module nf_conntrack, whose type information the programs need.
Result<void> load_conntrack();

} // namespace podlane
