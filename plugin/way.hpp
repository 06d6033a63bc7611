// A network's own way out of the node: found from its configuration, the lease and the node's routes.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/net/link.hpp"

#include <optional>
#include <vector>

namespace podlane {

struct Way {
    net::Link uplink;
    std::vector<ip_addr> gateways; // asked for by name; at most one of each family
    std::optional<std::uint32_t> table;
};

// Nothing where the configuration names none: the network leaves as the node's routes say. Puts the uplink among those
// of the configuration. ErrorCode::invalid_network_config where the uplink is not there or cannot be found.
Result<std::optional<Way>> find_way(cni::Config &config, net::Netlink &host);

// The next hop for what `own` sends beyond its subnet: as configured, from the lease, or of the uplink's default route.
Result<std::optional<ip_addr>> gateway_for(const Way &way, const cni::Address &own, net::Netlink &host);

} // namespace podlane
