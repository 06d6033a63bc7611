// SPDX-License-Identifier: MIT
// Sets up the node's connection tracking for the fast path: it is on, and TCP windows are not checked.
#pragma once

#include "maps/abi/endpoint.h"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <string>

namespace podlane {

// ErrorCode::check_failed if the rule is missing that has the kernel track the connections of the endpoint's network.
Result<void> check_tracking(const std::string &root, const endpoint &record);

// Lets conntrack accept the end of a TCP connection whose data it has not seen. Without it TCP stays on the slow path.
Result<void> let_conntrack_follow(const cni::Config &config);

// With "isolation": an error if the programs cannot distinguish replies.
Result<void> require_replies(const cni::Config &config);

// Adds the network's rule that has the kernel track connections, if the network needs it and it is missing. A failure
// is logged: the network's connections then take the slow path, unless another rule of the node needs conntrack. With
// "isolation" it is an error.
Result<void> track_connections(const cni::Config &config);

} // namespace podlane
