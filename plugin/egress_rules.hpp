// SPDX-License-Identifier: MIT
// "egress": "cluster": rules at the host's hook forward, one chain a network, that let a pod open connections to the
// network's clusterCIDRs only. They see the destination after translation, whichever interface it leads to, and know
// the pod by the interface that the packet came by. The fast path carries only what they have let through.
#pragma once

#include "maps/abi/endpoint.h"
#include "maps/result.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace podlane {

// Writes the network's rules as the configuration has them now, and the endpoint's host-side veth among those that they
// are for. Nothing without the key.
Result<void> put_egress_rules(const cni::Config &config, const endpoint &record);
// Afterwards: connections that were opened from the endpoint's addresses before, by an earlier owner or without the
// rules, and that lead elsewhere, are removed from conntrack: the fast path would carry them on. First it inserts the
// addresses: of those that another endpoint has, it ends no connection. Nothing without the key.
Result<void> forget_connections_beyond(const Tables &tables, const cni::Config &config, const endpoint &record);
// Whether the network's rules are there, whichever configuration wrote them, and are for the host-side veth. Also if
// there need be none.
Result<bool> has_egress_rules(const cni::Config &config, const endpoint &record);
// How many packets the network's rules have dropped; nothing if it has none.
Result<std::optional<std::uint64_t>> egress_drops(const std::string &network);
// Rewrites the network's rules, if there are any, for other CIDRs; whom they are for stays as it is.
Result<void> rewrite_egress_rules(const std::string &network, const std::vector<Prefix> &cluster_cidrs);
// After the host-side veth is gone. The rules go with the network's table (loader/tracking.hpp).
Result<void> leave_egress_rules(const endpoint &record);

} // namespace podlane
