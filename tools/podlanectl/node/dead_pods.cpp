// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/dead_pods.hpp"

#include "loader/lost.hpp"
#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/file.hpp"
#include "maps/tables.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/remove.hpp"
#include "plugin/state.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <algorithm>

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
        if (!is_on_disk)
            all.push_back(std::move(mapped));
    }
    return all;
}

// Of an ADD that is under way only the path is known. A failed look is no answer.
bool is_namespace_there(const std::string &path) {
    const auto there = exists(path);
    return !there || *there;
}

// Not from a container that has not mounted where runtimes keep namespaces. One of a process goes with that, and one
// that only the maps know has a host-side veth to go by, or nothing.
bool shows_namespace_of(const AttachmentRecord &one) {
    if (one.netns.empty())
        return one.entry && one.entry->ifindex != 0;
    return one.netns.starts_with("/proc/") || is_namespace_there(one.netns.substr(0, one.netns.rfind('/')));
}

} // namespace

Result<void> collect_dead_pods(const World &world, bool owned, const std::string &state_directory, DeadPods &dead) {
    const std::string boot = TRY(boot_id());
    if (auto torn = find_torn_records(state_directory, world.bpffs)) {
        dead.torn = *std::move(torn);
    } else { // the node is detached all the same
        dead.kept.emplace("torn records", "");
        dead.lines.push_back("kept: torn records: " + torn.error().message +
                             "; correct that, then podlanectl uninstall");
    }
    const auto namespaces = TRY(network_namespaces());
    net::Netlink host = TRY(net::Netlink::open());
    for (const AttachmentRecord &one : TRY(all_attachments(world, owned, state_directory))) {
        if (one.only_lease)
            continue;
        const bool is_of_boot = one.boot_id == boot;
        if (is_of_boot && one.entry && one.entry->ifindex != 0 && TRY(is_living(one, host)))
            continue;
        if (is_of_boot && (!shows_namespace_of(one) || (one.entry ? is_among(namespaces, *one.entry, one.netns_cookie)
                                                                  : is_namespace_there(one.netns)))) {
            ++dead.without_interface;
            continue;
        }
        const std::string container = "container " + one.container_id + ", " + one.ifname;
        const auto removed = remove_attachment(request_of(one, state_directory));
        if (!removed)
            dead.kept.emplace(one.container_id, one.ifname);
        dead.lines.push_back(removed ? "removed what was left of " + container + ", which is gone"
                                     : "kept: the record of " + container + ", which is gone: " +
                                           removed.error().message + "; correct that, then podlanectl uninstall");
    }
    return {};
}

Result<void> release_leases(const World &world, const std::string &state_directory, DeadPods &dead) {
    for (const AttachmentRecord &one : TRY(AttachmentRecords(state_directory, world.bpffs).list())) {
        if (!one.only_lease || dead.kept.contains({one.container_id, one.ifname}))
            continue;
        const auto released = release_held_lease(one, state_directory);
        if (!released)
            dead.kept.emplace(one.container_id, one.ifname);
        dead.lines.push_back(
            released ? std::string("released the lease that ") + (waits_for_release(one) ? "waited" : "was held") +
                           " since container " + one.container_id
                     : "kept: the lease of container " + one.container_id + ": " + released.error().message +
                           "; podlanectl lease release --container " + one.container_id + " --bpffs " + world.bpffs +
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
