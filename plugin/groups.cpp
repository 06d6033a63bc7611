// SPDX-License-Identifier: MIT
#include "plugin/groups.hpp"

#include "maps/abi/isolation.h"
#include "plugin/entries.hpp"
#include "plugin/isolation.hpp"
#include "plugin/state.hpp"

#include <algorithm>
#include <utility>

namespace podlane {
namespace {

void merge(const std::vector<std::string> &more, std::vector<std::string> &into) {
    for (const std::string &group : more)
        if (std::ranges::find(into, group) == into.end())
            into.push_back(group);
}

Result<void> refuse_too_many(const std::vector<std::string> &groups) {
    if (groups.size() <= ISOLATION_GROUPS)
        return {};
    return Error{ErrorCode::invalid_network_config,
                 "the container would be a member of " + std::to_string(groups.size()) + " groups, at most " +
                     std::to_string(ISOLATION_GROUPS) + " are supported",
                 "see `podlanectl group list`"};
}

// The record comes first: after a crash between the two, the maps are what is repaired.
Result<void> set_groups_of(const AttachmentRecords &records, const Tables &tables, AttachmentRecord record,
                           const std::vector<std::string> &groups) {
    record.groups = group_lines(groups);
    TRY(records.write(record));
    if (!record.entry || record.entry->ifindex == 0)
        return {};
    const cni::Request request = TRY(recorded_request(record));
    const EndpointEntries entries = entries_of(request.config, *record.entry, 0);
    if (entries.isolation)
        return update_isolation(tables, record.entry->ifindex, *entries.isolation);
    TRY(remove_isolation(tables, record.entry->ifindex));
    return count_isolation_change(tables.watches); // also what a killed call has removed
}

} // namespace

Result<std::vector<std::string>> groups_with_others(const cni::Request &request, net::Netlink &pod) {
    std::vector<std::string> groups = request.config.groups;
    for (const AttachmentRecord &other : TRY(records_of_others(request, pod)))
        merge(groups_in(other), groups);
    TRY(refuse_too_many(groups));
    return groups;
}

Result<void> share_groups(const cni::Request &request, const Tables &tables, net::Netlink &pod, Rollback &rollback) {
    const AttachmentRecords records = records_of(request.config);
    for (const AttachmentRecord &other : TRY(records_of_others(request, pod))) {
        if (std::ranges::is_permutation(groups_in(other), request.config.groups))
            continue;
        rollback.add("giving its groups to " + other.ifname,
                     [records, &tables, other] { return set_groups_of(records, tables, other, groups_in(other)); });
        TRY(set_groups_of(records, tables, other, request.config.groups));
    }
    return {};
}

Result<void> change_membership(const AttachmentRecords &records, const Tables &tables,
                               const std::set<std::string> &container_ids, const std::string &group, bool is_member) {
    std::vector<std::pair<AttachmentRecord, std::vector<std::string>>> changes;
    for (AttachmentRecord &record : TRY(records.list())) {
        if (!container_ids.contains(record.container_id) || record.only_lease)
            continue;
        std::vector<std::string> groups = groups_in(record);
        if (!is_member)
            std::erase(groups, group);
        else if (std::ranges::find(groups, group) == groups.end())
            groups.push_back(group);
        TRY(refuse_too_many(groups)); // before any is changed
        changes.emplace_back(std::move(record), std::move(groups));
    }
    for (auto &[record, groups] : changes)
        TRY(set_groups_of(records, tables, std::move(record), groups));
    return {};
}

} // namespace podlane
