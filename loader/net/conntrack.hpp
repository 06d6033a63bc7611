// SPDX-License-Identifier: MIT
// The kernel's table of connections.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstddef>
#include <span>

namespace podlane::net {

// Deletes the connections that were opened from this address, but those that lead to these prefixes after translation,
// and returns how many there were. `netfilter`: a socket of Netlink::open_netfilter().
Result<std::size_t> forget_connections_from(Netlink &netfilter, const ip_addr &source,
                                            std::span<const Prefix> but_to = {});

} // namespace podlane::net
