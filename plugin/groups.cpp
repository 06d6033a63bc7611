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
#include "plugin/turn.hpp"

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
    TRY(follow_isolation(tables, ifindex, entries.isolation));
    // Beside an ADD, a DEL may have removed it meanwhile.
    return TRY(tables.interfaces.find(ifindex)) ? Result<void>{} : erase_interface(tables, ifindex);
}

AttachmentRecord with_groups(AttachmentRecord record, const std::vector<std::string> &groups) {
    record.groups = groups.empty() ? "\n" : group_lines(groups); // an empty text would leave those of before
    return record;
}

AttachmentRecord only_groups(const AttachmentRecord &of) {
    AttachmentRecord news;
    news.container_id = of.container_id;
    news.ifname = of.ifname;
    news.groups = of.groups;
    return news;
}

Result<bool> is_endpoint(const Tables &tables, const AttachmentRecord &one) {
    const auto entry = TRY(tables.endpoints.find(TRY(make_endpoint_key(one.container_id, one.ifname))));
    return entry && entry->ifindex == one.entry->ifindex;
}

std::string path_of(const AttachmentRecords &records, const AttachmentRecord &one) {
    return records.directory() + "/" + record_file_name(one.container_id, one.ifname);
}

// A part that a call has left which was killed while it added to the record: nobody would read what is added behind it.
Result<void> cut_torn_end(const AttachmentRecords &records, const AttachmentRecord &record) {
    if (record.is_torn)
        TRY(cut_file(path_of(records, record), record.file_size, record.whole_size));
    return {};
}

// For an ADD that fails. `given` was added to the record behind what it was before: it is cut off, which needs no room
// on the disk, unless another call has added more.
Result<void> roll_back_groups(const AttachmentRecords &records, const Tables &tables, const AttachmentRecord &before,
                              const AttachmentRecord &given) {
    const std::size_t added = before.whole_size + record_text(only_groups(given)).size();
    const AttachmentRecord old = with_groups(before, groups_in(before));
    if (!TRY(cut_file(path_of(records, before), added, before.whole_size)) && !TRY(records.add(only_groups(old))))
        return {};
    return put_groups(tables, old);
}

// For an ADD. Added to the record, which is not written again: a DEL of that interface, which holds the lock shared as
// the ADD does, may have erased it.
Result<void> give_groups(const AttachmentRecords &records, const Tables &tables, const AttachmentRecord &other,
                         const std::vector<std::string> &groups, Rollback &rollback) {
    const AttachmentRecord given = with_groups(other, groups);
    TRY(cut_torn_end(records, other));
    if (!TRY(records.add(only_groups(given))))
        return {};
    rollback.add("giving its groups to " + other.ifname,
                 [records, &tables, other, given] { return roll_back_groups(records, tables, other, given); });
    return put_groups(tables, given);
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
        if (other.is_torn && !other.entry) { // and what is missing is its own ADD's
            log(cni::Log::Level::warning, "the record of container " + other.container_id + ", " + other.ifname +
                                              " is torn: this interface does not get the groups of " + request.ifname);
            continue;
        }
        TRY(give_groups(records, tables, other, request.config.groups, rollback));
    }
    return {};
}

Result<void> restore_groups_of_others(const cni::Request &request, const Tables &tables) {
    const AttachmentRecords records = records_of(request.config);
    const std::string prefix = record_file_name(request.container_id, {}), own = prefix + request.ifname;
    for (const std::string &name : TRY(names_in(records.directory()))) {
        const auto other = name.starts_with(prefix) && name != own
                               ? TRY(records.find(request.container_id, name.substr(prefix.size())))
                               : std::nullopt;
        // An earlier boot's names an interface that may be another pod's.
        if (!other || other->only_lease || !other->entry || !TRY(is_endpoint(tables, *other)))
            continue;
        if (TRY(is_add_under_way(*other))) // it writes to the record
            return {};
        TRY(cut_torn_end(records, *other));
        TRY(put_groups(tables, *other));
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
