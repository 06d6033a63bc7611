// SPDX-License-Identifier: MIT
// Mounts a kernel file system for this process alone.
#pragma once

#include "maps/fd.hpp"

namespace podlane::net {

// The root directory of `type` ("proc", "cgroup2"), which no path leads to: the mount goes with the descriptor. Empty,
// with errno, if the kernel refuses.
Fd mount_unseen(const char *type);

} // namespace podlane::net
