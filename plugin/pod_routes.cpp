// SPDX-License-Identifier: MIT
#include "plugin/pod_routes.hpp"

#include "loader/foreign_rule.hpp"
#include "loader/host_route.hpp"
#include "loader/net/link.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/wait.hpp"
#include "maps/errors.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/pod_rules.hpp"

#include <algorithm>
#include <vector>

namespace podlane {
namespace {

std::uint32_t metric_of(const net::RouteSpec &route) {
    constexpr std::uint32_t kDefaultIpv6Metric = 1024; // IP6_RT_PRIO_USER
    return route.priority.value_or(is_ipv4(route.destination.addr) ? 0 : kDefaultIpv6Metric);
}

// Every next hop that Podlane sets is the host-side veth, whatever its address.
Result<bool> leads_to_host_veth(net::Netlink &pod, const endpoint &record, const net::RouteSpec &route) {
    if (!route.gateway)
        return false;
    const auto neighbour = TRY(net::find_neighbour(pod, record.pod_ifindex, *route.gateway));
    if ((record.flags & INTERFACE_MAC_LEARNED) != 0 && (!neighbour || neighbour->mac == Mac{}))
        return true; // the program answers for it
    return neighbour && (neighbour->permanent || (record.flags & INTERFACE_MAC_LEARNED) != 0) &&
           std::ranges::equal(neighbour->mac, record.host_mac);
}

// multus removes the default routes of all interfaces but the requested one; a gateway may be in a subnet of
// another one.
Result<bool> may_be_missing(net::Netlink &pod, const endpoint &record, net::RouteSpec route) {
    route.ifindex = record.pod_ifindex;
    const auto is_other = [&](const net::Link &one) { return one.ifindex != record.pod_ifindex && one.name != "lo"; };
    if (route.destination.length == 0)
        return std::ranges::any_of(TRY(net::list_links(pod)), is_other);
    return TRY(subnet_on_other_link(pod, route)).has_value();
}

// None of the interface's has the gateway of the plan.
Result<void> check_other(const Inside &in, const endpoint &record, const net::RouteSpec &planned,
                         const std::vector<net::RouteSpec> &present) {
    const std::string named = "route " + to_string(planned.destination);
    const auto other = std::ranges::find(present, planned.destination, &net::RouteSpec::destination);
    if (other == present.end()) {
        if (TRY(net::find_route(in.pod, {.destination = planned.destination})) ||
            TRY(may_be_missing(in.pod, record, planned)))
            return {};
        auto refusing = TRY(find_refusing(in, planned));
        return refusing ? *std::move(refusing) : gone(named + " is gone from the container");
    }
    if (TRY(leads_to_host_veth(in.pod, record, *other)))
        return {};
    return gone(named + " of the container " +
                (other->gateway ? "leads to " + to_string(*other->gateway) : "has no gateway") +
                " rather than to the host-side veth");
}

// Every next hop of the plan is the host-side veth: a later plugin may prefer another of them.
bool is_next_hop(const Plan &plan, const std::optional<ip_addr> &gateway) {
    return gateway &&
           std::ranges::any_of(plan.pod_neighbours, [&](const net::Neighbour &one) { return one.addr == *gateway; });
}

// Of the interface: a later plugin may have moved some to another table. Rules in the container have copies in theirs.
std::vector<net::RouteSpec> own_of(std::vector<net::RouteSpec> all, const endpoint &record) {
    std::erase_if(all, [&](const net::RouteSpec &one) {
        return one.ifindex != record.pod_ifindex || is_pod_rules_table(record, one.table.value_or(net::kMainTable));
    });
    return all;
}

// A VRF's addresses are in its table.
bool is_local_route(const net::RouteSpec &one, const ip_addr &addr) {
    return one.type == net::kLocal && one.destination == host_prefix(addr) && one.table != net::kLocalTable;
}

// Why the container sends nothing to where no route of its own leads.
Result<std::optional<Error>> find_barrier(const Inside &in, net::Family family) {
    const auto route = TRY(net::route_to(in.pod, net::unrouted_addr(family)));
    return route && !refuses_packets(*route) ? Result<std::optional<Error>>(std::nullopt)
                                             : find_refusing_rule(in.pod, in.netns, family);
}

Result<std::vector<net::RouteSpec>> all_in(net::Netlink &pod, net::Family family) {
    return net::list_routes(pod, 0, family, net::kAllTables);
}

Result<void> restore_one(const Inside &in, const endpoint &record, const Plan &plan, net::RouteSpec route) {
    const auto there = own_of(TRY(all_in(in.pod, net::family_of(route.destination.addr))), record);
    if (plan.uplink == 0)
        TRY(step_behind_other_link(in.pod, route));
    const auto same = std::ranges::find(there, route.destination, &net::RouteSpec::destination);
    const bool is_there = same != there.end();
    if (auto refusing = TRY(find_refusing(in, is_there ? *same : route)))
        return *std::move(refusing);
    if (is_there && (same->gateway == route.gateway || is_next_hop(plan, same->gateway)))
        return {};
    if (is_there)
        TRY(net::remove_route(in.pod, *same));
    return add_pod_route(in.pod, route);
}

} // namespace

Result<bool> is_delivered(net::Netlink &pod, const ip_addr &addr) {
    if (const auto route = TRY(net::route_to(pod, addr)); route && route->type == net::kLocal)
        return true;
    return std::ranges::any_of(TRY(all_in(pod, net::family_of(addr))),
                               [&](const net::RouteSpec &one) { return is_local_route(one, addr); });
}

Error undelivered(const Inside &in, const ip_addr &addr) {
    return {ErrorCode::check_failed,
            "the local route to " + to_string(addr) +
                " is gone from the container, or hidden: it does not take packets to it for its own",
            "`podlanectl repair`; if that fails, see `nsenter --net=" + in.netns + " ip " +
                (is_ipv4(addr) ? "" : "-6 ") + "route show table local`, or delete the pod's sandbox"};
}

// As the kernel does it when it adds an address.
Result<void> deliver(net::Netlink &pod, std::uint32_t ifindex, const ip_addr &addr) {
    constexpr std::uint8_t kHostScope = 254, kOfKernel = 2; // RT_SCOPE_HOST, RTPROT_KERNEL
    net::RouteSpec own{.destination = host_prefix(addr), .ifindex = ifindex, .table = net::kLocalTable};
    own.type = net::kLocal;
    own.protocol = kOfKernel;
    if (is_ipv4(addr)) {
        own.scope = kHostScope;
        own.preferred_source = addr;
    }
    TRY(net::add_route(pod, own));
    return {};
}

Result<void> wait_until_delivered(net::Netlink &pod, const ip_addr &addr) {
    constexpr std::chrono::seconds kLimit{10}; // the worker shares the CPU with all other starting pods
    if (is_ipv4(addr))
        return {};
    net::RouteSpec own{.destination = host_prefix(addr), .table = net::kLocalTable};
    own.type = net::kLocal;
    if (TRY(net::wait_for_route(pod, own, kLimit)))
        return {};
    return Error{ErrorCode::try_again_later,
                 "the container's address " + to_string(addr) + " did not become usable within 10 s",
                 "the kernel does this in a worker (ipv6_addrconf), which has had no turn: the node is overloaded"};
}

Result<std::optional<Error>> find_refusing(const Inside &in, const net::RouteSpec &route) {
    const std::uint32_t table = route.table.value_or(net::kMainTable);
    for (const net::RouteSpec &one : TRY(net::list_routes(in.pod, 0, net::family_of(route.destination.addr), table)))
        if (one.destination == route.destination && refuses_packets(one) && metric_of(one) <= metric_of(route))
            return std::optional(Error{ErrorCode::check_failed,
                                       "route " + route_words(one) + " of the container refuses its packets",
                                       "`nsenter --net=" + in.netns + " ip " + removal_of(one) +
                                           "`, then `podlanectl repair`; or delete the pod's sandbox"});
    return std::optional<Error>{};
}

// A later plugin may have moved a route to another table (sbr), and an earlier interface may have had it first. One of
// the interface's own by a gateway that is not ours leads astray.
Result<void> check_pod_routes(const Inside &in, const endpoint &record, const Plan &plan) {
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6}) {
        auto all = TRY(all_in(in.pod, family));
        bool is_used = false;
        for (const ip_addr &addr : addresses_in(record)) {
            if (net::family_of(addr) != family)
                continue;
            is_used = true;
            if (!TRY(is_delivered(in.pod, addr)))
                return undelivered(in, addr);
        }
        const bool may_refuse = std::ranges::any_of(all, refuses_packets);
        const auto present = own_of(std::move(all), record);
        for (const net::RouteSpec &route : plan.pod_routes) {
            if (is_ipv4(route.destination.addr) != (family == net::Family::ipv4))
                continue;
            const auto same = std::ranges::find_if(present, [&](const net::RouteSpec &one) {
                return one.destination == route.destination && one.gateway == route.gateway;
            });
            if (same == present.end()) {
                TRY(check_other(in, record, route, present));
                continue;
            }
            if (auto refusing = may_refuse ? TRY(find_refusing(in, *same)) : std::nullopt)
                return *std::move(refusing);
        }
        if (auto barrier = is_used ? TRY(find_barrier(in, family)) : std::nullopt)
            return *std::move(barrier);
    }
    return {};
}

Result<void> restore_pod_routes(const Inside &in, const endpoint &record, const Plan &plan) {
    Errors errors;
    for (net::RouteSpec route : plan.pod_routes) {
        route.ifindex = record.pod_ifindex;
        errors.add(restore_one(in, record, plan, std::move(route)));
    }
    return std::move(errors).result();
}

} // namespace podlane
