// SPDX-License-Identifier: MIT
// An attachment whose container is alive.
#pragma once

#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"
#include "maps/abi/endpoint.h"
#include "plugin/cni/types.hpp"

namespace podlane {

// ErrorCode::already_exists if the attachment lives in another namespace than `pod`: that of its ADD is still at its
// path, and has the other end of the recorded host-side veth.
Result<void> refuse_living(const cni::Request &request, const endpoint &known, const net::Namespace &pod,
                           net::Netlink &host);

} // namespace podlane
