// SPDX-License-Identifier: MIT
// A network's state on the node beyond its endpoints: its name, its cluster CIDRs and the programs on its uplinks. The
// first ADD inserts it, later ones keep it, and it is deleted with the network's last endpoint.
#pragma once

#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "plugin/cluster_cidrs.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/plan.hpp"
#include "plugin/endpoint.hpp"
#include "loader/net/netlink.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

// Means of the node for the configuration: the hook, the tool that masquerades, the network's egress route.
Result<NodeFacts> network_facts(const cni::Config &config, const std::optional<EgressRoute> &egress_route);

// The network as a recorded endpoint needs it: `config` has the network's keys (plugin/network_keys.hpp), and the tool
// that masquerades is that of its ADD.
Result<NetworkPlan> plan_recorded_network(const cni::Config &config, const endpoint &record);

// Makes sure that all of it is there. `rollback` keeps the shared lock under which it stays, until all that comes after
// is rolled back or committed: others neither take the network for unused nor change what a rollback would restore.
// If its own uplink, by `egress`, was changed, all that leaves by it follows.
Result<void> enter_network(const cni::Request &request, const NetworkPlan &plan,
                           const std::optional<EgressRoute> &egress, const Tables &tables, net::Netlink &host,
                           Rollback &rollback);

// Removes all of it unless another endpoint than the request's is left, in the maps or, if those lost it, on disk. The
// rules of netfilter stay while an interface lives of which neither says what network it is of.
// `had_limit_group`: what left it may have been the last of a group whose name is lost.
Result<void> drop_network_if_unused(const cni::Request &request, const Tables &tables, std::uint32_t network,
                                    bool had_limit_group);
// The same after the maps are lost, by what the endpoint's record on disk says or, without one, the configuration. The
// programs of uplinks go with the last endpoint of the node.
Result<void> drop_network_without_maps(const cni::Request &request, const std::optional<endpoint> &entry);

// Of an attachment of an earlier boot: what a service of the node has restored of rules that were saved while it lived.
// With maps, those of the network that a living pod needs stay.
Result<void> drop_restored_rules(const cni::Request &request, const AttachmentRecord &earlier, bool has_maps);

// Whether programs on the uplinks have to judge packets to and from the endpoint, but the network's entry has none
// there: a version before has made it.
bool lacks_uplink_programs(const endpoint &record, const network &entry);

// CHECK: the network's name and CIDRs are there, and the programs on every uplink they were attached to.
Result<void> check_network(const cni::Request &request, const Tables &tables, const endpoint &record);

} // namespace podlane
