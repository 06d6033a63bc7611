// SPDX-License-Identifier: MIT
// The addresses that a plan gives to the container's interface, checked without a look at the node.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <vector>

namespace podlane {

inline constexpr std::uint32_t kVethMtu = 1500; // that the kernel gives a pair of which no MTU is known

// Of a lease: at least one, at most as many as an endpoint has room for, each unicast and not link-local.
Result<std::vector<ip_addr>> endpoint_addresses(const cni::Config &config, const std::vector<cni::Address> &leased);

// Of the interface of another plugin.
Result<void> check_adopted(const std::vector<ip_addr> &addresses);

// The pod's routes: next hops, and MTUs that the kernel would take and no packet could have.
Result<void> check_routes(const std::vector<cni::Route> &routes);

// Of an ADD alone, since an attachment of an earlier version may have them: an MTU above the interface's, so that
// packets would be lost, and an MSS that the kernel would lower. `mtu` 0: the kernel's.
Result<void> check_new_routes(const cni::Config &config, const std::vector<cni::Route> &routes, std::uint32_t mtu);

} // namespace podlane
