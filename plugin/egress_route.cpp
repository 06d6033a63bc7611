// SPDX-License-Identifier: MIT
#include "plugin/egress_route.hpp"

#include "loader/net/address.hpp"
#include "loader/net/route.hpp"
#include "maps/text.hpp"
#include "plugin/log.hpp"

#include <algorithm>

namespace podlane {
namespace {

Error not_found(std::string sentence) {
    return {ErrorCode::invalid_network_config, std::move(sentence), "name the interface in \"uplink\""};
}

// The interface of the table's default route, or of the route to a gateway.
Result<std::uint32_t> look_up_uplink(const cni::Config &config, net::Netlink &host) {
    if (config.table)
        for (const bool ipv4 : {true, false})
            if (const auto route =
                    TRY(net::find_route(host, {.destination = {any_addr(ipv4), 0}, .table = config.table}));
                route && route->ifindex != 0)
                return route->ifindex;
    if (config.table)
        return not_found("table " + std::to_string(*config.table) + " has no default route, so no uplink is known");
    for (const ip_addr &gateway : config.gateways)
        if (const auto route = TRY(net::route_to(host, gateway)); route && route->ifindex != 0 && !route->gateway)
            return route->ifindex;
    std::vector<std::string> gateways;
    for (const ip_addr &gateway : config.gateways)
        gateways.push_back(to_string(gateway));
    return not_found("no route of the node has the gateway " + join(gateways, " or ") +
                     " on its link, so no uplink is known");
}

// A gateway is reached on the uplink's link. Without an address there the node does not know which ones are.
Result<void> warn_of_gateways(const cni::Config &config, const net::Link &uplink, net::Netlink &host) {
    if (config.gateways.empty())
        return {};
    const auto on_link = TRY(net::list_addresses(host, uplink.ifindex));
    for (const ip_addr &gateway : config.gateways) {
        const auto of_family = [&](const net::Address &one) {
            return is_ipv4(one.prefix.addr) == is_ipv4(gateway) && !is_link_local(one.prefix.addr);
        };
        const auto has_it = [&](const net::Address &one) { return contains(one.prefix, gateway); };
        if (is_link_local(gateway) || std::ranges::none_of(on_link, of_family) || std::ranges::any_of(on_link, has_it))
            continue;
        const auto route = TRY(net::route_to(host, gateway));
        if (!route || route->ifindex != uplink.ifindex || route->gateway)
            log(cni::Log::Level::warning, "gateway " + to_string(gateway) + " is in no subnet of " + uplink.name +
                                              ": packets of this network are lost unless it answers there");
    }
    return {};
}

} // namespace

Result<std::optional<EgressRoute>> find_egress_route(const cni::Config &config, net::Netlink &host) {
    if (!has_egress_route(config))
        return std::optional<EgressRoute>{};
    const auto link = config.uplink.empty() ? TRY(net::find_link(host, TRY(look_up_uplink(config, host))))
                                            : TRY(net::find_link(host, config.uplink));
    if (!link)
        return Error{ErrorCode::invalid_network_config, "uplink: there is no interface " + config.uplink,
                     "create it, or name another one in \"uplink\""};
    TRY(warn_of_gateways(config, *link, host));
    return std::optional(EgressRoute{*link, config.gateways, config.table});
}

Result<std::optional<ip_addr>> gateway_for(const EgressRoute &egress, const cni::Address &own, net::Netlink &host) {
    const bool ipv4 = is_ipv4(own.prefix.addr);
    const auto of_family = [&](const ip_addr &addr) { return is_ipv4(addr) == ipv4; };
    if (const auto found = std::ranges::find_if(egress.gateways, of_family); found != egress.gateways.end())
        return std::optional(*found);
    if (own.gateway && of_family(*own.gateway) && !egress.table)
        return own.gateway;
    const net::RouteSpec everywhere{
        .destination = {any_addr(ipv4), 0}, .ifindex = egress.uplink.ifindex, .table = egress.table};
    if (const auto route = TRY(net::find_route(host, everywhere));
        route && route->gateway && of_family(*route->gateway))
        return route->gateway;
    return own.gateway && of_family(*own.gateway) ? own.gateway : std::nullopt;
}

} // namespace podlane
