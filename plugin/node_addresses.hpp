// SPDX-License-Identifier: MIT
// Addresses that are not a pod's, nor a router's, because the node has them or reaches others by them.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/net/route.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/egress_route.hpp"

#include <optional>
#include <vector>

namespace podlane {

// For ADD, of an interface that Podlane makes. ErrorCode::already_exists on an address of the node's own, on a
// broadcast address on one of its links, and on the next hop of one of its routes: the pod's /32 would take them over.
// ErrorCode::ipam on the network or broadcast address of the subnet that the lease names.
Result<void> refuse_addresses_of_node(const cni::Config &config, const std::vector<cni::Address> &leased,
                                      const std::optional<EgressRoute> &egress, net::Netlink &host);

Error has_route_already(const ip_addr &addr);
// ErrorCode::already_exists if the node reaches one of the addresses by another link than `ifindex`: a pod of another
// network, or of another plugin, has it. `routes` are those that ADD makes.
Result<void> refuse_addresses_of_others(const std::vector<net::RouteSpec> &routes, std::uint32_t ifindex,
                                        net::Netlink &host);

// For ADD: the network's egress route, with gateways that can be machines beyond the node.
// ErrorCode::invalid_network_config on one that is the node's own address, or a broadcast address on one of its links.
Result<std::optional<EgressRoute>> usable_egress_route(const cni::Config &config, net::Netlink &host);

} // namespace podlane
