// SPDX-License-Identifier: MIT
#include "plugin/adopt.hpp"

#include "loader/object.hpp"
#include "loader/net/qdisc.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/announcement.hpp"
#include "loader/net/address.hpp"
#include "plugin/network.hpp"
#include "plugin/node.hpp"
#include "plugin/plan.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/history.hpp"
#include "plugin/limiter.hpp"
#include "plugin/state.hpp"

#include <algorithm>

namespace podlane {
namespace {

constexpr const char *kVeth = "veth";

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

// What a plugin before us in the list, such as `bandwidth`, does by a qdisc it does to what takes the host stack alone.
Result<bool> has_foreign_qdisc(net::Netlink &host, const net::Link &host_veth) {
    const std::string &root = host_veth.qdisc;
    return (!root.empty() && root != "noqueue" && root != "noop") ||
           TRY(net::ingress_qdisc(host, host_veth.ifindex)) == net::kIngressQdisc;
}

Result<std::uint32_t> without_fast_path(net::Netlink &host, const net::Link &host_veth, std::uint32_t flags) {
    constexpr std::uint32_t kFast = std::uint32_t{INTERFACE_FAST_LOCAL} | INTERFACE_FAST_UPLINK;
    if ((flags & kFast) == 0 || !TRY(has_foreign_qdisc(host, host_veth)))
        return flags;
    log(cni::Log::Level::info,
        host_veth.name + " has a foreign qdisc: all its packets take the host stack, and so that qdisc");
    return flags & ~kFast;
}

// Pods of one bridge reach each other by their MACs: what one of them sends past the bridge, the other would answer by
// it.
std::uint32_t flags_for(const cni::Request &request, const Router &router, std::size_t address_count) {
    std::uint32_t flags = interface_flags_of(request.config, address_count);
    if (router.is_bridge)
        flags &= ~std::uint32_t{INTERFACE_FAST_LOCAL};
    if (router.mac == Mac{})
        flags = (flags & ~std::uint32_t{INTERFACE_FAST_UPLINK}) | INTERFACE_BRIDGED;
    return flags;
}

Result<void> attach_program(const std::string &root, const char *name, std::uint32_t ifindex, Hook hook,
                            HookKind kind) {
    const Fd program = TRY(open_program(root, name));
    auto done = attach(ifindex, hook, kind, program.get());
    if (!done)
        return std::move(done).error().context(std::string("program ") + name);
    return {};
}

Result<EndpointFacts> facts_of(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                               const Adopted &pair, const std::optional<EgressRoute> &way) {
    EndpointFacts facts{.mode = ENDPOINT_AFTER_MAIN,
                        .hook_kind = TRY(choose_hook_kind(request.config, pair.host->ifindex))};
    const Router router =
        TRY(router_of(sockets.host, *pair.host, addresses_of(*request.config.prev_result, request.ifname)));
    facts.addresses = TRY(adopted_addresses(request));
    facts.netns_inode = pod.inode();
    facts.ifindex = pair.host->ifindex;
    facts.pod_ifindex = pair.pod.ifindex;
    facts.host_ifname = pair.host->name;
    facts.pod_mac = pair.pod.mac;
    facts.host_mac = router.mac;
    facts.mtu = pair.pod.mtu;
    facts.flags = TRY(without_fast_path(sockets.host, *pair.host, flags_for(request, router, facts.addresses.size())));
    facts.link_local = TRY(link_local_of(sockets.pod, pair.pod.ifindex));
    facts.masquerade = TRY(masquerade_of(request.config));
    if (way && (facts.flags & INTERFACE_BRIDGED) != 0)
        return Error{ErrorCode::unsupported_field,
                     pair.host->name +
                         " is a port of a bridge that does not route for it: nothing of the network passes " +
                         way->uplink.name + " by the node's routes",
                     "take \"uplink\" out, or give the bridge the gateway's address (isGateway)"};
    return facts;
}

} // namespace

Result<net::Namespace> open_container(const cni::Request &request) {
    auto container = net::Namespace::open(request.netns);
    if (!container) {
        Error error = std::move(container).error().context("CNI_NETNS");
        error.code = ErrorCode::invalid_environment;
        return error;
    }
    return container;
}

Result<Adopted> find_pair(Sockets &sockets, const std::string &ifname) {
    auto pod_end = TRY(net::find_link(sockets.pod, ifname));
    if (!pod_end)
        return Error{ErrorCode::unknown_container, "there is no interface " + ifname + " in the container"};
    Adopted pair{*std::move(pod_end), {}};
    if (pair.pod.kind != kVeth || !pair.pod.peer_ifindex)
        return pair;
    auto host_veth = TRY(net::find_link(sockets.host, *pair.pod.peer_ifindex));
    // A peer in the container itself has the number of some other interface here.
    if (host_veth && host_veth->kind == kVeth && host_veth->peer_ifindex == pair.pod.ifindex &&
        host_veth->peer_nsid.has_value() == pair.pod.peer_nsid.has_value())
        pair.host = std::move(host_veth);
    return pair;
}

Result<std::vector<ip_addr>> adopted_addresses(const cni::Request &request) {
    std::vector<ip_addr> addresses;
    for (const cni::Address &one : addresses_of(*request.config.prev_result, request.ifname))
        addresses.push_back(one.prefix.addr);
    if (addresses.empty() || addresses.size() > ENDPOINT_ADDRESSES)
        return Error{ErrorCode::invalid_network_config, "prevResult gives " + std::to_string(addresses.size()) +
                                                            " addresses to " + request.ifname + ", 1 to " +
                                                            std::to_string(ENDPOINT_ADDRESSES) + " are supported"};
    return addresses;
}

Result<void> attach_programs(const std::string &root, std::uint32_t ifindex, HookKind kind) {
    const Step step(STEP_PROGRAMS);
    TRY(attach_program(root, PODLANE_PROGRAM_FROM_POD, ifindex, Hook::ingress, kind));
    return attach_program(root, PODLANE_PROGRAM_TO_POD, ifindex, Hook::egress, kind);
}

Result<cni::Attachment> adopt_interface(const cni::Request &request, const net::Namespace &pod, Sockets &sockets,
                                        const Tables &tables, const Adopted &pair,
                                        const std::optional<EgressRoute> &way, Rollback &rollback) {
    const Lock lock = TRY(enter_network(request, way, tables, sockets.host, rollback));
    const auto own = addresses_of(*request.config.prev_result, request.ifname);
    EndpointFacts facts = TRY(facts_of(request, pod, sockets, pair, way));
    const ConflictProbe question = TRY(ConflictProbe::ask(way, facts.addresses));
    std::vector<net::Link> foreign_links;
    const auto siblings = TRY(find_peer_interfaces(request, tables, sockets.pod, pod.inode(), &foreign_links));
    facts.flags |= source_flags(request.config, siblings, way);
    if (request.config.source_routing && (!foreign_links.empty() || (facts.flags & INTERFACE_BRIDGED) != 0))
        facts.flags |= INTERFACE_POD_RULES;
    facts.flags |= TRY(start_limiter(request.config, facts.ifindex, rollback));
    const endpoint record = TRY(make_endpoint(request, facts));
    TRY(update_record(request, record, nullptr, way ? way->uplink.ifindex : 0));
    TRY(put_endpoint(tables, request, record, rollback));
    rollback.add("attaching the programs", [ifindex = record.ifindex]() -> Result<void> {
        TRY(detach(ifindex, Hook::ingress));
        TRY(detach(ifindex, Hook::egress));
        return {};
    });
    TRY(attach_programs(request.config.bpffs, record.ifindex, facts.hook_kind));
    TRY(net::set_link(sockets.host, record.ifindex, {.up = true})); // a DEL before set it down
    TRY(put_rules_beside(foreign_links, siblings, record, addresses_with_gateways(request, record), sockets.pod,
                         rollback));
    if (record.masquerade != ENDPOINT_MASQUERADE_NONE)
        TRY(masquerade(facts.masquerade, request.config, prefixes_of(*request.config.prev_result, request.ifname),
                       rollback));
    TRY(question.must_be_free());
    TRY(put_addresses(tables, record, rollback));
    TRY(put_source_routes(TRY(wanted_source_routes(record, own, siblings, way, tables, sockets.host)), siblings, tables,
                          rollback));
    TRY(record_numbering(way, request.config.bpffs, sockets.host));
    TRY(announce_addresses(way, facts.addresses, sockets.host, rollback));
    return *request.config.prev_result;
}

} // namespace podlane
