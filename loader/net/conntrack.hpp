// SPDX-License-Identifier: MIT
// The kernel's table of connections.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstddef>

namespace podlane::net {

// Deletes the connections that were opened from this address, and returns how many there were. `netfilter`: a socket of
// Netlink::open_netfilter().
Result<std::size_t> forget_connections_from(Netlink &netfilter, const ip_addr &source);

} // namespace podlane::net
