// SPDX-License-Identifier: MIT
#include "plugin/pod_rules.hpp"

#include "loader/net/route.hpp"
#include "loader/net/rule.hpp"
#include "maps/entries.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/plan.hpp"

#include <algorithm>

namespace podlane {
namespace {

constexpr std::uint32_t kPriority = 0x504c; // "PL", before the main table's 32766
constexpr std::uint32_t kFirstTable = 0x504c0000;

std::uint32_t first_table(const endpoint &record) { return kFirstTable + record.pod_ifindex * ENDPOINT_ADDRESSES; }

// Each address has a table, as each may have a gateway of its own.
net::RuleSpec rule_for(const endpoint &record, std::size_t number) {
    const auto table = first_table(record) + static_cast<std::uint32_t>(number);
    return {.source =
                host_prefix(record.addresses[number]), // NOLINT(cppcoreguidelines-pro-bounds-constant-array-index)
            .table = table,
            .priority = kPriority};
}

bool is_link_route(const net::RouteSpec &route) {
    return route.destination.length != 0 && is_link_local(route.destination.addr);
}

Result<std::vector<net::RouteSpec>> main_routes(net::Netlink &pod, std::uint32_t ifindex, bool ipv4) {
    auto routes = TRY(net::list_routes(pod, ifindex, net::family_of(ipv4)));
    // 169.254.0.0/16 is no business of the kernel's: only fe80::/64 is there without having been added.
    std::erase_if(
        routes, [&](const net::RouteSpec &one) { return one.type != net::kUnicast || (!ipv4 && is_link_route(one)); });
    return routes;
}

// The planned routes of an address's table, link routes first.
std::vector<net::RouteSpec> routes_for(const cni::Address &own, const std::vector<net::RouteSpec> &main,
                                       std::uint32_t ifindex) {
    // A default route by a machine of this very subnet was configured; without one, the lease's gateway is used.
    const auto is_configured = [&](const net::RouteSpec &one) {
        return one.destination.length == 0 && one.gateway && contains(masked(own.prefix), *one.gateway);
    };
    const auto configured = std::ranges::find_if(main, is_configured);
    const auto gateway = configured == main.end() ? own.gateway : configured->gateway;
    std::vector<net::RouteSpec> routes;
    for (net::RouteSpec route : main) {
        if (route.destination.length == 0 && gateway)
            continue;
        route.preferred_source.reset();
        route.onlink = route.onlink || route.gateway;
        routes.push_back(route);
    }
    if (gateway)
        routes.push_back({.destination = {any_addr(is_ipv4(own.prefix.addr)), 0},
                          .gateway = gateway,
                          .ifindex = ifindex,
                          .onlink = true});
    std::stable_partition(routes.begin(), routes.end(), [](const net::RouteSpec &one) { return !one.gateway; });
    return routes;
}

cni::Address known(const ip_addr &addr, const std::vector<cni::Address> &own) {
    const auto found = std::ranges::find_if(own, [&](const cni::Address &one) { return one.prefix.addr == addr; });
    return found == own.end() ? cni::Address{host_prefix(addr), {}, {}} : *found;
}

// An interface of Podlane's own may have no default route in the main table; what is sent from its addresses leaves by
// it all the same.
void add_own_default(const endpoint &record, bool ipv4, std::vector<net::RouteSpec> &main) {
    const auto is_default = [](const net::RouteSpec &one) { return one.destination.length == 0; };
    if (record.mode == ENDPOINT_AFTER_MAIN || std::ranges::any_of(main, is_default))
        return;
    main.push_back({.destination = {any_addr(ipv4), 0},
                    .gateway = own_gateway(ipv4),
                    .ifindex = record.pod_ifindex,
                    .onlink = true});
}

// multus moves a default route to Podlane's interface by the lease's gateway: both lead to the node.
bool leads_as(const net::RouteSpec &one, const net::RouteSpec &wanted, const endpoint &record) {
    const bool is_either = wanted.destination.length == 0 && record.mode != ENDPOINT_AFTER_MAIN;
    return one.destination == wanted.destination && one.ifindex == record.pod_ifindex &&
           (one.gateway == wanted.gateway ||
            (is_either && one.gateway == own_gateway(is_ipv4(wanted.destination.addr))));
}

std::uint32_t priority_of(const net::RouteSpec &route) {
    constexpr std::uint32_t kOfIpv6 = 1024; // IP6_RT_PRIO_USER
    return route.priority.value_or(is_ipv4(route.destination.addr) ? 0 : kOfIpv6);
}

// In the place of one that another program has put into the table since the ADD.
Result<void> put_route(net::Netlink &pod, const endpoint &record, const net::RouteSpec &route) {
    if (TRY(net::add_route(pod, route)))
        return {};
    const auto family = net::family_of(route.destination.addr);
    for (const net::RouteSpec &one : TRY(net::list_routes(pod, 0, family, *route.table)))
        if (one.destination == route.destination && priority_of(one) == priority_of(route) &&
            !leads_as(one, route, record))
            TRY(net::remove_route(pod, one));
    TRY(net::add_route(pod, route));
    return {};
}

Error failed(std::string sentence) { return {ErrorCode::check_failed, std::move(sentence), kRecreateSandbox}; }

} // namespace

bool is_pod_rules_table(const endpoint &record, std::uint32_t table) {
    return table >= first_table(record) && table - first_table(record) < ENDPOINT_ADDRESSES;
}

Result<void> put_pod_rules(net::Netlink &pod, const endpoint &record, const std::vector<cni::Address> &own) {
    for (std::size_t i = 0; i < addresses_in(record).size(); ++i) {
        const net::RuleSpec rule = rule_for(record, i);
        auto main = TRY(main_routes(pod, record.pod_ifindex, is_ipv4(rule.source.addr)));
        add_own_default(record, is_ipv4(rule.source.addr), main);
        for (net::RouteSpec route : routes_for(known(rule.source.addr, own), main, record.pod_ifindex)) {
            route.table = rule.table;
            TRY(put_route(pod, record, route));
        }
        TRY(net::add_rule(pod, rule));
    }
    return {};
}

Result<bool> has_pod_rules(net::Netlink &pod, const endpoint &record) {
    return addresses_in(record).empty() ? Result<bool>(false) : net::has_rule(pod, rule_for(record, 0));
}

Result<void> remove_pod_rules(net::Netlink &pod, const endpoint &record) {
    for (std::size_t i = 0; i < addresses_in(record).size(); ++i) {
        const net::RuleSpec rule = rule_for(record, i);
        TRY(net::remove_rule(pod, rule));
        const auto family = net::family_of(rule.source.addr);
        for (const net::RouteSpec &route : TRY(net::list_routes(pod, record.pod_ifindex, family, rule.table)))
            TRY(net::remove_route(pod, route));
    }
    return {};
}

Result<void> check_pod_rules(net::Netlink &pod, const endpoint &record, const std::vector<cni::Address> &own,
                             const std::vector<cni::Route> &leased) {
    for (std::size_t i = 0; i < addresses_in(record).size(); ++i) {
        const net::RuleSpec rule = rule_for(record, i);
        if (!TRY(net::has_rule(pod, rule)))
            return failed("the rule from " + to_string(rule.source.addr) + " is gone from the container");
        const auto family = net::family_of(rule.source.addr);
        const auto present = TRY(net::list_routes(pod, record.pod_ifindex, family, rule.table));
        auto main = TRY(main_routes(pod, record.pod_ifindex, is_ipv4(rule.source.addr)));
        add_own_default(record, is_ipv4(rule.source.addr), main);
        for (const net::RouteSpec &wanted : routes_for(known(rule.source.addr, own), main, record.pod_ifindex)) {
            const auto same = [&](const net::RouteSpec &one) { return leads_as(one, wanted, record); };
            // Other plugins may have added routes to the main table since.
            const auto is_wanted = [&](const cni::Route &one) { return one.destination == wanted.destination; };
            const bool must_be = wanted.destination.length == 0 || std::ranges::any_of(leased, is_wanted) ||
                                 (!wanted.gateway && contains(wanted.destination, rule.source.addr));
            if (must_be && std::ranges::none_of(present, same))
                return failed("route " + to_string(wanted.destination) + " is gone from table " +
                              std::to_string(rule.table) + " of the container, or wrong");
        }
        if (present.empty())
            return failed("table " + std::to_string(rule.table) + " of the container is empty");
    }
    return {};
}

} // namespace podlane
