// SPDX-License-Identifier: MIT
// The node's route to a pod, and another one in its place.
#pragma once

#include "loader/net/route.hpp"

namespace podlane {

// Another route has the place of the planned one, which is missing.
Result<bool> leads_elsewhere(net::Netlink &host, const net::RouteSpec &planned);
// ErrorCode::check_failed, with the remedy: whose it is, Podlane cannot know.
Error elsewhere(const net::RouteSpec &planned);
// No error if it is there already; elsewhere() if another one has its place.
Result<void> restore_host_route(net::Netlink &host, const net::RouteSpec &planned);

} // namespace podlane
