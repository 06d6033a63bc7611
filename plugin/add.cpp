// SPDX-License-Identifier: MIT
#include "loader/object.hpp"
#include "plugin/adopt.hpp"
#include "plugin/announcement.hpp"
#include "plugin/cni/masked.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/foreign_qdisc.hpp"
#include "plugin/groups.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/history.hpp"
#include "plugin/insert.hpp"
#include "plugin/ipam.hpp"
#include "plugin/limiter.hpp"
#include "plugin/living.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "loader/net/address.hpp"
#include "loader/net/link.hpp"
#include "loader/net/sysctl.hpp"
#include "loader/net/wait.hpp"
#include "plugin/network.hpp"
#include "plugin/node.hpp"
#include "plugin/node_addresses.hpp"
#include "plugin/plan.hpp"
#include "plugin/plan_addresses.hpp"
#include "plugin/pod_routes.hpp"
#include "plugin/remove.hpp"
#include "plugin/restore.hpp"
#include "plugin/rollback.hpp"
#include "plugin/state.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/turn.hpp"
#include "plugin/verbs.hpp"

#include <algorithm>
#include <chrono>

namespace podlane {
namespace {

// The new pair, and the sockets its ends are configured by.
struct Pair {
    net::Netlink &host;
    net::Netlink &pod;
    net::Veth veth;
};

// A plugin that does not know of wishes would give the pod another address than it is configured for.
Result<void> check_wishes(const cni::Config &config, const cni::Attachment &lease) {
    for (const Prefix &wish : config.pod_addresses)
        if (std::ranges::none_of(lease.addresses,
                                 [&](const cni::Address &one) { return one.prefix.addr == wish.addr; }))
            return Error{ErrorCode::ipam,
                         "IPAM plugin \"" + config.ipam_type + "\" does not give the address " + to_string(wish.addr) +
                             " that the pod's annotation requests",
                         "remove the annotation, or use an IPAM plugin that gives the addresses of \"args\", as "
                         "host-local does"};
    return {};
}

Result<void> create_lease(const cni::Request &request, endpoint_mode mode, Rollback &rollback, cni::Attachment &lease) {
    if (mode != ENDPOINT_MAIN) {
        lease = *request.config.prev_result;
        return {};
    }
    if (!request.config.own_addresses.empty()) {
        for (const Prefix &one : request.config.own_addresses)
            lease.addresses.push_back({one, {}, {}});
        return {};
    }
    TRY(wait_for_gc(request.config));
    bool killed = false;
    auto given = request_lease(request, killed); // it releases what it cannot read
    if (killed)
        rollback.keep_records(); // of what it may have given
    settle_on_failure(request, TRY(given), rollback);
    lease = TRY(std::move(given)).lease;
    return check_wishes(request.config, lease);
}

// Of a pair that the kernel may have made without an answer that says so.
bool may_be_left(net::Netlink &host, const std::string &ifname, const Error &error) {
    if (error.code == ErrorCode::already_exists) // another one's
        return false;
    const auto link = net::find_link(host, ifname);
    return !link || *link;
}

Result<Pair> create_pair(Sockets &sockets, const net::Namespace &pod, const Plan &plan, const cni::Request &request,
                         Rollback &rollback) {
    const Step step(STEP_LINK);
    const net::VethSpec spec{request.ifname, plan.host_ifname, plan.pod_mac, plan.host_mac, plan.mtu, pod};
    auto veth = net::create_veth(sockets.host, spec);
    if (!veth) {
        if (may_be_left(sockets.host, plan.host_ifname, veth.error()))
            rollback.keep_records();
        return std::move(veth).error();
    }
    rollback.add("creating " + plan.host_ifname,
                 [&sockets, &request] { return remove_host_veth(sockets.host, request); });
    return Pair{sockets.host, sockets.pod, *std::move(veth)};
}

// Of a setting that "sysctls" names: a value that the kernel refuses is wrong there.
Error of_sysctls(Error error) {
    if (error.system_errno == EINVAL || error.system_errno == ERANGE || error.system_errno == ENOENT)
        error.code = ErrorCode::invalid_network_config;
    return std::move(error).context("sysctls");
}

// A setting that the kernel does not have needs no value.
Result<void> write_settings(const std::vector<Setting> &settings) {
    for (const Setting &one : settings) {
        auto written = net::write_sysctl_if_different(one.path, one.value);
        if (!written && one.required)
            return of_sysctls(std::move(written).error());
        if (!written && written.error().code != ErrorCode::missing)
            return std::move(written).error();
    }
    return {};
}

// With CNI_NETNS_OVERRIDE the namespace may be the node's, which must go on forwarding.
Result<void> write_pod_settings(const net::Namespace &pod, std::vector<Setting> settings, const std::string &ifname) {
    if (pod == TRY(net::Namespace::current()))
        std::erase_if(settings,
                      [&](const Setting &one) { return std::ranges::find(one.path, ifname) == one.path.end(); });
    return settings.empty() ? Result<void>{} : net::in_namespace(pod, [&] { return write_settings(settings); });
}

// udev and systemd overwrite a MAC at times: what the kernel has now is what counts. false: it is set again, and the
// link's permanent neighbours went with the other one.
Result<bool> keep_mac(net::Netlink &netlink, std::uint32_t ifindex, const Mac &mac, const std::string &ifname) {
    const auto link = TRY(net::find_link(netlink, ifindex));
    if (!link)
        return Error{ErrorCode::netlink, ifname + " vanished while it was set up"};
    if (link->mac == mac)
        return true;
    log(cni::Log::Level::warning, "something changed the MAC of " + ifname + "; it is set again");
    TRY(net::set_link(netlink, ifindex, {.mac = mac}));
    return false;
}

Result<void> put_pod_neighbours(Pair &pair, const Plan &plan) {
    for (const net::Neighbour &gateway : plan.pod_neighbours)
        TRY(net::put_neighbour(pair.pod, pair.veth.pod_ifindex, gateway.addr, gateway.mac));
    return {};
}

Result<void> put_host_neighbours(Pair &pair, const Plan &plan) {
    for (const net::Neighbour &pod : plan.host_neighbours)
        TRY(net::put_neighbour(pair.host, pair.veth.host.ifindex, pod.addr, pod.mac));
    return {};
}

Result<void> configure_pod(const net::Namespace &pod, Pair &pair, const Plan &plan, const std::string &ifname) {
    const Step step(STEP_POD);
    const std::uint32_t ifindex = pair.veth.pod_ifindex;
    TRY(net::set_loopback_up(pair.pod));
    TRY(write_pod_settings(pod, plan.pod_settings, ifname));
    TRY(net::set_link(pair.pod, ifindex, {.up = true, .addr_gen_mode = net::AddrGenMode::none}));
    for (const net::Address &one : plan.pod_addresses)
        TRY(net::add_address(pair.pod, ifindex, one));
    TRY(put_pod_neighbours(pair, plan));
    for (net::RouteSpec route : plan.pod_routes) {
        route.ifindex = ifindex;
        if (plan.uplink == 0)
            TRY(step_behind_other_link(pair.pod, route));
        TRY(add_pod_route(pair.pod, route));
    }
    return TRY(keep_mac(pair.pod, ifindex, plan.pod_mac, ifname)) ? Result<void>{} : put_pod_neighbours(pair, plan);
}

// The kernel starts the queue of the end that was set up first, and makes an IPv6 address its own, in workers: a moment
// later. Until then what the pod sends is lost, and packets to the address are refused.
Result<void> wait_until_usable(Pair &pair, const Plan &plan, const std::string &ifname) {
    const Step step(STEP_WAIT);
    constexpr std::chrono::seconds kLimit{10}; // the workers share the CPU with all other starting pods
    if (!TRY(net::wait_for_link(pair.pod, pair.veth.pod_ifindex, kLimit)))
        return Error{ErrorCode::try_again_later, ifname + " of the container could send nothing within 10 s",
                     "the kernel does this in a worker (linkwatch), which has had no turn: the node is overloaded"};
    for (const ip_addr &addr : plan.addresses)
        TRY(wait_until_delivered(pair.pod, addr));
    return {};
}

Result<void> configure_host(Pair &pair, const Plan &plan) {
    const Step step(STEP_HOST);
    const std::uint32_t ifindex = pair.veth.host.ifindex;
    TRY(write_settings(plan.host_settings));
    // First: to a link that is up, the kernel adds its multicast route once more, and walks those of all links for it.
    for (const net::Address &one : plan.host_addresses)
        TRY(net::add_address(pair.host, ifindex, one));
    TRY(net::set_link(pair.host, ifindex, {.up = true, .alias = plan.alias, .addr_gen_mode = net::AddrGenMode::none}));
    for (net::RouteSpec route : plan.host_routes) {
        route.ifindex = ifindex;
        if (!TRY(net::add_route(pair.host, route)) && !route.append)
            return has_route_already(route.destination.addr);
    }
    TRY(put_host_neighbours(pair, plan));
    return TRY(keep_mac(pair.host, ifindex, plan.host_mac, plan.host_ifname)) ? Result<void>{}
                                                                              : put_host_neighbours(pair, plan);
}

// Families whose default route another interface of the container has.
Result<std::uint32_t> default_route_flags(net::Netlink &pod) {
    std::uint32_t flags = 0;
    if (TRY(net::default_route(pod, net::Family::ipv4)))
        flags |= INTERFACE_NO_DEFAULT_IPV4;
    if (TRY(net::default_route(pod, net::Family::ipv6)))
        flags |= INTERFACE_NO_DEFAULT_IPV6;
    return flags;
}

// The tool that masquerades and the kernel's hook are chosen here; the plan says what is done by them.
Result<NodeFacts> facts_of(const cni::Request &request, const std::optional<EgressRoute> &egress_route,
                           Sockets &sockets) {
    NodeFacts facts = TRY(network_facts(request.config, egress_route));
    if (!request.config.mtu)
        facts.mtu = egress_route ? egress_route->uplink.mtu : TRY(uplink_mtu(sockets.host));
    if (!request.config.default_route)
        facts.flags |= TRY(default_route_flags(sockets.pod));
    return facts;
}

// The network's gateway, if the IPAM plugin names none: the container can have routes by it.
Result<void> complete_gateways(const std::optional<EgressRoute> &egress, net::Netlink &host, cni::Attachment &lease) {
    for (cni::Address &one : lease.addresses)
        if (egress && !one.gateway)
            one.gateway = TRY(gateway_for(*egress, one, host));
    return {};
}

// Completes the plan by the interface's number and the container's other interfaces.
Result<void> complete_plan(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                           const net::Veth &veth, const ContainerLinks &others, Plan &plan, Rollback &rollback) {
    plan.ifindex = veth.host.ifindex;
    plan.pod_ifindex = veth.pod_ifindex;
    plan.netns_id = veth.host.peer_nsid;
    plan.mtu = veth.host.mtu;
    plan.netns_inode = pod.inode();
    plan.flags |= others.flags;
    for (cni::Interface &one : plan.result.interfaces)
        one.mtu = one.mtu == 0U ? plan.mtu : one.mtu;
    return start_limiter(request.config, sockets.pod, plan, rollback);
}

// As the main plugin or after an IPAM plugin. If it fails, `rollback` has the steps to take.
Result<cni::Attachment> make_interface_for(const cni::Request &request, endpoint_mode mode, const net::Namespace &pod,
                                           Sockets &sockets, const Tables &tables,
                                           const std::optional<EgressRoute> &egress, Rollback &rollback) {
    cni::Attachment lease;
    TRY(create_lease(request, mode, rollback, lease));
    TRY(keep_families(request.config.ip_families, lease));
    TRY(complete_gateways(egress, sockets.host, lease));
    Plan plan = TRY(make_plan(request, lease, TRY(facts_of(request, egress, sockets))));
    TRY(check_new_routes(request.config, plan.result.routes, plan.mtu));
    TRY(must_carry(egress, plan.addresses));
    TRY(refuse_addresses_of_node(request.config, addresses_of(lease, request.ifname), egress, sockets.host));
    TRY(enter_network(request, plan.network, egress, tables, sockets.host, rollback));
    TRY(write_node_settings(request.config, sockets.host, plan.node_settings));
    const ConflictProbe probe = TRY(ConflictProbe::start(egress, plan.addresses));
    Pair pair = TRY(create_pair(sockets, pod, plan, request, rollback));
    const ContainerLinks others = TRY(find_container_links(request, tables, sockets.pod, pod.inode(), egress));
    TRY(complete_plan(request, pod, sockets, pair.veth, others, plan, rollback));
    const endpoint record = TRY(make_endpoint(request, plan));
    const SourceEntries sources = TRY(
        wanted_source_routes(record, addresses_of(lease, request.ifname), others.peers, egress, tables, sockets.host));
    TRY(log_plan(request, plan, record, sources));
    TRY(update_record(request, record, mode == ENDPOINT_MAIN ? &lease : nullptr, plan.uplink));
    const NewEndpoint made{request, plan, record, sources, others.peers, egress};
    TRY(insert_endpoint(made, tables, sockets.host, rollback));
    TRY(configure_pod(pod, pair, plan, request.ifname));
    TRY(configure_host(pair, plan));
    TRY(put_rules_beside(request, tables, others, record, sockets.pod));
    TRY(masquerade(plan.masquerade, request.config, plan.masqueraded));
    TRY(wait_until_usable(pair, plan, request.ifname));
    return publish_endpoint(made, probe, tables, sockets.host, rollback);
}

// A daemon's plugin may name its own end alone, as Calico's does: whoever made the container's interface, it is there.
Result<endpoint_mode> with_unnamed_interface(const cni::Request &request, endpoint_mode mode, Sockets &sockets) {
    const bool may_be = mode == ENDPOINT_AFTER_IPAM && !request.config.prev_result->interfaces.empty();
    return may_be && TRY(net::find_link(sockets.pod, request.ifname)) ? ENDPOINT_AFTER_MAIN : mode;
}

// Before anything is made: from here on a DEL or GC finds what a killed ADD left. An earlier record names a lease that
// could not be released.
Result<void> record_on_disk(const cni::Request &request, endpoint_mode mode, Rollback &rollback) {
    const AttachmentRecords records = records_of(request.config);
    rollback.add_record("recording the attachment on disk",
                        [records, &request, kept = TRY(records.find(request.container_id, request.ifname))] {
                            return kept ? records.write(*kept) : records.erase(request.container_id, request.ifname);
                        });
    return records.write(TRY(record_of(request)), mode == ENDPOINT_MAIN ? Begin::at_once : Begin::later);
}

void log_identity(const cni::Request &request) {
    if (!is_logged(cni::Log::Level::info))
        return;
    std::string text = "node " + node_name(request.config);
    const auto put = [&](const char *what, const cni::Labels &all) {
        text += all.empty() ? "" : std::string("; ") + what;
        for (const auto &[key, value] : all)
            text += " " + key + "=" + (cni::sounds_secret(key) ? "(masked)" : cni::masked_text(value));
    };
    put("labels", request.pod.labels);
    put("annotations", request.pod.annotations);
    for (std::size_t i = 0; i < request.config.groups.size(); ++i)
        text += (i > 0 ? ", " : "; groups ") + request.config.groups[i];
    log(cni::Log::Level::info, text);
}

Result<cni::Attachment> make(const cni::Request &request, endpoint_mode mode, const net::Namespace &pod,
                             Sockets &sockets, const Tables &tables, Rollback &rollback) {
    const std::optional<EgressRoute> egress = TRY(usable_egress_route(request.config, sockets.host));
    return make_interface_for(request, mode, pod, sockets, tables, egress, rollback);
}

Result<cni::Attachment> adopt(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                              const Tables &tables, Rollback &rollback) {
    const Adopted pair = TRY(find_pair(request, pod, sockets, tables));
    if (!pair.host)
        return adopt_without_host_veth(request, pod, sockets, tables, pair.pod, rollback);
    const std::optional<EgressRoute> egress = TRY(usable_egress_route(request.config, sockets.host));
    return adopt_interface(request, pod, sockets, tables, pair, egress, rollback);
}

Result<void> finish(const cni::Request &request, const Tables &tables, net::Netlink &pod, Rollback &rollback) {
    TRY(share_groups(request, tables, pod, rollback));
    return refuse_removed(request, tables);
}

// The call, and what holds for its whole container: groups and forwarding are those of its other attachments too.
Result<cni::Request> for_container(const cni::Request &given, net::Netlink &pod) {
    cni::Request request = given;
    request.config.groups = TRY(groups_with_others(given, pod));
    request.config.allow_ip_forwarding = TRY(may_forward(given, pod));
    request.netns_cookie = TRY(pod.netns_cookie());
    return request;
}

// With programs that are loaded.
Result<std::string> add_to_node(const cni::Request &given, endpoint_mode mode, const net::Namespace &pod,
                                const Print &print) {
    const Tables tables = TRY(open_node(given.config));
    Sockets sockets{TRY(net::Netlink::open()), TRY(net::Netlink::open_in(pod))};
    mode = TRY(with_unnamed_interface(given, mode, sockets));
    TRY(refuse_second(given, mode, pod, sockets, tables));
    TRY(restore_lost_endpoints(given.config, tables));
    look_behind_last_adds(given.config, tables, sockets.host);
    const cni::Request request = TRY(for_container(given, sockets.pod));
    Rollback rollback;
    TRY(record_on_disk(request, mode, rollback));
    const auto make_and_print = [&]() -> Result<std::string> {
        const auto made = TRY(mode == ENDPOINT_AFTER_MAIN ? adopt(request, pod, sockets, tables, rollback)
                                                          : make(request, mode, pod, sockets, tables, rollback));
        TRY(finish(request, tables, sockets.pod, rollback));
        std::string text = cni::to_json(made, request.config.cni_version);
        TRY(print(text));
        return text;
    };
    auto result = make_and_print();
    if (!result) {
        const Step step(STEP_UNDO);
        return rollback.run(std::move(result).error());
    }
    rollback.commit();
    if (mode == ENDPOINT_MAIN)
        forget_held_leases(request);
    return result;
}

} // namespace

Result<std::string> add(const cni::Request &request, const Print &print) {
    const endpoint_mode mode = TRY(mode_of(request));
    const net::Namespace pod = TRY(open_container(request));
    if (!request.netns_override && pod == TRY(net::Namespace::current()))
        return Error{ErrorCode::invalid_environment, "CNI_NETNS " + request.netns + " is the plugin's own namespace",
                     "set CNI_NETNS_OVERRIDE=1 if that is meant"};
    log_identity(request);
    const Fd turn = TRY(take_turn_of_add(request));
    TRY(prepare_node(request.config));
    auto added = add_to_node(request, mode, pod, print);
    if (!added && has_restored_pins(request.config, added.error()))
        added = add_to_node(request, mode, pod, print);
    return added ? std::move(added) : with_removal(request.config, std::move(added).error());
}

} // namespace podlane
