// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/dead_pods.hpp"

#include "loader/expedited_rcu.hpp"
#include "loader/lost.hpp"
#include "loader/net/netlink.hpp"
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "maps/tables.hpp"
#include "plugin/found.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/state.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/by_container.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <algorithm>
#include <functional>

namespace podlane::ctl {
namespace {

// As a record would have it that is lost.
AttachmentRecord record_of_entry(const endpoint_key &key, const endpoint &entry, const std::string &root) {
    AttachmentRecord record;
    record.container_id = field_text(key.container_id);
    record.ifname = field_text(key.ifname);
    record.network = field_text(entry.network_name);
    record.root = root;
    record.entry = entry;
    return record;
}

// Of this node: on disk, and in its maps.
Result<std::vector<AttachmentRecord>> all_attachments(const World &world, bool owned,
                                                      const std::string &state_directory) {
    std::vector<AttachmentRecord> all = TRY(AttachmentRecords(state_directory, world.bpffs).list());
    const ThisNode node = TRY(ThisNode::now());
    std::erase_if(all, [&](const AttachmentRecord &one) { return !node.may_have_made(one); });
    if (!owned)
        return all;
    for (const auto &[key, entry] :
         TRY(read_map_if_there<endpoint_key, endpoint>(world.bpffs, PODLANE_MAP_ENDPOINTS))) {
        AttachmentRecord mapped = record_of_entry(key, entry, world.bpffs);
        mapped.boot_id = node.boot;
        const bool is_on_disk = std::ranges::any_of(all, [&](const AttachmentRecord &one) {
            return one.container_id == mapped.container_id && one.ifname == mapped.ifname;
        });
        if (is_on_disk)
            continue;
        if (const auto elsewhere = find_record(request_of(mapped, state_directory)); elsewhere && *elsewhere)
            mapped.created_boottime_ns = (*elsewhere)->created_boottime_ns; // remove_found() finds that one, too
        all.push_back(std::move(mapped));
    }
    return all;
}

// The outcome of each.
std::vector<Result<void>> do_for_each(const std::vector<AttachmentRecord> &records, std::size_t at_a_time,
                                      const std::function<Result<void>(const AttachmentRecord &)> &act) {
    std::vector<std::string> containers;
    containers.reserve(records.size());
    for (const AttachmentRecord &one : records)
        containers.push_back(one.container_id);
    std::vector<Result<void>> done(records.size());
    do_by_container(containers, at_a_time, [&](std::size_t i) { done[i] = act(records[i]); });
    static_cast<void>(ExpeditedRcu::clean_up()); // a child that was just started may have held the lock of the last
    return done;
}

} // namespace

Result<void> collect_dead_pods(const World &world, bool owned, const std::string &state_directory, DeadPods &dead) {
    const std::string boot = TRY(boot_id());
    if (auto torn = find_torn_records(state_directory, world.bpffs)) {
        dead.torn = *std::move(torn);
    } else { // the node is detached all the same
        dead.kept.emplace("torn records", "");
        dead.unread = std::move(torn).error();
    }
    const auto all = TRY(all_attachments(world, owned, state_directory));
    Errors hidden;
    const auto namespaces = TRY(network_namespaces(hidden)); // last: those of all that is on record are among them
    net::Netlink host = TRY(net::Netlink::open());
    std::vector<AttachmentRecord> gone;
    for (const AttachmentRecord &one : all) {
        if (one.only_lease)
            continue;
        const bool is_of_boot = one.boot_id == boot;
        if (is_of_boot && one.entry && one.entry->ifindex != 0 && TRY(is_living(one, host)))
            continue;
        if (is_of_boot &&
            (!shows_namespace_of(one, !hidden.none()) ||
             (one.entry ? is_among(namespaces, *one.entry, one.netns_cookie) : is_namespace_there(one.netns)))) {
            ++dead.without_interface;
            continue;
        }
        gone.push_back(one);
    }
    const std::size_t at_a_time = TRY(containers_at_a_time(world.bpffs));
    const auto removed =
        do_for_each(gone, at_a_time, [&](const AttachmentRecord &one) { return remove_found(one, state_directory); });
    for (std::size_t i = 0; i < gone.size(); ++i) {
        const std::string container = "container " + gone[i].container_id + ", " + gone[i].ifname;
        if (!removed[i])
            dead.kept.emplace(gone[i].container_id, gone[i].ifname);
        dead.lines.push_back(removed[i] ? "removed what was left of " + container + ", which is gone"
                                        : "kept: the record of " + container + ", which is gone: " +
                                              removed[i].error().message + "; correct that, then podlanectl uninstall");
    }
    return {};
}

Result<void> release_leases(const World &world, const std::string &state_directory, DeadPods &dead) {
    std::vector<AttachmentRecord> leases = TRY(AttachmentRecords(state_directory, world.bpffs).list());
    std::erase_if(leases, [&](const AttachmentRecord &one) {
        return !one.only_lease || dead.kept.contains({one.container_id, one.ifname});
    });
    const auto released = do_for_each(leases, kContainersAtATime, [&](const AttachmentRecord &one) {
        return release_held_lease(one, state_directory);
    });
    for (std::size_t i = 0; i < leases.size(); ++i) {
        const std::string &container = leases[i].container_id;
        if (!released[i])
            dead.kept.emplace(container, leases[i].ifname);
        dead.lines.push_back(
            released[i] ? std::string("released the lease that ") +
                              (waits_for_release(leases[i]) ? "waited" : "was held") + " since container " + container
                        : "kept: the lease of container " + container + ": " + released[i].error().message +
                              "; podlanectl lease release --container " + container + " --bpffs " + world.bpffs +
                              " --state-dir " + state_directory);
    }
    for (const AttachmentRecord &one : dead.torn.records) {
        const std::string container = "container " + one.container_id + ", " + one.ifname;
        const auto why_kept = release_torn_record(one, dead.torn);
        const bool is_released = why_kept && !*why_kept;
        if (!is_released)
            dead.kept.emplace(one.container_id, one.ifname);
        dead.lines.push_back(is_released ? "released the lease of " + container + ", whose record is torn"
                                         : "kept: the torn record of " + container + ": " +
                                               (why_kept ? **why_kept : why_kept.error().message) +
                                               "; have its IPAM plugin release the lease, then remove " +
                                               AttachmentRecords(state_directory, world.bpffs).directory() + "/" +
                                               record_file_name(one.container_id, one.ifname));
    }
    return {};
}

} // namespace podlane::ctl
