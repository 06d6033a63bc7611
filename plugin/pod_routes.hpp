// SPDX-License-Identifier: MIT
// The routes in the container: whether those of its ADD are there and count, and how they come back.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/net/route.hpp"
#include "maps/abi/endpoint.h"
#include "plugin/plan.hpp"

#include <optional>
#include <string>

namespace podlane {

// A socket in the container's namespace, and that one's path for whoever is to change something there.
struct Inside {
    net::Netlink &pod;
    const std::string &netns;
};

// ErrorCode::check_failed names the first route that is gone, leads to another next hop than the host-side veth, or is
// hidden by one that refuses packets, or by a rule. What a later plugin may rightly have changed is none.
Result<void> check_pod_routes(const Inside &in, const endpoint &record, const Plan &plan);

// Adds what is missing. A route that refuses packets stays: whose it is, Podlane cannot know.
Result<void> restore_pod_routes(const Inside &in, const endpoint &record, const Plan &plan);

// Whether the container takes packets to the address for its own.
Result<bool> is_delivered(net::Netlink &pod, const ip_addr &addr);
Error undelivered(const Inside &in, const ip_addr &addr);
// Adds the local route of an address that is there; one that hides it stays.
Result<void> deliver(net::Netlink &pod, std::uint32_t ifindex, const ip_addr &addr);
// The kernel makes a new IPv6 address its own in a worker, a moment later: until then packets to it are refused.
Result<void> wait_until_delivered(net::Netlink &pod, const ip_addr &addr);

// ErrorCode::check_failed, with the remedy, if a route of the same destination and table refuses packets, and is not
// worse than `route`.
Result<std::optional<Error>> find_refusing(const Inside &in, const net::RouteSpec &route);

} // namespace podlane
