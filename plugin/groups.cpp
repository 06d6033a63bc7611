// SPDX-License-Identifier: MIT
#include "plugin/groups.hpp"

#include "maps/abi/isolation.h"
#include "maps/entries.hpp"
#include "maps/text.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/entries.hpp"
#include "plugin/isolation.hpp"
#include "plugin/log.hpp"
#include "plugin/state.hpp"

#include <algorithm>

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

// Without the entry of its host-side veth nothing reaches the endpoint: a DEL is under way, which has removed what
// these maps had of it, or a repair restores it by its record.
Result<void> put_groups(const Tables &tables, const AttachmentRecord &record) {
    const std::uint32_t ifindex = record.entry ? record.entry->ifindex : 0;
    if (ifindex == 0 || !TRY(tables.interfaces.find(ifindex)))
        return {};
    const cni::Request request = TRY(recorded_request(record));
    const EndpointEntries entries = entries_of(request.config, *record.entry, 0);
    if (entries.isolation) {
        TRY(update_isolation(tables, ifindex, *entries.isolation));
    } else {
        TRY(remove_isolation(tables, ifindex));
        TRY(count_isolation_change(tables.watches)); // also what a killed call has removed
    }
    // Beside an ADD, a DEL may have removed it meanwhile.
    return TRY(tables.interfaces.find(ifindex)) ? Result<void>{} : erase_interface(tables, ifindex);
}

// For an ADD. Added to the record, which is not written again: a DEL of that interface, which holds the lock shared as
// the ADD does, may have erased it.
Result<void> give_groups(const AttachmentRecords &records, const Tables &tables, AttachmentRecord other,
                         const std::vector<std::string> &groups) {
    AttachmentRecord news;
    news.container_id = other.container_id;
    news.ifname = other.ifname;
    news.groups = groups.empty() ? "\n" : group_lines(groups); // an empty text would leave those of before
    other.groups = news.groups;
    return TRY(records.add(news)) ? put_groups(tables, other) : Result<void>{};
}

Result<std::vector<AttachmentRecord>> whole_records(const AttachmentRecords &records,
                                                    const std::set<std::string> &container_ids) {
    std::vector<AttachmentRecord> all = TRY(records.list());
    std::erase_if(all, [&](const AttachmentRecord &one) {
        return !container_ids.contains(one.container_id) || one.only_lease || one.is_torn || !one.entry;
    });
    return all;
}

// Of each endpoint the record says what the maps are to have, and a repair goes by it.
Result<void> refuse_unrecorded(const std::vector<AttachmentRecord> &recorded, const AttachmentRecords &records,
                               const Tables &tables, const std::set<std::string> &container_ids) {
    std::set<std::string> known, unknown;
    for (const AttachmentRecord &one : recorded)
        known.insert(record_file_name(one.container_id, one.ifname));
    for (const auto &[key, entry] : TRY(tables.endpoints.entries())) {
        const std::string id(field_text(key.container_id));
        if (!container_ids.contains(id))
            continue;
        if (!known.contains(record_file_name(id, std::string(field_text(key.ifname)))))
            unknown.insert(id);
        TRY(refuse_half_deleted(tables.interfaces, entry));
    }
    if (unknown.empty())
        return {};
    return Error{ErrorCode::missing,
                 "no whole record in " + records.directory() + " of container " + join(unknown, ", ") +
                     ": nobody's groups are changed",
                 "if the configuration has another stateDir, name that with --state-dir; else delete the pod's "
                 "sandbox; the runtime creates a new one"};
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
        if (other.is_torn) { // nobody would read behind it
            log(cni::Log::Level::warning, "the record of container " + other.container_id + ", " + other.ifname +
                                              " is torn: this interface does not get the groups of " + request.ifname);
            continue;
        }
        rollback.add("giving its groups to " + other.ifname,
                     [records, &tables, other] { return give_groups(records, tables, other, groups_in(other)); });
        TRY(give_groups(records, tables, other, request.config.groups));
    }
    return {};
}

Result<void> change_membership(const AttachmentRecords &records, const Tables &tables,
                               const std::set<std::string> &container_ids, const std::string &group, bool is_member) {
    std::vector<AttachmentRecord> changed = TRY(whole_records(records, container_ids));
    TRY(refuse_unrecorded(changed, records, tables, container_ids));
    for (AttachmentRecord &record : changed) {
        std::vector<std::string> groups = groups_in(record);
        if (!is_member)
            std::erase(groups, group);
        else if (std::ranges::find(groups, group) == groups.end())
            groups.push_back(group);
        TRY(refuse_too_many(groups)); // before any is changed
        record.groups = group_lines(groups);
    }
    for (const AttachmentRecord &record : changed) {
        TRY(records.write(record)); // first: after a crash between the two, the maps are what is repaired
        TRY(put_groups(tables, record));
    }
    return {};
}

} // namespace podlane
