// SPDX-License-Identifier: MIT
#include "plugin/reinstate.hpp"

#include "loader/host_route.hpp"
#include "loader/host_veth.hpp"
#include "loader/net/address.hpp"
#include "loader/net/link.hpp"
#include "loader/net/sysctl.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "maps/entries.hpp"
#include "maps/errors.hpp"
#include "plugin/adopt.hpp"
#include "plugin/announcement.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/egress_rules.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/network_keys.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/plan.hpp"
#include "plugin/pod_mac.hpp"
#include "plugin/pod_routes.hpp"
#include "plugin/remove.hpp"
#include "plugin/restore.hpp"
#include "plugin/state.hpp"

#include <algorithm>

namespace podlane {
namespace {

// The attachment as its ADD made it.
struct Whole : Recorded {
    net::Namespace pod;
    net::Netlink host;
    net::Netlink inside; // the container's namespace

    [[nodiscard]] bool is_own() const { return entry.mode != ENDPOINT_AFTER_MAIN; }
};

Result<Whole> open_whole(const AttachmentRecord &record, const endpoint &entry) {
    cni::Request request = TRY(recorded_request(record));
    cni::Attachment lease = TRY(recorded_lease(request, record));
    net::Namespace pod = TRY(open_container(request));
    net::Netlink inside = TRY(open_recorded(pod, request, entry));
    return Whole{
        {std::move(request), std::move(lease), entry}, std::move(pod), TRY(net::Netlink::open()), std::move(inside)};
}

Result<void> restore_in_pod(Whole &of, const Plan &plan) {
    const std::uint32_t ifindex = of.entry.pod_ifindex;
    const auto link = TRY(net::find_link(of.inside, of.request.ifname));
    if (!link || link->ifindex != ifindex)
        return Error{ErrorCode::missing, "interface " + of.request.ifname + " is gone from the container",
                     kRecreateSandbox};
    net::LinkChange change{.up = true};
    if (link->mac != to_mac(of.entry.pod_mac) && (of.entry.flags & INTERFACE_ROUTED) == 0)
        change.mac = to_mac(of.entry.pod_mac);
    if (!has_mtu_for(plan.addresses, link->mtu))
        change.mtu = of.entry.mtu;
    TRY(net::set_link(of.inside, ifindex, change));
    if (link->ipv6_off && !is_none(plan.link_local))
        TRY(switch_ipv6_on(of.pod, of.request.ifname));
    for (const net::Address &one : plan.pod_addresses)
        TRY(put_usable_address(of.inside, ifindex, one));
    for (const net::Neighbour &gateway : plan.pod_neighbours)
        TRY(net::put_neighbour(of.inside, ifindex, gateway.addr, gateway.mac));
    return restore_pod_routes({of.inside, of.request.netns}, of.entry, plan);
}

// Of whichever plugin made it: what others wrote about it, such as rules, calls it by its name.
Result<void> restore_name(Whole &of) {
    const auto link = TRY(find_host_veth(of.host, of.entry));
    if (!link || !is_renamed(*link, of.entry))
        return {};
    return net::rename_link(of.host, *link, std::string(field_text(of.entry.host_ifname)));
}

Result<void> restore_on_host(Whole &of, const Plan &plan) {
    const std::uint32_t ifindex = of.entry.ifindex;
    const auto link = TRY(net::find_link(of.host, ifindex));
    net::LinkChange change{.up = true, .alias = plan.alias};
    if (link && link->mac != to_mac(of.entry.host_mac))
        change.mac = to_mac(of.entry.host_mac);
    if (link && link->mtu != of.entry.mtu)
        change.mtu = of.entry.mtu;
    if (link && TRY(foreign_master(of.host, *link)))
        change.master = 0;
    TRY(net::set_link(of.host, ifindex, change));
    TRY(restore_ipv6(of.host, of.entry));
    Errors errors;
    for (net::RouteSpec route : plan.host_routes) {
        route.ifindex = ifindex;
        errors.add(restore_host_route(of.host, route));
    }
    for (const net::Neighbour &pod : plan.host_neighbours)
        TRY(net::put_neighbour(of.host, ifindex, pod.addr, to_mac(of.entry.pod_mac)));
    return std::move(errors).result();
}

Result<void> restore_whole(Whole &of, const Tables &tables, Rollback &rollback) {
    Errors errors;
    if (of.request.config.bandwidth) // of all pods of the root; before the network's lock is held
        errors.add(restore_pacing(of.request.config.bpffs));
    const auto egress = TRY(find_egress_route(of.request.config, of.host));
    NetworkPlan network = TRY(plan_recorded_network(of.request.config, of.entry));
    if (network.limit_group) // its rates stay as they are, as in keep_cidrs()
        if (const auto group = TRY(tables.limit_groups.find(network.limit_group->number)))
            network.limit_group->entry.configured = group->configured;
    TRY(enter_network(of.request, network, egress, tables, of.host, rollback));
    // Under the lock: its limits or its flags may have changed since it was read.
    const endpoint_key key = TRY(make_endpoint_key(of.request.container_id, of.request.ifname));
    if (const auto now = TRY(tables.endpoints.find(key)); now && now->ifindex == of.entry.ifindex)
        of.entry = *now;
    errors.add(restore_name(of));
    errors.add(follow_pod_link(tables, of.host, key, of.entry, of.inside, of.request.ifname));
    errors.add(insert_missing_entries(tables, of.request.config, of.entry));
    const auto limited = put_egress_rules(of.request.config, of.entry);
    errors.add(limited ? forget_connections_beyond(tables, of.request.config, of.entry) : limited);
    if (of.is_own()) {
        const Plan plan = TRY(make_plan(of.request, of.lease, recorded_facts(of.entry)));
        errors.add(restore_in_pod(of, plan));
        errors.add(restore_on_host(of, plan));
    }
    errors.add(restore_limiter(of, tables));
    if (of.entry.masquerade != ENDPOINT_MASQUERADE_NONE)
        errors.add(masquerade(static_cast<endpoint_masquerade>(of.entry.masquerade), of.request.config,
                              prefixes_of(of.lease, of.request.ifname)));
    errors.add(put_addresses(tables, of.entry));
    errors.add(restore_source_routes(of, tables, of.host));
    errors.add(put_senders(tables, of.entry, rollback));
    errors.add(rejoin_container(of.request, tables, of.entry));
    // Now they find the other interfaces of the container, whose packets they would drop.
    errors.add(attach_programs(of.request.config.bpffs, of.entry.ifindex, hook_kind_of(of.entry.attach)));
    errors.add(announce_addresses(egress, addresses_in(of.entry), of.host));
    return std::move(errors).result();
}

// All of it is in the container, but for the flags of the container's other interfaces.
Result<void> restore_without_host_veth(Whole &of, const Tables &tables) {
    const std::string &root = of.request.config.bpffs;
    const Lock lock = TRY(Lock::exclusive(root));
    TRY(tables.check_generation(root));
    return rejoin_container(of.request, tables, of.entry);
}

} // namespace

Result<void> put_usable_address(net::Netlink &pod, std::uint32_t ifindex, const net::Address &address) {
    const ip_addr &addr = address.prefix.addr;
    for (const net::Address &one : TRY(net::list_addresses(pod, ifindex)))
        if (one.prefix.addr == addr && !net::unusable_because(one, false).empty())
            TRY(net::remove_address(pod, ifindex, one));
    if (TRY(net::add_address(pod, ifindex, address)))
        return wait_until_delivered(pod, addr);
    return TRY(is_delivered(pod, addr)) ? Result<void>{} : deliver(pod, ifindex, addr);
}

Result<void> switch_ipv6_on(const net::Namespace &pod, const std::string &ifname) {
    return net::in_namespace(pod, [&]() -> Result<void> {
        TRY(net::write_sysctl_if_different({"net", "ipv6", "conf", ifname, "disable_ipv6"}, "0"));
        return {};
    });
}

Result<void> verify_recorded(const AttachmentRecord &record, const endpoint &entry, net::Netlink &pod,
                             Verifier &verifier) {
    cni::Request request = TRY(recorded_request(record));
    const cni::Attachment lease = TRY(recorded_lease(request, record));
    if (entry.mode != ENDPOINT_AFTER_MAIN)
        request.config.prev_result = TRY(make_plan(request, lease, recorded_facts(entry))).result;
    return verifier.verify(request, entry, pod, lease.routes);
}

Result<void> reinstate(const AttachmentRecord &record, LivingPods &living) {
    const Tables tables = TRY(Tables::open(record.root));
    const auto entry = TRY(tables.endpoints.find(TRY(make_endpoint_key(record.container_id, record.ifname))));
    if (!entry)
        return Error{ErrorCode::missing, "the maps do not know it"};
    Whole of = TRY(open_whole(record, *entry));
    if (entry->ifindex == 0)
        return restore_without_host_veth(of, tables);
    if (!TRY(find_host_veth(of.host, *entry)))
        return gone("the host-side veth " + std::string(field_text(entry->host_ifname)) + " is gone");
    TRY(take_network_keys(*TRY(living.of(of.request.config.state_dir, tables)), of.host, of.request.config));
    TRY(keep_cidrs(tables, of.request.config));
    Rollback rollback; // never used: half of what was missing is better than nothing
    auto done = restore_whole(of, tables, rollback);
    rollback.commit();
    return done;
}

Result<std::function<Result<void>()>> masquerading_as_others(const endpoint &entry, const std::string &root,
                                                             const std::vector<AttachmentRecord> &records,
                                                             const std::shared_ptr<LivingPods> &living) {
    if (entry.masquerade != ENDPOINT_MASQUERADE_NFTABLES)
        return std::function<Result<void>()>{};
    for (const AttachmentRecord &other : records)
        if (other.root == root && other.entry && other.entry->network == entry.network &&
            other.entry->masquerade == entry.masquerade)
            return std::function<Result<void>()>([entry, other, living]() -> Result<void> {
                std::vector<Prefix> own;
                for (const ip_addr &addr : addresses_in(entry))
                    own.push_back(host_prefix(addr));
                cni::Config config = TRY(recorded_request(other)).config;
                net::Netlink host = TRY(net::Netlink::open());
                const Tables tables = TRY(Tables::open(other.root));
                TRY(take_network_keys(*TRY(living->of(config.state_dir, tables)), host, config));
                return masquerade(ENDPOINT_MASQUERADE_NFTABLES, config, own);
            });
    return std::function<Result<void>()>{};
}

Result<void> repair_living(const std::string &root, const endpoint_key &key, const endpoint &record,
                           const std::optional<AttachmentRecord> &disk, const std::function<Result<void>()> &repair) {
    { const Lock after_adds = TRY(Lock::exclusive(root)); }
    const Tables tables = TRY(Tables::open(root));
    const auto lives = [&]() -> Result<bool> {
        const auto now = TRY(tables.endpoints.find(key));
        return now && now->ifindex == record.ifindex;
    };
    if (!TRY(lives()))
        return {};
    const auto is_entered = [&] { return tables.interfaces.find(record.ifindex); };
    const bool was_entered = TRY(is_entered()).has_value();
    auto done = repair();
    // A DEL finds by the first entry or the last ones what was inserted after it; not if it deleted the first one
    // before the last ones were.
    if (record.ifindex == 0 || (TRY(lives()) && (!was_entered || TRY(is_entered()))))
        return done;
    cni::Request request;
    request.container_id = field_text(key.container_id);
    request.ifname = field_text(key.ifname);
    request.config.name = field_text(record.network_name);
    request.config.bpffs = root;
    net::Netlink host = TRY(net::Netlink::open());
    return remove_again({request, record, nullptr, disk ? disk->uplink : 0, &tables, disk && disk->has_egress_rules},
                        host);
}

} // namespace podlane
