// SPDX-License-Identifier: MIT
// The node's route to a pod, and others that take its place or hide it.
#pragma once

#include "loader/net/route.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

// Another route has the place of the planned one, which is missing.
Result<bool> leads_elsewhere(net::Netlink &host, const net::RouteSpec &planned);
// ErrorCode::check_failed, with the remedy: whose it is, Podlane cannot know.
Error elsewhere(const net::RouteSpec &planned);
// No error if it is there already; elsewhere() if another one has its place, and what find_hiding() says.
Result<void> restore_host_route(net::Netlink &host, const net::RouteSpec &planned);

// The routes among which the kernel chooses for a pod.
class HostRoutes {
  public:
    explicit HostRoutes(net::Netlink &host) : host_(host) {}

    // Whether the planned route decides alone about the packets to the pod: nothing else is to be looked at.
    Result<bool> follow(const net::RouteSpec &planned);
    // Of a planned route that is there: ErrorCode::check_failed, with the remedy, if the kernel prefers another one of
    // the main or the local table, or has more next hops than the host-side veth. What the routes of other tables do is
    // for NodeRules to say.
    Result<std::optional<Error>> find_hiding(const net::RouteSpec &planned);

  private:
    Result<std::optional<net::RouteSpec>> find_twin(const net::RouteSpec &used);

    net::Netlink &host_;
    std::optional<std::vector<net::RouteSpec>> twins_{}; // IPv6, as they were when the first pod was looked at
};

// The one that a table has for an address.
Result<std::optional<net::RouteSpec>> best_route(net::Netlink &netlink, std::uint32_t table, const ip_addr &addr);

// A blackhole, or what says so to the sender.
bool refuses_packets(const net::RouteSpec &route);

// As ip-route(8) has it: type, destination, metric and table.
std::string route_words(const net::RouteSpec &route);
// Words behind "ip".
std::string removal_of(const net::RouteSpec &route, const std::string &link = "");

} // namespace podlane
