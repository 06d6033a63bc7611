// SPDX-License-Identifier: MIT
#include "plugin/restore.hpp"

#include "loader/edt.hpp"
#include "loader/host_veth.hpp"
#include "loader/limit.hpp"
#include "loader/limit_group.hpp"
#include "loader/lost.hpp"
#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "loader/pod_namespace.hpp"
#include "loader/shaper.hpp"
#include "loader/upgrade.hpp"
#include "maps/errors.hpp"
#include "plugin/adopt.hpp"
#include "plugin/announcement.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/egress_rules.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/network_keys.hpp"
#include "plugin/node.hpp"
#include "plugin/others.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/plan.hpp"
#include "plugin/remove.hpp"
#include "plugin/restore_tried.hpp"
#include "plugin/state.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace podlane {
namespace {

Result<Recorded> lost_from(const AttachmentRecord &record) {
    Recorded lost{TRY(recorded_request(record)), {}, *record.entry};
    lost.lease = TRY(recorded_lease(lost.request, record));
    return lost;
}

// The first entry is that of whoever inserts it. false: another call restores the attachment.
Result<bool> insert_endpoint(const Recorded &lost, const Tables &tables) {
    auto inserted =
        tables.endpoints.insert(TRY(make_endpoint_key(lost.request.container_id, lost.request.ifname)), lost.entry);
    if (!inserted && inserted.error().code != ErrorCode::already_exists)
        return std::move(inserted).error();
    return static_cast<bool>(inserted);
}

// In the order of an ADD: the addresses come last; but for the programs. Those of the lost maps serve until all of the
// container's interfaces are known to the new ones. false: another call restores it.
Result<bool> restore_entries(const Recorded &lost, const Tables &tables, net::Netlink &host, Rollback &rollback) {
    const cni::Request &request = lost.request;
    if (lost.entry.ifindex == 0) { // no program, map or network is concerned
        rollback.keep(TRY(Lock::shared(request.config.bpffs)));
        TRY(tables.check_generation(request.config.bpffs));
        return insert_endpoint(lost, tables);
    }
    const auto egress = TRY(find_egress_route(request.config, host));
    const NetworkPlan network = TRY(plan_recorded_network(request.config, lost.entry));
    TRY(enter_network(request, network, egress, tables, host, rollback));
    if (!TRY(insert_endpoint(lost, tables)))
        return false;
    TRY(put_endpoint(tables, request.config, lost.entry));
    TRY(put_egress_rules(request.config, lost.entry));
    TRY(forget_connections_beyond(tables, request.config, lost.entry));
    if (lost.entry.masquerade != ENDPOINT_MASQUERADE_NONE)
        TRY(masquerade(static_cast<endpoint_masquerade>(lost.entry.masquerade), request.config,
                       prefixes_of(lost.lease, request.ifname)));
    TRY(put_addresses(tables, lost.entry));
    TRY(put_senders(tables, lost.entry, rollback));
    TRY(announce_addresses(egress, addresses_in(lost.entry), host));
    return true;
}

// An attachment that was found lost.
struct Lost {
    AttachmentRecord record;
    Recorded recorded;
    Result<void> completed{}; // once its entries are there
};

struct Context {
    const AttachmentRecords &records;
    const Tables &tables;
    net::Netlink &host;
    std::vector<AttachmentRecord> living; // of the node, as living_on_disk() has them
};

// Without a host-side veth an interface is known by the container that it is in.
bool is_same(const endpoint &a, const endpoint &b) {
    return a.ifindex == b.ifindex && a.pod_ifindex == b.pod_ifindex && a.netns_inode == b.netns_inode;
}

// No DEL has removed it since, and no ADD has made it again.
Result<bool> is_current(const Lost &lost, const Context &on) {
    const auto now = TRY(on.records.find(lost.record.container_id, lost.record.ifname));
    return now && now->entry && is_same(*now->entry, lost.recorded.entry) && TRY(is_living(lost.record, on.host));
}

// The DEL that came between may not have seen what was inserted. What an ADD that came between has made has the same
// name: of that nothing but the entries of the earlier interface is removed.
Result<void> remove_restored(const Lost &lost, const Context &on) {
    const auto &[request, lease, entry] = lost.recorded;
    const auto now = TRY(on.records.find(lost.record.container_id, lost.record.ifname));
    const bool is_made_again = now && !now->only_lease && (!now->entry || !is_same(*now->entry, entry));
    TRY(is_made_again ? erase_endpoint(on.tables, entry, &request.config)
                      : remove_again({request, entry, &request.config, lost.record.uplink, &on.tables,
                                      lost.record.has_egress_rules},
                                     on.host));
    const endpoint_key key = TRY(make_endpoint_key(request.container_id, request.ifname));
    if (const auto there = TRY(on.tables.endpoints.find(key)); there && is_same(*there, entry))
        TRY(on.tables.endpoints.remove(key));
    return {};
}

// Called after all is inserted: a DEL that erases the record later finds it, unless it deleted the first entry before
// the last one was inserted. false: the attachment is gone, and nothing is left of what was restored.
Result<bool> keep_if_current(const Lost &lost, bool is_whole, const Context &on) {
    const std::uint32_t ifindex = lost.recorded.entry.ifindex;
    if (TRY(is_current(lost, on)) && (!is_whole || ifindex == 0 || TRY(on.tables.interfaces.find(ifindex))))
        return true;
    TRY(remove_restored(lost, on));
    return false;
}

// false: it is not lost any more.
Result<bool> restore_one(const Lost &lost, const Context &on) {
    if (!TRY(is_current(lost, on)))
        return false;
    // Never used, as in reinstate(), which completes what fails here: the pod lives, and the programs drop what an
    // interface without an entry sends.
    Rollback rollback;
    auto restored = restore_entries(lost.recorded, on.tables, on.host, rollback);
    rollback.commit();
    return TRY(keep_if_current(lost, restored && *restored, on)) ? std::move(restored) : Result<bool>(false);
}

// Flags of the container's other interfaces change with it. Whoever else changes flags holds the shared lock, or this
// one.
Result<void> restore_beside_others(const Recorded &recorded, const Context &on) {
    if ((recorded.entry.flags & (INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE | INTERFACE_POD_RULES)) == 0)
        return {};
    const std::string &root = recorded.request.config.bpffs;
    const Lock lock = TRY(Lock::exclusive(root));
    TRY(on.tables.check_generation(root));
    Errors errors;
    errors.add(restore_source_routes(recorded, on.tables, on.host));
    errors.add(rejoin_container(recorded.request, on.tables, recorded.entry));
    return std::move(errors).result();
}

// One that podlanectl has set since the ADD: the map of limits has it, unless its pin was lost as well.
Result<void> enforce_set_limit(const Recorded &recorded, const Tables &tables) {
    const auto limits = TRY(tables.bandwidths.find(recorded.entry.ifindex));
    if (!limits || is_enforced(recorded.entry, *limits))
        return {};
    const std::string &root = recorded.request.config.bpffs;
    const Lock lock = TRY(Lock::exclusive(root));
    TRY(tables.check_generation(root));
    return set_limits(TRY(LimitTables::open(root)),
                      TRY(make_endpoint_key(recorded.request.container_id, recorded.request.ifname)), *limits);
}

// Of some it may not be known: then `are_all` becomes false.
Result<std::vector<AttachmentRecord>> find_lost(std::vector<AttachmentRecord> records, const Endpoints *endpoints,
                                                net::Netlink &host, bool &are_all) {
    Errors unknown;
    auto lost = TRY(lost_attachments(std::move(records), endpoints, host, unknown));
    are_all = are_all && unknown.none();
    if (const auto looked = std::move(unknown).result(); !looked)
        log(cni::Log::Level::error, "looking for attachments that lost their entries: " + looked.error().message);
    return lost;
}

Result<void> complete(const Recorded &recorded, const Context &on) {
    Errors errors;
    errors.add(restore_limiter(recorded, on.tables));
    errors.add(enforce_set_limit(recorded, on.tables));
    errors.add(restore_beside_others(recorded, on));
    return std::move(errors).result();
}

Result<void> attach_restored(const Recorded &recorded, const Tables &tables) {
    const std::string &root = recorded.request.config.bpffs;
    if (recorded.entry.ifindex == 0)
        return {};
    const Lock lock = TRY(Lock::shared(root));
    TRY(tables.check_generation(root));
    return attach_programs(root, recorded.entry.ifindex, hook_kind_of(recorded.entry.attach));
}

// Of one container. Each on its own: one that fails does not keep the others from being restored. Those that a DEL
// removes meanwhile are left out.
Result<void> restore_container(std::span<AttachmentRecord> records, const Context &on, std::vector<Restored> &all) {
    std::vector<Lost> restored;
    for (AttachmentRecord &record : records) {
        auto recorded = lost_from(record);
        if (!recorded) {
            all.push_back({std::move(record), std::move(recorded).error()});
            continue;
        }
        Lost lost{std::move(record), std::move(recorded).value()};
        auto keys = take_network_keys(on.living, on.host, lost.recorded.request.config);
        const auto done = keys ? restore_one(lost, on) : std::move(keys).error();
        if (!done)
            all.push_back({std::move(lost.record), done.error()});
        else if (*done)
            restored.push_back(std::move(lost));
    }
    for (Lost &lost : restored)
        lost.completed = complete(lost.recorded, on);
    for (Lost &lost : restored) {
        auto attached = attach_restored(lost.recorded, on.tables);
        const Result<void> &failed = lost.completed ? attached : lost.completed;
        const auto kept = keep_if_current(lost, true, on);
        if (!kept)
            all.push_back({std::move(lost.record), kept.error()});
        else if (*kept)
            all.push_back({std::move(lost.record), failed ? std::nullopt : std::optional(failed.error())});
    }
    return {};
}

Result<std::vector<Restored>> restore_each(std::vector<AttachmentRecord> records, const Context &on) {
    std::ranges::stable_sort(records, {}, &AttachmentRecord::container_id);
    std::vector<Restored> all;
    for (auto first = records.begin(); first != records.end();) {
        const auto last = std::find_if(
            first, records.end(), [&](const AttachmentRecord &one) { return one.container_id != first->container_id; });
        TRY(restore_container({first, last}, on, all));
        first = last;
    }
    return all;
}

void report(const Restored &one) {
    const std::string who = "container " + one.record.container_id + ", " + one.record.ifname;
    if (one.failed)
        log(cni::Log::Level::error, who + " has lost its entries in the maps: " + one.failed->message);
    else
        log(cni::Log::Level::warning, who + " had lost its entries in the maps; they are restored");
}

// If one is not back, or its record could not be read, calls try again.
Result<void> note_restored(const AttachmentRecords &records, std::uint64_t generation, bool were_all_read,
                           const std::vector<Restored> &restored) {
    const bool is_whole =
        were_all_read && std::ranges::none_of(restored, [](const Restored &one) { return one.failed.has_value(); });
    if (is_whole)
        return records.note_generation(generation);
    note_tried(records, generation);
    return records.forget_uninstall();
}

// The configuration of one of them says what the programs are to be loaded with.
Result<void> load_as_recorded(const std::vector<AttachmentRecord> &records) {
    Result<void> loaded;
    for (const AttachmentRecord &record : records) {
        auto request = recorded_request(record);
        if (!request) {
            loaded = std::move(request).error();
            continue;
        }
        TRY(prepare_node(request->config)); // loads all if there are no pins
        return complete_pins(request->config.bpffs);
    }
    return loaded;
}

} // namespace

