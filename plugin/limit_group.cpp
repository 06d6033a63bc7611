// SPDX-License-Identifier: MIT
#include "plugin/limit_group.hpp"

#include "loader/limit_group.hpp"
#include "loader/pins.hpp"
#include "maps/entries.hpp"

#include <algorithm>

namespace podlane {

Result<bool> has_limit_group(const Tables &tables, const std::optional<LimitGroupPlan> &plan) {
    if (!plan)
        return true;
    const auto there = TRY(tables.limit_groups.find(plan->number));
    if (!there)
        return false;
    const bool is_same =
        there->network == plan->entry.network && field_text(there->name) == field_text(plan->entry.name);
    if (!is_same && limit_group_number(there->network, field_text(there->name)) == plan->number)
        return Error{ErrorCode::already_exists,
                     "limit groups \"" + std::string(field_text(plan->entry.name)) + "\" and \"" +
                         std::string(field_text(there->name)) + "\" have the same number",
                     "rename one of them"};
    if (!same_bytes(*there, plan->entry) || !TRY(tables.bandwidths.find(plan->number)))
        return false;
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
        if (!TRY(tables.limit_states.find({plan->number, direction})))
            return false;
    return true;
}

Result<void> put_limit_group(const Tables &tables, const std::optional<LimitGroupPlan> &plan) {
    if (TRY(has_limit_group(tables, plan)))
        return {};
    const bool is_change = TRY(tables.limit_groups.find(plan->number)).has_value();
    TRY(tables.limit_groups.update(plan->number, plan->entry));          // what else there is can be found by it,
    TRY(tables.bandwidths.update(plan->number, plan->entry.configured)); // or, if it is lost, by this
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
        if (!TRY(tables.limit_states.find({plan->number, direction})))
            TRY(tables.limit_states.update({plan->number, direction}, limit_state{}));
    return is_change ? follow_group_rate(tables, plan->number) : Result<void>{};
}

Result<std::optional<LimitGroupBefore>> limit_group_before(const Tables &tables,
                                                           const std::optional<LimitGroupPlan> &plan) {
    const auto entry = plan ? TRY(tables.limit_groups.find(plan->number)) : std::nullopt;
    if (!entry)
        return std::optional<LimitGroupBefore>{};
    return std::optional(LimitGroupBefore{plan->number, *entry, TRY(tables.bandwidths.find(plan->number))});
}

Result<void> restore_limit_group(const Tables &tables, const LimitGroupBefore &before) {
    if (!TRY(tables.limit_groups.find(before.number)))
        return {};
    TRY(tables.limit_groups.update(before.number, before.entry));
    if (!before.limits)
        return {};
    TRY(tables.bandwidths.update(before.number, *before.limits));
    return follow_group_rate(tables, before.number);
}

Result<void> drop_unused_limit_groups(const std::string &root, const Tables &tables, std::uint32_t network,
                                      bool has_unnamed) {
    if (TRY(unused_limit_groups(tables, network, has_unnamed)).empty())
        return {};
    // An ADD under way holds the lock shared until its states are there.
    const Lock lock = TRY(Lock::exclusive(root));
    std::vector<Unread> unread;
    const auto now = Tables::open_readable(root, unread); // an upgrade may have come first
    for (const Unread &one : unread)
        if (!one.is_replaced() || one.map == PODLANE_MAP_BANDWIDTHS)
            return one.error;
    if (now)
        for (const std::uint32_t number : TRY(unused_limit_groups(*now, network, has_unnamed)))
            TRY(remove_limit_group(*now, number));
    return {};
}

} // namespace podlane
