// SPDX-License-Identifier: MIT
#include "plugin/restore.hpp"

#include "loader/net/link.hpp"
#include "plugin/adopt.hpp"
#include "plugin/announcement.hpp"
#include "plugin/cni/request.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/plan.hpp"
#include "plugin/state.hpp"

#include <vector>

namespace podlane {
namespace {

struct Lost {
    cni::Request request; // of its ADD
    cni::Attachment lease;
    endpoint entry;
};

// As its runtime called the ADD.
Result<cni::Request> recorded_request(const AttachmentRecord &record) {
    return cni::parse_request({{"CNI_COMMAND", "ADD"},
                               {"CNI_CONTAINERID", record.container_id},
                               {"CNI_IFNAME", record.ifname},
                               {"CNI_NETNS", record.netns},
                               {"CNI_PATH", record.path},
                               {"CNI_ARGS", record.args}},
                              record.config);
}

// None if it is dead, known to the maps, or has no host-side veth that could lose anything.
Result<std::optional<Lost>> find_lost(const AttachmentRecord &record, const Tables &tables, net::Netlink &host,
                                      std::uint64_t node_netns) {
    if (!record.entry || record.entry->ifindex == 0 || record.node_netns != node_netns ||
        !TRY(is_of_this_boot(record)) ||
        TRY(tables.endpoints.find(TRY(make_endpoint_key(record.container_id, record.ifname)))))
        return std::optional<Lost>{};
    const auto link = TRY(net::find_link(host, record.entry->ifindex));
    if (!link || link->name != field_text(record.entry->host_ifname))
        return std::optional<Lost>{};
    Lost lost{TRY(recorded_request(record)), {}, *record.entry};
    lost.lease =
        lost.request.config.prev_result ? *lost.request.config.prev_result : TRY(cni::parse_attachment(record.lease));
    return std::optional(std::move(lost));
}

// In the order of an ADD: the addresses come last.
Result<void> restore_entries(const Lost &lost, const Tables &tables, net::Netlink &host, Rollback &rollback) {
    const cni::Request &request = lost.request;
    const auto way = TRY(find_egress_route(request.config, host));
    const Lock lock = TRY(enter_network(request, way, tables, host, rollback));
    TRY(put_endpoint(tables, request, lost.entry, rollback));
    TRY(attach_programs(request.config.bpffs, lost.entry.ifindex,
                        lost.entry.attach == ENDPOINT_TCX ? HookKind::tcx : HookKind::clsact));
    if (lost.entry.masquerade != ENDPOINT_MASQUERADE_NONE)
        TRY(masquerade(static_cast<endpoint_masquerade>(lost.entry.masquerade), request.config,
                       prefixes_of(lost.lease, request.ifname), rollback));
    TRY(put_addresses(tables, lost.entry, rollback));
    return announce_addresses(way, addresses_in(lost.entry), host, rollback);
}

Result<void> restore_one(const Lost &lost, const Tables &tables, net::Netlink &host) {
    Rollback rollback;
    if (auto restored = restore_entries(lost, tables, host, rollback); !restored)
        return rollback.undo(std::move(restored).error());
    rollback.commit();
    return {};
}

// After all endpoints are known: the container's other interfaces, and the network's own egress route.
Result<void> restore_source_routes(const Lost &lost, const Tables &tables, net::Netlink &host) {
    if ((lost.entry.flags & (INTERFACE_SIBLINGS | INTERFACE_WAY)) == 0)
        return {};
    const net::Namespace pod = TRY(open_container(lost.request));
    net::Netlink inside = TRY(net::Netlink::open_in(pod));
    const auto way = TRY(find_egress_route(lost.request.config, host));
    const auto peers = TRY(find_peer_interfaces(lost.request, tables, inside, pod.inode()));
    const auto own = addresses_of(lost.lease, lost.request.ifname);
    Rollback rollback;
    TRY(put_source_routes(TRY(wanted_source_routes(lost.entry, own, peers, way, tables, host)), peers, tables,
                          rollback));
    rollback.commit();
    return record_numbering(way, lost.request.config.bpffs, host);
}

void report(const Lost &lost, const Result<void> &restored) {
    const std::string who = "container " + lost.request.container_id + ", " + lost.request.ifname;
    if (restored)
        log(cni::Log::Level::warning, who + " had lost its entries in the maps; they are restored");
    else
        log(cni::Log::Level::error, who + " has lost its entries in the maps: " + restored.error().message);
}

} // namespace

Result<void> restore_lost_endpoints(const cni::Config &config, const Tables &tables) {
    const AttachmentRecords records = records_of(config);
    if (TRY(records.seen_generation()) == tables.generation)
        return {};
    net::Netlink host = TRY(net::Netlink::open());
    const std::uint64_t node_netns = TRY(net::Namespace::current()).inode();
    std::vector<Lost> restored;
    for (const AttachmentRecord &record : TRY(records.list())) {
        auto lost = find_lost(record, tables, host, node_netns);
        if (!lost)
            log(cni::Log::Level::error, "container " + record.container_id + ": " + lost.error().message);
        if (!lost || !*lost)
            continue;
        const auto done = restore_one(**lost, tables, host);
        report(**lost, done);
        if (done)
            restored.push_back(**std::move(lost));
    }
    for (const Lost &lost : restored)
        if (auto done = restore_source_routes(lost, tables, host); !done)
            report(lost, done);
    return records.note_generation(tables.generation);
}

} // namespace podlane