Result<void> restore_source_routes(const Recorded &recorded, const Tables &tables, net::Netlink &host) {
    if ((recorded.entry.flags & (INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE)) == 0)
        return {};
    const net::Namespace pod = TRY(open_container(recorded.request));
    net::Netlink inside = TRY(open_recorded(pod, recorded.request, recorded.entry));
    const auto egress = TRY(find_egress_route(recorded.request.config, host));
    const auto peers = TRY(find_peer_interfaces(recorded.request, tables, inside, pod.inode()));
    const auto own = addresses_of(recorded.lease, recorded.request.ifname);
    const SourceEntries wanted = TRY(wanted_source_routes(recorded.entry, own, peers, egress, tables, host));
    Rollback rollback;
    TRY(put_source_routes(wanted, peers, tables, rollback));
    rollback.commit();
    TRY(remove_stale_slots(recorded.entry, wanted, tables));
    return record_numbering(egress, recorded.request.config.bpffs, host);
}

Result<void> restore_limiter(const Recorded &recorded, const Tables &tables) {
    const endpoint &entry = recorded.entry;
    const bandwidth limits = TRY(tables.bandwidths.find(entry.ifindex)).value_or(bandwidth{});
    if ((entry.flags & INTERFACE_LIMIT_EDT) != 0) {
        const bandwidth most = TRY(with_borrowed(tables.bandwidths, tables.limit_states, entry.ifindex, limits));
        TRY(put_edt(entry.ifindex, most.ingress_rate_bits_per_s, most.ingress_burst_bits));
    }
    if (entry.shaped == 0 && entry.mode == ENDPOINT_AFTER_MAIN)
        return {};
    const std::string &netns = recorded.request.netns;
    const auto pod = TRY(net::Namespace::find(netns));
    auto inside = pod ? TRY(open_pod(*pod, entry, recorded.request.netns_cookie)) : std::nullopt;
    if (!inside)
        return entry.shaped == 0 ? Result<void>{}
                                 : Error{ErrorCode::missing,
                                         netns + " is not the container's namespace any more: its qdisc stays as it is",
                                         kRecreateSandbox};
    // Of a limit that podlanectl set before the pins were lost, or that a killed `bandwidth set` has not set.
    if (entry.shaped == 0 || limits.egress_rate_bits_per_s == 0)
        return open_shaper(*inside, entry.pod_ifindex);
    TRY(put_shaper(*inside, entry.pod_ifindex, limits));
    return {};
}

