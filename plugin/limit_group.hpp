// SPDX-License-Identifier: MIT
// A limit that pods of a network share, on the node: its name, its rates and its states. The first ADD of a pod of the
// group inserts it, later ones keep it, and it is deleted with the group's last pod.
#pragma once

#include "maps/tables.hpp"
#include "plugin/plan.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

// Whether it is there as the configuration has it. Rates that podlanectl has changed stay until the configuration does.
Result<bool> has_limit_group(const Tables &tables, const std::optional<LimitGroupPlan> &plan);
// Under the exclusive lock.
Result<void> put_limit_group(const Tables &tables, const std::optional<LimitGroupPlan> &plan);

// As an ADD found it, with the rates that podlanectl may have set.
struct LimitGroupBefore {
    std::uint32_t number;
    limit_group entry;
    std::optional<bandwidth> limits;
};
Result<std::optional<LimitGroupBefore>> limit_group_before(const Tables &tables,
                                                           const std::optional<LimitGroupPlan> &plan);
Result<void> restore_limit_group(const Tables &tables, const LimitGroupBefore &before);

// Removes the network's groups that no pod is in, and with `has_unnamed` those without a name (see
// loader/limit_group.hpp). Without the lock; takes it if there are any.
Result<void> drop_unused_limit_groups(const std::string &root, const Tables &tables, std::uint32_t network,
                                      bool has_unnamed);

} // namespace podlane
