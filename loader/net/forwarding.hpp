// SPDX-License-Identifier: MIT
// Which links forward packets: net.ipv4.conf.*.forwarding and that of IPv6, without a file for each link.
#pragma once

#include "loader/net/netlink.hpp"

#include <cstdint>
#include <map>

namespace podlane::net {

// By ifindex; a link without an address family has none.
Result<std::map<std::uint32_t, bool>> list_forwarding(Netlink &netlink, Family family);

} // namespace podlane::net
