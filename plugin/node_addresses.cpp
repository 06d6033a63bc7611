// SPDX-License-Identifier: MIT
#include "plugin/node_addresses.hpp"

#include "loader/net/link.hpp"
#include "loader/net/next_hop.hpp"
#include "loader/net/route.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <string>

namespace podlane {
namespace {

// None for IPv6 on a kernel that was booted without it, which adding the address reports.
Result<std::optional<net::RouteSpec>> known_route(const ip_addr &addr, net::Netlink &host) {
    auto route = net::route_to(host, addr);
    if (!route && net::lacks_family(route.error()))
        return std::optional<net::RouteSpec>{};
    return route;
}

Result<std::string> name_of(std::uint32_t ifindex, net::Netlink &host) {
    const auto link = TRY(net::find_link(host, ifindex));
    return link ? link->name : "interface " + std::to_string(ifindex);
}

// "the node's own, of up0"; empty if the kernel forwards what is sent to the address.
Result<std::string> local_role(const net::RouteSpec &route, net::Netlink &host) {
    if (route.type != net::kLocal && route.type != net::kBroadcast && route.type != net::kAnycast)
        return std::string{};
    const std::string link = TRY(name_of(route.ifindex, host));
    if (route.type == net::kBroadcast)
        return "the broadcast address of a subnet of " + link;
    if (route.type == net::kAnycast)
        return "the anycast address of the routers on " + link;
    if (is_host_prefix(route.destination))
        return "the node's own, of " + link;
    return "the node's own, by its route local " + to_string(route.destination) + " on " + link; // AnyIP
}

// The destination of a route with this next hop. It is on a link of the node's, or `onlink`, so that the route to it
// names that link, or is the route itself. A pod that is the node's router has lost such routes with its last
// interface.
Result<std::optional<Prefix>> routed_by(const ip_addr &addr, const net::RouteSpec &to_it, net::Netlink &host) {
    if (to_it.type != net::kUnicast)
        return std::optional<Prefix>{};
    if (!to_it.gateway)
        return net::find_route_by(host, addr, to_it.ifindex);
    return to_it.gateway == addr ? std::optional(to_it.destination) : std::nullopt;
}

Result<std::string> role_on_node(const ip_addr &addr, net::Netlink &host) {
    const auto route = TRY(known_route(addr, host));
    if (!route)
        return std::string{};
    std::string role = TRY(local_role(*route, host));
    if (!role.empty())
        return role;
    if (const auto destination = TRY(routed_by(addr, *route, host)))
        role = "the next hop of the node's route to " + to_string(*destination) + " on " +
               TRY(name_of(route->ifindex, host));
    return role;
}

// The two that all hosts of a subnet answer to, or none (RFC 1122, 3.2.1.3). A subnet of two addresses has neither.
Result<void> check_subnet(const Prefix &one) {
    constexpr std::uint8_t kLongest = 30; // RFC 3021
    if (!is_ipv4(one.addr) || one.length > kLongest)
        return {};
    const std::uint32_t host_bits = ~0U >> one.length;
    const std::uint32_t own = ntohl(one.addr.word[3]) & host_bits;
    if (own != 0 && own != host_bits)
        return {};
    return Error{ErrorCode::ipam,
                 "the lease's address " + to_string(one) + " is the " + (own == 0 ? "network" : "broadcast") +
                     " address of its subnet",
                 "keep it out of the range, or give it as " + to_string(host_prefix(one.addr))};
}

std::string hint_for(const cni::Config &config) {
    if (!config.own_addresses.empty())
        return "choose another one for the pod's annotation";
    if (!config.ipam_type.empty())
        return "keep it out of the range in \"ipam\" (host-local: rangeStart, rangeEnd; whereabouts: exclude)";
    return "keep it out of the range of the plugin before, whose result is prevResult";
}

} // namespace

Result<void> refuse_addresses_of_node(const cni::Config &config, const std::vector<cni::Address> &leased,
                                      const std::optional<EgressRoute> &egress, net::Netlink &host) {
    for (const cni::Address &one : leased) {
        const ip_addr &addr = one.prefix.addr;
        TRY(check_subnet(one.prefix));
        std::string role = TRY(role_on_node(addr, host));
        if (egress && std::ranges::find(egress->gateways, addr) != egress->gateways.end())
            role = "the network's \"gateway\"";
        if (!role.empty())
            return Error{ErrorCode::already_exists, "address " + to_string(addr) + " is " + role, hint_for(config)};
    }
    return {};
}

Error has_route_already(const ip_addr &addr) {
    const std::string to = to_string(addr);
    return {ErrorCode::already_exists, "the node has a route to " + to + " already", "see `ip route show " + to + "`"};
}

Result<void> refuse_addresses_of_others(const std::vector<net::RouteSpec> &routes, std::uint32_t ifindex,
                                        net::Netlink &host) {
    for (const net::RouteSpec &own : routes) {
        if (!is_host_prefix(own.destination))
            continue;
        const auto used = TRY(known_route(own.destination.addr, host));
        if (used && used->destination == own.destination && used->type == net::kUnicast && !used->gateway &&
            used->ifindex != ifindex)
            return has_route_already(own.destination.addr);
    }
    return {};
}

Result<std::optional<EgressRoute>> usable_egress_route(const cni::Config &config, net::Netlink &host) {
    auto egress = TRY(find_egress_route(config, host));
    for (const ip_addr &gateway : config.gateways) {
        const auto route = TRY(known_route(gateway, host));
        const bool is_on_uplink = route && egress && route->ifindex == egress->uplink.ifindex; // not on another link
        const std::string role = is_on_uplink ? TRY(local_role(*route, host)) : std::string{};
        if (!role.empty())
            return Error{ErrorCode::invalid_network_config, "gateway " + to_string(gateway) + " is " + role,
                         "name the router on the link of the uplink in \"gateway\""};
    }
    return egress;
}

} // namespace podlane
