// SPDX-License-Identifier: MIT
#include "plugin/found.hpp"

#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "maps/tables.hpp"
#include "plugin/state.hpp"
#include "plugin/turn.hpp"

namespace podlane {
namespace {

// Those of its container's other attachments, one of which may be the caller's own, remove nothing of it.
Result<bool> is_any_own_add_under_way(const cni::Request &request) {
    AttachmentRecord own;
    own.container_id = request.container_id;
    own.ifname = request.ifname;
    for (const std::string &directory : state_directories_of(request.config)) {
        own.state_directory = directory;
        if (TRY(is_own_add_under_way(own)))
            return true;
    }
    return false;
}

// None beside the maps of another network namespace, and if they cannot be read, which the removal reports.
std::optional<endpoint> entry_below(const std::string &root, const endpoint_key &key) {
    const auto own = net::own_netns();
    if (!own || !refuse_other_netns(root, *own))
        return std::nullopt;
    const auto endpoints = open_endpoints(root, Access::read_only);
    const auto entry = endpoints ? endpoints->find(key) : Result<std::optional<endpoint>>(endpoints.error());
    return entry ? *entry : std::nullopt;
}

// Each ADD changes both: a record that is looked for wherever the removal does, and the entry, wherever the record is.
Result<bool> is_as_found(const cni::Request &request, const Found &found) {
    if (!found.has_hanging_add && TRY(is_any_own_add_under_way(request)))
        return false;
    const auto read = find_record(request); // one that cannot be read keeps nobody from a removal
    const AttachmentRecord *record = read && *read ? &**read : nullptr;
    if (record != nullptr && !found.records.contains({record->boot_id, record->created_boottime_ns}))
        return false;
    const auto entry = entry_below(record != nullptr ? record->root : request.config.bpffs,
                                   TRY(make_endpoint_key(request.container_id, request.ifname)));
    return !entry || found.ifindexes.contains(entry->ifindex);
}

} // namespace

void Found::add(const AttachmentRecord &record) {
    records.emplace(record.boot_id, record.created_boottime_ns);
    if (record.entry)
        ifindexes.insert(record.entry->ifindex);
}

Result<std::optional<std::vector<Fd>>> take_turn_of_found(const cni::Request &request, const Found &found) {
    std::optional<std::vector<Fd>> turn = take_turn_of_del(request);
    if (!TRY(is_as_found(request, found)))
        turn.reset();
    return turn;
}

std::string has_come_since(const cni::Request &request) {
    return "an ADD of container " + request.container_id + ", " + request.ifname + " has come since it was found dead";
}

Result<void> remove_found(const AttachmentRecord &record, const std::string &state_directory, Lease lease) {
    const cni::Request request = request_of(record, state_directory);
    Found found;
    found.add(record);
    if (!record.entry) // a torn one, beside the entry
        if (const auto entry = entry_below(record.root, TRY(make_endpoint_key(record.container_id, record.ifname))))
            found.ifindexes.insert(entry->ifindex);
    const auto turn = TRY(take_turn_of_found(request, found));
    if (!turn)
        return Error{ErrorCode::already_exists, has_come_since(request), "if it is dead again, repeat the call"};
    return remove_attachment(request, lease);
}

} // namespace podlane
