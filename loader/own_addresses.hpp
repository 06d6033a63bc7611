// SPDX-License-Identifier: MIT
// Lets the programs distinguish the node's own addresses from those that no route leads to: bpf_fib_lookup() answers
// "not forwarded" for both. A rule for a query that no packet makes (bpf/fib.h) leads behind all other rules to a table
// in which everything is unreachable: what is "not forwarded" to this query is the node's own.
#pragma once

#include "maps/result.hpp"

namespace podlane {

enum class OwnAddressRules { none, some, all };

// Of each family that the kernel has; what is there already stays.
Result<void> put_own_address_rules();
// Families that the kernel does not have do not count.
Result<OwnAddressRules> find_own_address_rules();
// If it is interrupted, `some` are left.
Result<void> remove_own_address_rules();

} // namespace podlane
