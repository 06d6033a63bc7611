// A network's own way out of the node: found from its configuration, the lease and the node's routes.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "loader/net/link.hpp"

#include <optional>
#include <vector>

namespace podlane {

struct EgressRoute {
    net::Link uplink;
    std::vector<ip_addr> gateways; // asked for by name; at most one of each family
    std::optional<std::uint32_t> table;
};

// Nothing where the configuration names none: the network leaves as the node's routes say. Puts the uplink among those
// of the configuration. ErrorCode::invalid_network_config where the uplink is not there or cannot be found.
Result<std::optional<EgressRoute>> find_egress_route(cni::Config &config, net::Netlink &host);

// The next hop for what `own` sends beyond its subnet: as configured, from the lease, or of the uplink's default route.
Result<std::optional<ip_addr>> gateway_for(const EgressRoute &way, const cni::Address &own, net::Netlink &host);

} // namespace podlane
