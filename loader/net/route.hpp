// SPDX-License-Identifier: MIT
// Routes: add, remove, find, and the route out of the node.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace podlane::net {

constexpr std::uint32_t kMainTable = 254, kLocalTable = 255;
constexpr std::uint32_t kAllTables = 0; // list_routes() only
// Types of routes (RTN_*).
constexpr std::uint8_t kUnicast = 1, kLocal = 2, kBroadcast = 3, kAnycast = 4, kBlackhole = 6, kUnreachable = 7,
                       kThrow = 9;

struct RouteSpec {
    Prefix destination{};                // its family is the route's; host bits must be clear
    std::optional<ip_addr> gateway{};    // may be IPv6 for an IPv4 destination
    std::uint32_t ifindex = 0;           // 0 for a route without a link (see type)
    bool onlink = false;                 // the gateway is reachable on ifindex whatever the addresses say
    bool append = false;                 // IPv6, to add: also if another link has one to the destination
    std::optional<std::uint8_t> scope{}; // IPv4; default: link without a gateway, else global
    std::optional<std::uint32_t> table{}, priority{}, mtu{}, advmss{};
    std::optional<ip_addr> preferred_source{};
    std::uint8_t protocol = 4; // RTPROT_STATIC
    std::uint8_t type = kUnicast;
    std::vector<std::uint32_t> other_links{}; // of a multipath route that was found: those behind the first
    bool expires = false;                     // IPv6, of one that was found
};

// false: a route with this destination, table and priority was there already, be it this one or another.
Result<bool> add_route(Netlink &netlink, const RouteSpec &route);
// By destination, table, type, and whichever of ifindex, gateway and priority are given; false: was not there.
Result<bool> remove_route(Netlink &netlink, const RouteSpec &route);
// By destination, table and type, and whichever of ifindex, gateway and priority are given. Cheap for the route in use.
Result<std::optional<RouteSpec>> find_route(Netlink &netlink, const RouteSpec &route);
// Of one link in one table or in all, filtered by the kernel; none if the link or the table is missing.
Result<std::vector<RouteSpec>> list_routes(Netlink &netlink, std::uint32_t ifindex, Family family,
                                           std::uint32_t table = kMainTable);

// Added by the kernel for an address: the network behind the link.
[[nodiscard]] bool is_of_link(const RouteSpec &route);
// Of BIRD, FRR or another routing daemon, by its protocol number.
[[nodiscard]] bool is_of_daemon(const RouteSpec &route);

// An address that nobody routes by itself, so that a lookup ends at the default route.
ip_addr unrouted_addr(Family family);

// The answer of the kernel's rules and routes for an address.
Result<std::optional<RouteSpec>> route_to(Netlink &netlink, const ip_addr &addr);

struct DefaultRoute {
    std::uint32_t ifindex = 0;
    std::optional<ip_addr> gateway{};
    std::vector<std::uint32_t> links{}; // of all paths with that metric, `ifindex` first
};

// Of the main table, with the lowest metric; of several paths the first. One lookup, without a dump, on a usual node.
Result<std::optional<DefaultRoute>> default_route(Netlink &netlink, Family family);

} // namespace podlane::net
