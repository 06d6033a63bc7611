// SPDX-License-Identifier: MIT
// Which routes have a neighbour as their next hop.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <optional>

namespace podlane::net {

// The destination of a route, in any table, that leads by this link to this next hop; one of several paths counts.
Result<std::optional<Prefix>> find_route_by(Netlink &netlink, const ip_addr &next_hop, std::uint32_t ifindex);

} // namespace podlane::net
