// SPDX-License-Identifier: MIT
// The kernel's policies of IPsec (ip-xfrm(8)).
#pragma once

#include "maps/result.hpp"

#include <cstdint>

namespace podlane::net {

// Of packets that arrive, leave and are forwarded, in the calling thread's namespace. 0 on a kernel without them.
Result<std::uint32_t> count_ipsec_policies();

// Whether there are any, or packets without one are blocked.
Result<bool> has_ipsec_policies();

} // namespace podlane::net
