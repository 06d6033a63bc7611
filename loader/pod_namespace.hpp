// SPDX-License-Identifier: MIT
// The container's network namespace, as ADD found it.
#pragma once

#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"
#include "maps/abi/endpoint.h"
#include "maps/result.hpp"

#include <cstdint>
#include <optional>

namespace podlane {

// A socket in `there`, if that is the endpoint's namespace; none if it is another one. The kernel gives the inode
// number of a namespace that is gone to a new one. The cookie (of the record on disk) it gives once; 0: the number
// decides.
Result<std::optional<net::Netlink>> open_pod(const net::Namespace &there, const endpoint &entry, std::uint64_t cookie);

} // namespace podlane
