// SPDX-License-Identifier: MIT
// Routing rules of the node that come before the main table, which has the routes to pods.
#pragma once

#include "loader/net/netlink.hpp"
#include "maps/ip.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <optional>

namespace podlane {

// ErrorCode::check_failed, with the remedy, of a rule that leads packets to the pod to another interface than the
// host-side veth, or refuses them. Rules for some of them (by source, mark, interface, protocol) are left out: they are
// an administrator's policy.
Result<std::optional<Error>> foreign_rule(net::Netlink &host, const ip_addr &pod, std::uint32_t host_veth);

} // namespace podlane
