// SPDX-License-Identifier: MIT
// A network's own egress route: found from its configuration, the lease and the node's routes.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "loader/net/link.hpp"

#include <optional>
#include <vector>

namespace podlane {

struct EgressRoute {
    net::Link uplink;
    std::vector<ip_addr> gateways; // those that are configured; at most one of each family
    std::optional<std::uint32_t> table;
};

// Whether the configuration names any part of one.
[[nodiscard]] inline bool has_egress_route(const cni::Config &config) {
    return !config.uplink.empty() || !config.gateways.empty() || config.table;
}

// None if the configuration names none: the network leaves as the node's routes say.
// ErrorCode::invalid_network_config if the uplink is missing or cannot be found.
Result<std::optional<EgressRoute>> find_egress_route(const cni::Config &config, net::Netlink &host);

// The next hop for what `own` sends beyond its subnet: as configured, from the lease, or of the uplink's default route.
Result<std::optional<ip_addr>> gateway_for(const EgressRoute &egress, const cni::Address &own, net::Netlink &host);

} // namespace podlane
