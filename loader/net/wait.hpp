// SPDX-License-Identifier: MIT
// Waits for what the kernel does by itself in a worker.
#pragma once

#include "loader/net/route.hpp"

#include <chrono>

namespace podlane::net {

// Until find_route() finds it, such as that of an address; false: not within `limit`. Woken by the kernel's
// notifications, as the next.
Result<bool> wait_for_route(Netlink &netlink, const RouteSpec &route, std::chrono::milliseconds limit);

// Until the link's state is up (RFC 2863). A link whose carrier comes after it was set up drops what it is to send
// until the kernel's worker (linkwatch) has had its turn; since Linux 6.8 the query itself does that work.
Result<bool> wait_for_link(Netlink &netlink, std::uint32_t ifindex, std::chrono::milliseconds limit);

} // namespace podlane::net
