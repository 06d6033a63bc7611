// SPDX-License-Identifier: MIT
#include "plugin/adopt.hpp"

#include "loader/host_veth.hpp"
#include "loader/object.hpp"
#include "loader/pod_namespace.hpp"
#include "plugin/announcement.hpp"
#include "plugin/foreign_qdisc.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/insert.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "loader/net/address.hpp"
#include "plugin/network.hpp"
#include "plugin/node.hpp"
#include "plugin/plan.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/history.hpp"
#include "plugin/limiter.hpp"
#include "plugin/remove.hpp"
#include "plugin/state.hpp"

#include <algorithm>

namespace podlane {
namespace {

Result<ip_addr> link_local_of(net::Netlink &inside, std::uint32_t ifindex) {
    for (const net::Address &one : TRY(net::list_addresses(inside, ifindex)))
        if (!is_ipv4(one.prefix.addr) && is_link_local(one.prefix.addr))
            return one.prefix.addr;
    return ip_addr{};
}

// Who routes what the interface sends: the host-side veth itself, the bridge it is a port of, or a machine beyond that
// bridge.
struct Router {
    Mac mac{}; // none for a machine beyond
    bool is_bridge = false;
};

Result<Router> router_of(net::Netlink &host, const net::Link &host_veth, const std::vector<cni::Address> &own) {
    const auto bridge = host_veth.master ? TRY(net::find_link(host, *host_veth.master)) : std::nullopt;
    if (!bridge)
        return Router{host_veth.mac, false};
    const auto present = TRY(net::list_addresses(host, bridge->ifindex));
    const auto is_gateway = [&](const cni::Address &one) {
        return one.gateway && std::ranges::any_of(present, [&](const net::Address &address) {
                   return address.prefix.addr == *one.gateway;
               });
    };
    if (std::ranges::any_of(own, is_gateway))
        return Router{bridge->mac, true};
    return Router{{}, true};
}

Result<void> attach_program(const std::string &root, const char *name, std::uint32_t ifindex, Hook hook,
                            HookKind kind) {
    const Fd program = TRY(open_program(root, name));
    auto done = attach(ifindex, hook, kind, program.get());
    if (!done)
        return std::move(done).error().context(std::string("program ") + name);
    return {};
}

Result<AdoptedPair> describe(const cni::Request &request, Sockets &sockets, const Adopted &pair) {
    const Router router =
        TRY(router_of(sockets.host, *pair.host, addresses_of(*request.config.prev_result, request.ifname)));
    AdoptedPair found{.host_ifname = pair.host->name, .ifindex = pair.host->ifindex, .pod_ifindex = pair.pod.ifindex};
    found.pod_mac = pair.pod.mac;
    found.router_mac = router.mac;
    if (request.config.egress_in_cluster && router.is_bridge)
        return Error{ErrorCode::unsupported_field,
                     pair.host->name + " is a port of a bridge: the rules of \"egress\" would see the bridge instead",
                     "take the key out, or chain Podlane after a plugin that makes no bridge (ptp)"};
    found.is_bridge_port = router.is_bridge;
    found.mtu = pair.pod.mtu;
    found.link_local = TRY(link_local_of(sockets.pod, pair.pod.ifindex));
    found.has_foreign_qdisc =
        request.config.fast_path != cni::FastPath::off && !TRY(foreign_qdisc(sockets.host, *pair.host)).empty();
    if (found.has_foreign_qdisc)
        log(cni::Log::Level::info,
            pair.host->name + " has a foreign qdisc: its packets take the slow path and pass that qdisc");
    return found;
}

Result<Plan> plan_beside(const cni::Request &request, const net::Namespace &pod, Sockets &sockets, const Adopted &pair,
                         const std::optional<EgressRoute> &egress, const ContainerLinks &others) {
    NodeFacts facts = TRY(network_facts(request.config, egress));
    facts.flags = others.flags;
    Plan plan = TRY(make_plan_beside(request, TRY(describe(request, sockets, pair)), facts));
    plan.hook_kind = TRY(choose_hook_kind(request.config, pair.host->ifindex));
    plan.netns_inode = pod.inode();
    plan.netns_id = pair.host->peer_nsid;
    return plan;
}

// A plugin that made more interfaces than this one names those too.
bool is_made_beside(const cni::Request &request, const net::Link &pod_end) {
    return pod_end.name != request.ifname &&
           std::ranges::any_of(request.config.prev_result->interfaces, [&](const cni::Interface &one) {
               return !one.sandbox.empty() && one.name == pod_end.name;
           });
}

// The veths that the plugin before made, if a process in the container has put another interface in the place of their
// other end, or renamed that. That of an endpoint has its programs.
Result<std::vector<net::Link>> find_replaced(const cni::Request &request, const net::Namespace &pod,
                                             const std::optional<net::Link> &host_veth, Sockets &sockets,
                                             const Tables &tables) {
    std::vector<net::Link> replaced;
    for (const cni::Interface &one : request.config.prev_result->interfaces) {
        auto link = one.sandbox.empty() ? TRY(net::find_link(sockets.host, one.name)) : std::nullopt;
        if (link && host_veth && link->ifindex == host_veth->ifindex)
            return std::vector<net::Link>{};
        if (!link || !TRY(net::has_peer_in(sockets.host, *link, pod)) || TRY(tables.interfaces.find(link->ifindex)))
            continue;
        const auto other_end = TRY(net::find_link(sockets.pod, *link->peer_ifindex));
        if (!other_end || !is_made_beside(request, *other_end))
            replaced.push_back(*std::move(link));
    }
    return replaced;
}

// They are up, and without programs would send whatever the container likes, after a DEL too that removes by name.
Result<void> refuse_replaced(const cni::Request &request, const net::Namespace &pod,
                             const std::optional<net::Link> &host_veth, Sockets &sockets, const Tables &tables) {
    const auto replaced = TRY(find_replaced(request, pod, host_veth, sockets, tables));
    if (replaced.empty())
        return {};
    Error error{
        ErrorCode::invalid_network_config,
        "the container's interface " + request.ifname + " is not the other end of " + replaced.front().name +
            ", which prevResult names",
        "nothing in the container may rename or replace it before its ADD has ended: start the container again"};
    for (const net::Link &one : replaced)
        if (const auto down = net::set_link(sockets.host, one.ifindex, {.up = false}); !down)
            error.message += "; and " + down.error().message;
    return error;
}

Result<bool> is_interface_of(const endpoint_key &key, const endpoint &entry, const cni::Request &request,
                             const net::Namespace &pod, const Adopted &pair, Sockets &sockets) {
    if (pair.host)
        return entry.ifindex == pair.host->ifindex && TRY(find_host_veth(sockets.host, entry)).has_value();
    if (entry.ifindex != 0 || entry.netns_inode != pod.inode() || entry.pod_ifindex != pair.pod.ifindex)
        return false;
    const auto record = TRY(records_of(request.config)
                                .find(std::string(field_text(key.container_id)), std::string(field_text(key.ifname))));
    // Another namespace may have the number of one that is gone.
    const std::uint64_t cookie = record ? record->netns_cookie : 0;
    return cookie != 0 ? sockets.pod.is_in(cookie) : pair.pod.mac == to_mac(entry.pod_mac);
}

// By another container ID, or another name of the interface.
Result<void> refuse_others(const cni::Request &request, const net::Namespace &pod, const Adopted &pair,
                           Sockets &sockets, const Tables &tables) {
    if (pair.host && !TRY(tables.interfaces.find(pair.host->ifindex)))
        return {};
    const endpoint_key own = TRY(make_endpoint_key(request.container_id, request.ifname));
    for (const auto &[key, entry] : TRY(tables.endpoints.entries()))
        if (!same_bytes(key, own) && TRY(is_interface_of(key, entry, request, pod, pair, sockets)))
            return Error{ErrorCode::already_exists,
                         "the container's interface " + request.ifname + " is that of container " +
                             std::string(field_text(key.container_id)) + ", interface " +
                             std::string(field_text(key.ifname)),
                         "DEL of that attachment comes before an ADD"};
    return {};
}

} // namespace

Result<net::Namespace> open_container(const cni::Request &request) {
    auto container = net::Namespace::open(request.netns);
    if (!container) {
        Error error = std::move(container).error().context("CNI_NETNS");
        error.code = ErrorCode::invalid_environment;
        error.hint = "the runtime names the container's namespace there, such as /run/netns/NAME: if its sandbox is "
                     "gone, it has to make another one";
        return error;
    }
    return container;
}

Result<net::Netlink> open_recorded(const net::Namespace &container, const cni::Request &recorded,
                                   const endpoint &entry) {
    auto inside = TRY(open_pod(container, entry, recorded.netns_cookie));
    if (!inside)
        return Error{ErrorCode::missing, recorded.netns + " is another namespace now", kRecreateSandbox};
    return *std::move(inside);
}

Result<Adopted> find_pair(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                          const Tables &tables) {
    auto pod_end = TRY(net::find_link(sockets.pod, request.ifname));
    auto host_veth = pod_end ? TRY(find_other_end(sockets.host, *pod_end, pod)) : std::nullopt;
    TRY(refuse_replaced(request, pod, host_veth, sockets, tables));
    if (!pod_end)
        return Error{ErrorCode::unknown_container, "there is no interface " + request.ifname + " in the container"};
    Adopted pair{*std::move(pod_end), std::move(host_veth)};
    TRY(refuse_others(request, pod, pair, sockets, tables));
    return pair;
}

Result<void> attach_programs(const std::string &root, std::uint32_t ifindex, HookKind kind) {
    const Step step(STEP_PROGRAMS);
    for (const HookProgram &one : kPodPrograms)
        TRY(attach_program(root, one.name, ifindex, one.hook, kind));
    return {};
}

Result<cni::Attachment> adopt_interface(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                                        const Tables &tables, const Adopted &pair,
                                        const std::optional<EgressRoute> &egress, Rollback &rollback) {
    const ContainerLinks others = TRY(find_container_links(request, tables, sockets.pod, pod.inode(), egress));
    Plan plan = TRY(plan_beside(request, pod, sockets, pair, egress, others));
    TRY(must_carry(egress, plan.addresses));
    TRY(enter_network(request, plan.network, egress, tables, sockets.host, rollback));
    const ConflictProbe probe = TRY(ConflictProbe::start(egress, plan.addresses));
    if (!plan.qdisc.empty()) // the link outlives a DEL, which has to know of the qdisc before it is there
        TRY(update_record(request, TRY(make_endpoint(request, plan)), nullptr, plan.uplink));
    TRY(start_limiter(request.config, sockets.pod, plan, rollback));
    const endpoint record = TRY(make_endpoint(request, plan));
    const auto own = addresses_of(*request.config.prev_result, request.ifname);
    const SourceEntries sources = TRY(wanted_source_routes(record, own, others.peers, egress, tables, sockets.host));
    TRY(log_plan(request, plan, record, sources));
    TRY(update_record(request, record, nullptr, plan.uplink));
    const NewEndpoint made{request, plan, record, sources, others.peers, egress};
    TRY(insert_endpoint(made, tables, sockets.host, rollback));
    TRY(net::set_link(sockets.host, plan.ifindex, {.up = true})); // a DEL before set it down
    TRY(put_rules_beside(request, tables, others, record, sockets.pod));
    TRY(masquerade(plan.masquerade, request.config, plan.masqueraded));
    return publish_endpoint(made, probe, tables, sockets.host, rollback);
}

} // namespace podlane