namespace {

// A directory that is not the configured one may be missing, full or read-only: that keeps no pod from its interface.
template <typename Restore> Result<void> in_each_directory(const cni::Config &config, const Restore &restore) {
    for (const std::string &directory : state_directories_of(config)) {
        auto restored = restore(directory);
        if (!restored && directory == config.state_dir)
            return restored;
        if (!restored)
            log(cni::Log::Level::warning,
                "restoring endpoints on record in " + directory + ": " + restored.error().message);
    }
    return {};
}

Result<void> restore_lost_in(const std::string &directory, const cni::Config &config, const Tables &tables) {
    const AttachmentRecords records(directory, config.bpffs);
    if (TRY(records.seen_generation()) == tables.generation || was_just_tried(records, tables.generation))
        return {};
    bool are_all = true;
    std::vector<AttachmentRecord> all = TRY(readable_records(records, are_all));
    if (all.empty() && directory != config.state_dir)
        return {};
    net::Netlink host = TRY(net::Netlink::open());
    auto lost = TRY(find_lost(std::move(all), &tables.endpoints, host, are_all));
    auto living = TRY(living_on_disk(config.state_dir));
    const auto restored = TRY(restore_each(std::move(lost), {records, tables, host, std::move(living)}));
    for (const Restored &one : restored)
        report(one);
    return note_restored(records, tables.generation, are_all, restored);
}

Result<void> restore_removed_in(const std::string &directory, const cni::Config &config) {
    const AttachmentRecords records(directory, config.bpffs);
    const auto generation = generation_of(config.bpffs);
    // After the pins: an uninstall says so before it removes them.
    if (TRY(records.is_uninstalled()) ||
        (generation && (*generation == TRY(records.seen_generation()) || was_just_tried(records, *generation))))
        return {};
    if (!generation && generation.error().code != ErrorCode::missing)
        return generation.error();
    const auto restored = restore_all(directory, config.bpffs);
    if (generation && (!restored || restored->empty())) // it has noted nothing
        note_tried(records, *generation);
    for (const Restored &one : TRY(restored))
        report(one);
    return {};
}

} // namespace

