// SPDX-License-Identifier: MIT
// Compares an attachment with its plan: links, addresses, routes, neighbours, programs, map entries, NAT, the network.
// CHECK, doctor and repair all judge by it.
#pragma once

#include "loader/net/namespace.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

namespace podlane {

// `request` has the result of the ADD as its prev_result; `record` is the entry in endpoints_v1.
// ErrorCode::check_failed names the first difference that no later plugin may rightly have made, and the way out.
Result<void> verify_attachment(const cni::Request &request, const endpoint &record, const net::Namespace &pod,
                               const Tables &tables);

} // namespace podlane
