// SPDX-License-Identifier: MIT
// Calls that would get in each other's way run one after the other: the ADDs of a container, and ADD and DEL of an
// attachment. Its runtime may have given up on an ADD that goes on.
//
// All locks are on the file of the container's network namespace: the kernel drops those of a killed call. None is
// waited for longer than 10 s, and a foreign one, such as the container's own, delays a call or fails its ADD.
#pragma once

#include "loader/net/namespace.hpp"
#include "maps/fd.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

namespace podlane {

// An ADD's, which lasts as long as `pod` is open. ErrorCode::try_again_later if a DEL does not end: it would remove
// what this ADD makes.
Result<void> take_turn_of_add(const cni::Request &request, const net::Namespace &pod);

// A DEL's, which lasts until the descriptor is closed. None if neither the runtime nor a record names a
// namespace that is there.
Fd take_turn_of_del(const cni::Request &request);

} // namespace podlane