Result<void> restore_lost_endpoints(const cni::Config &config, const Tables &tables) {
    return in_each_directory(config,
                             [&](const std::string &directory) { return restore_lost_in(directory, config, tables); });
}

Result<void> restore_after_removal(const cni::Config &config) {
    if (auto shared = refuse_other_netns(config.bpffs, TRY(net::own_netns())); !shared)
        return shared.error().code == ErrorCode::plugin_not_available ? Result<void>{} : shared;
    return in_each_directory(config,
                             [&](const std::string &directory) { return restore_removed_in(directory, config); });
}

Result<std::vector<Restored>> restore_all(const std::string &state_directory, const std::string &root) {
    const AttachmentRecords records(state_directory, root);
    net::Netlink host = TRY(net::Netlink::open());
    const auto endpoints = open_endpoints(root, Access::read_only);
    if (!endpoints && endpoints.error().code != ErrorCode::missing)
        return endpoints.error();
    bool are_all = true;
    auto lost =
        TRY(find_lost(TRY(readable_records(records, are_all)), endpoints ? &*endpoints : nullptr, host, are_all));
    if (lost.empty())
        return std::vector<Restored>{};
    TRY(load_as_recorded(lost));
    const Tables tables = TRY(Tables::open(root));
    auto living = TRY(living_on_disk(state_directory));
    auto restored = TRY(restore_each(std::move(lost), {records, tables, host, std::move(living)}));
    TRY(note_restored(records, tables.generation, are_all, restored));
    return restored;
}

} // namespace podlane
