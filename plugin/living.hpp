// SPDX-License-Identifier: MIT
// An attachment whose container is alive.
#pragma once

#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"
#include "maps/abi/endpoint.h"
#include "maps/tables.hpp"
#include "plugin/adopt.hpp"
#include "plugin/cni/types.hpp"

namespace podlane {

// CNI spec, ADD: an interface of this name in the container is an error (ErrorCode::already_exists), and what there is
// stays as it is. So does an attachment that lives in another namespace than `pod`: that of its ADD is still at its
// path, and has the other end of the recorded host-side veth. What an earlier sandbox left behind without a DEL is
// cleared away.
Result<void> refuse_second(const cni::Request &request, endpoint_mode mode, const net::Namespace &pod, Sockets &sockets,
                           const Tables &tables);

} // namespace podlane
