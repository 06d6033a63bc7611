// SPDX-License-Identifier: MIT
// The addresses that a plan gives to the container's interface, checked without a look at the node.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <vector>

namespace podlane {

// Of a lease: at least one, at most as many as an endpoint has room for, each unicast and not link-local.
Result<std::vector<ip_addr>> endpoint_addresses(const cni::Config &config, const std::vector<cni::Address> &leased);

// Of the interface of another plugin.
Result<void> check_adopted(const std::vector<ip_addr> &addresses);

// The pod's routes: next hops, and MTUs that the kernel would take and no packet could have.
Result<void> check_routes(const std::vector<cni::Route> &routes);

} // namespace podlane
