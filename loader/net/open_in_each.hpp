// SPDX-License-Identifier: MIT
// Sockets in many namespaces: a thread for each would take longer than what most of them are opened for.
#pragma once

#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"

#include <span>
#include <vector>

namespace podlane::net {

// One thread enters one namespace after the other and opens a socket of Netlink::open() in it. One result for each, in
// their order.
std::vector<Result<Netlink>> open_in_each(std::span<const Namespace> targets);

} // namespace podlane::net
