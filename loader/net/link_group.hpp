// SPDX-License-Identifier: MIT
// Removes many links at once: the kernel waits for its grace periods once for all of them, rather than for each.
#pragma once

#include "loader/net/netlink.hpp"

#include <cstdint>
#include <span>

namespace podlane::net {

// They are put into a link group of a random number, which is removed as a whole. A missing link counts as removed.
Result<void> remove_links(Netlink &netlink, std::span<const std::uint32_t> ifindexes);

} // namespace podlane::net
