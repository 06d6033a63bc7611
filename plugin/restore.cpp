// SPDX-License-Identifier: MIT
#include "plugin/restore.hpp"

#include "loader/lost.hpp"
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "loader/upgrade.hpp"
#include "plugin/adopt.hpp"
#include "plugin/announcement.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/egress_rules.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/node.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/plan.hpp"
#include "plugin/state.hpp"

#include <utility>
#include <vector>

namespace podlane {
namespace {

Result<Recorded> lost_from(const AttachmentRecord &record) {
    Recorded lost{TRY(recorded_request(record)), {}, *record.entry};
    lost.lease = TRY(recorded_lease(lost.request, record));
    return lost;
}

// In the order of an ADD: the addresses come last.
Result<void> restore_entries(const Recorded &lost, const Tables &tables, net::Netlink &host, Rollback &rollback) {
    const cni::Request &request = lost.request;
    const auto egress = TRY(find_egress_route(request.config, host));
    const NetworkPlan network = TRY(plan_network(request.config, TRY(network_facts(request.config, egress))));
    TRY(enter_network(request, network, tables, host, rollback));
    TRY(tables.endpoints.insert(TRY(make_endpoint_key(request.container_id, request.ifname)), lost.entry));
    TRY(put_endpoint(tables, request.config, lost.entry));
    TRY(put_egress_rules(request.config, lost.entry));
    TRY(forget_connections_beyond(request.config, lost.entry));
    TRY(attach_programs(request.config.bpffs, lost.entry.ifindex,
                        lost.entry.attach == ENDPOINT_TCX ? HookKind::tcx : HookKind::clsact));
    if (lost.entry.masquerade != ENDPOINT_MASQUERADE_NONE)
        TRY(masquerade(static_cast<endpoint_masquerade>(lost.entry.masquerade), request.config,
                       prefixes_of(lost.lease, request.ifname)));
    TRY(put_addresses(tables, lost.entry, rollback));
    return announce_addresses(egress, addresses_in(lost.entry), host);
}

Result<void> restore_one(const Recorded &lost, const Tables &tables, net::Netlink &host) {
    // Never used, as in reinstate(), which completes what fails here: the pod lives, and the programs drop what an
    // interface without an entry sends.
    Rollback rollback;
    auto restored = restore_entries(lost, tables, host, rollback);
    rollback.commit();
    return restored;
}

// Each on its own: one that fails does not keep the others from being restored.
Result<std::vector<Restored>> restore_each(std::vector<AttachmentRecord> records, const Tables &tables,
                                           net::Netlink &host) {
    std::vector<Restored> all;
    std::vector<std::pair<std::size_t, Recorded>> restored;
    for (AttachmentRecord &record : records) {
        auto lost = lost_from(record);
        const auto done = lost ? restore_one(*lost, tables, host) : Result<void>(lost.error());
        all.push_back({std::move(record), done ? std::nullopt : std::optional(done.error())});
        if (done)
            restored.emplace_back(all.size() - 1, std::move(*lost));
    }
    for (const auto &[index, lost] : restored)
        if (auto done = restore_source_routes(lost, tables, host); !done)
            all[index].failed = done.error();
    return all;
}

void report(const Restored &one) {
    const std::string who = "container " + one.record.container_id + ", " + one.record.ifname;
    if (one.failed)
        log(cni::Log::Level::error, who + " has lost its entries in the maps: " + one.failed->message);
    else
        log(cni::Log::Level::warning, who + " had lost its entries in the maps; they are restored");
}

// An upgrade recreates single pins; without any there is nothing to upgrade.
Result<void> complete_pins(const cni::Config &config) {
    TRY(prepare_node(config));
    if (!check_pins(config.bpffs))
        TRY(upgrade(config.bpffs, false));
    return {};
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
        return complete_pins(request->config);
    }
    return loaded;
}

} // namespace

Result<void> restore_source_routes(const Recorded &recorded, const Tables &tables, net::Netlink &host) {
    if ((recorded.entry.flags & (INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE)) == 0)
        return {};
    const net::Namespace pod = TRY(open_container(recorded.request));
    net::Netlink inside = TRY(net::Netlink::open_in(pod));
    const auto egress = TRY(find_egress_route(recorded.request.config, host));
    const auto peers = TRY(find_peer_interfaces(recorded.request, tables, inside, pod.inode()));
    const auto own = addresses_of(recorded.lease, recorded.request.ifname);
    Rollback rollback;
    TRY(put_source_routes(TRY(wanted_source_routes(recorded.entry, own, peers, egress, tables, host)), peers, tables,
                          rollback));
    rollback.commit();
    return record_numbering(egress, recorded.request.config.bpffs, host);
}

Result<void> restore_lost_endpoints(const cni::Config &config, const Tables &tables) {
    const AttachmentRecords records = records_of(config);
    if (TRY(records.seen_generation()) == tables.generation)
        return {};
    net::Netlink host = TRY(net::Netlink::open());
    for (const Restored &one : TRY(restore_each(TRY(lost_attachments(records, &tables.endpoints, host)), tables, host)))
        report(one);
    return records.note_generation(tables.generation);
}

Result<void> restore_after_removal(const cni::Config &config) {
    if (!refuse_other_netns(config.bpffs, TRY(own_netns())))
        return {};
    const auto generation = generation_of(config.bpffs);
    if (generation && *generation == TRY(records_of(config).seen_generation()))
        return {};
    if (!generation && generation.error().code != ErrorCode::missing)
        return generation.error();
    for (const Restored &one : TRY(restore_all(config.state_dir, config.bpffs)))
        report(one);
    return {};
}

Result<std::vector<Restored>> restore_all(const std::string &state_directory, const std::string &root) {
    const AttachmentRecords records(state_directory, root);
    net::Netlink host = TRY(net::Netlink::open());
    const auto endpoints = open_endpoints(root, Access::read_only);
    if (!endpoints && endpoints.error().code != ErrorCode::missing)
        return endpoints.error();
    auto lost = TRY(lost_attachments(records, endpoints ? &*endpoints : nullptr, host));
    if (lost.empty())
        return std::vector<Restored>{};
    TRY(load_as_recorded(lost));
    const Tables tables = TRY(Tables::open(root));
    auto restored = TRY(restore_each(std::move(lost), tables, host));
    TRY(records.note_generation(tables.generation));
    return restored;
}

} // namespace podlane
