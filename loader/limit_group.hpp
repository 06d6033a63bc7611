// SPDX-License-Identifier: MIT
// Limits that pods share: who is in them, and what there is of one.
#pragma once

#include "maps/tables.hpp"

#include <cstdint>
#include <optional>
#include <set>

namespace podlane {

// The numbers of those that no pod is in: of one network or of all. With `has_unnamed` also of those that have no name,
// in whatever network: the map of the names may have been lost.
Result<std::set<std::uint32_t>> unused_limit_groups(const Tables &tables, std::optional<std::uint32_t> network = {},
                                                    bool has_unnamed = false);

// The limits of an endpoint, but with the group's ingress rate if that is higher: what it may borrow at most.
[[nodiscard]] bandwidth with_borrowed(bandwidth limits, const bandwidth &group);
// The same of the group that the endpoint is in, if it is in one.
Result<bandwidth> with_borrowed(const Bandwidths &bandwidths, const LimitStates &states, std::uint32_t ifindex,
                                const bandwidth &limits);
// The qdiscs of a group's pods that may borrow more now, or less.
Result<void> follow_group_rate(const Tables &tables, std::uint32_t number);

// Its limits and its name, by which it can be found, go last.
Result<void> remove_limit_group(const Tables &tables, std::uint32_t number);

} // namespace podlane
