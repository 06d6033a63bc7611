// SPDX-License-Identifier: MIT
// Waits for a route that the kernel adds by itself, such as that of an address.
#pragma once

#include "loader/net/route.hpp"

#include <chrono>

namespace podlane::net {

// Until find_route() finds it, woken by the kernel's notifications; false: not within `limit`.
Result<bool> wait_for_route(Netlink &netlink, const RouteSpec &route, std::chrono::milliseconds limit);

} // namespace podlane::net
