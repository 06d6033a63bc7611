// SPDX-License-Identifier: MIT
// Which tools hold an endpoint to its bandwidth: what the configuration wants, of what the kernel has.
#pragma once

#include "loader/net/netlink.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/plan.hpp"
#include "plugin/rollback.hpp"

namespace podlane {

// Sets up the qdiscs of the host-side veth and of the container's interface, writes to the log what holds the limits,
// and adds to the plan what the kernel can do of it; an error if the configuration insists on what the kernel cannot
// do.
Result<void> start_limiter(const cni::Config &config, net::Netlink &pod, Plan &plan, Rollback &rollback);

} // namespace podlane
