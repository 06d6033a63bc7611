// SPDX-License-Identifier: MIT
// The kernel's table of connections.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstddef>
#include <span>

namespace podlane::net {

// Deletes the connections that were opened from these addresses, but those that lead to these prefixes after
// translation, and returns how many there were. The kernel selects those of an IPv4 address; all of IPv6 are read once,
// however many addresses there are. `netfilter`: a socket of Netlink::open_netfilter().
Result<std::size_t> forget_connections_from(Netlink &netfilter, std::span<const ip_addr> sources,
                                            std::span<const Prefix> but_to = {});

} // namespace podlane::net
