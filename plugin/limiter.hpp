// SPDX-License-Identifier: MIT
// Which tools hold an endpoint to its bandwidth: what the configuration wants, of what the kernel has.
#pragma once

#include "plugin/cni/types.hpp"
#include "plugin/rollback.hpp"

#include <cstdint>

namespace podlane {

// Sets up what belongs to the host-side veth, says in the log what holds the limits, and returns the flags that say it
// to the programs; an error where the configuration insists on what the kernel cannot do.
Result<std::uint32_t> start_limiter(const cni::Config &config, std::uint32_t ifindex, Rollback &rollback);

} // namespace podlane
