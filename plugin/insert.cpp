// SPDX-License-Identifier: MIT
#include "plugin/insert.hpp"

#include "plugin/adopt.hpp"
#include "plugin/egress_rules.hpp"
#include "plugin/isolation.hpp"
#include "plugin/node_addresses.hpp"
#include "plugin/remove.hpp"

namespace podlane {
namespace {

// Ends the connections that earlier owners of the endpoint's addresses opened: all if it is isolated, so that the table
// is read once. If an IPAM plugin has given an address twice, its owner lives, and keeps its connections. The
// endpoint's addresses come first: in the name of an isolated endpoint, nobody on an uplink opens another.
Result<void> forget_earlier_connections(const NewEndpoint &made, const Tables &tables, net::Netlink &host) {
    const cni::Config &config = made.request.config;
    if (!is_isolated(made.record) && !config.egress_in_cluster)
        return {};
    TRY(refuse_addresses_of_others(made.plan.host_routes, made.plan.ifindex, host));
    if (!is_isolated(made.record))
        return forget_connections_beyond(tables, config, made.record);
    TRY(put_addresses(tables, made.record));
    return forget_connections_of(tables, made.record);
}

} // namespace

Result<void> insert_endpoint(const NewEndpoint &made, const Tables &tables, net::Netlink &host, Rollback &rollback) {
    const cni::Config &config = made.request.config;
    const bool limits = !made.plan.egress_sets.empty();
    TRY(put_record({made.request, made.record, &config, made.plan.uplink, &tables, limits}, host, rollback));
    TRY(put_endpoint(tables, config, made.record));
    TRY(put_egress_rules(config, made.record));
    TRY(forget_earlier_connections(made, tables, host));
    return attach_programs(config.bpffs, made.plan.ifindex, made.plan.hook_kind);
}

Result<cni::Attachment> publish_endpoint(const NewEndpoint &made, const ConflictProbe &probe, const Tables &tables,
                                         net::Netlink &host, Rollback &rollback) {
    TRY(probe.must_be_free());
    if (!is_isolated(made.record))
        TRY(put_addresses(tables, made.record));
    std::optional<EgressRoute> egress = made.egress;
    SourceEntries sources = made.sources;
    TRY(look_again(egress, sources, host));
    TRY(put_source_routes(sources, made.peers, tables, rollback));
    TRY(put_senders(tables, made.record, rollback));
    TRY(record_numbering(egress, made.request.config.bpffs, host));
    TRY(announce_addresses(egress, made.plan.addresses, host));
    return made.plan.result;
}

} // namespace podlane
