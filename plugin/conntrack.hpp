// SPDX-License-Identifier: MIT
// Sets up the node's connection tracking for the fast path: it is on, and TCP windows are not checked.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>

namespace podlane {

// Whether the network's connections take the fast path as conntrack says, or isolation does. By the flags (INTERFACE_*)
// of one of its pods; `firstPacket` alone does not say it.
bool follows_conntrack(std::uint32_t interface_flags);
bool follows_conntrack(const cni::Config &config);

// Lets conntrack accept the end of a TCP connection whose data it has not seen. Without it TCP stays on the slow path.
Result<void> let_conntrack_follow(const cni::Config &config);

// With "isolation": an error if the programs cannot distinguish replies.
Result<void> require_replies(const cni::Config &config);

// Adds the network's rule that has the kernel track connections, if the network needs it and it is missing. A failure
// is logged: the network's connections then take the slow path, unless another rule of the node needs conntrack. With
// "isolation" it is an error.
Result<void> track_connections(const cni::Config &config);

} // namespace podlane
