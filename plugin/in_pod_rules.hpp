// SPDX-License-Identifier: MIT
// Interfaces of a container without a host-side veth (macvlan, ipvlan, host-device): none of our programs sees what is
// sent by them, so rules in the container lead what is sent from an address to its own interface.
#pragma once

#include "plugin/adopt.hpp"
#include "plugin/peer_interfaces.hpp"

#include <vector>

namespace podlane {

// Chained after the plugin that made `link`. Adds rules for its addresses, and for those of the container's interfaces
// that had programs only. The result is prevResult.
Result<cni::Attachment> adopt_without_host_veth(const cni::Request &request, const net::Namespace &pod,
                                                Sockets &sockets, const Tables &tables, const net::Link &link,
                                                Rollback &rollback);

// For an endpoint with a host-side veth: rules as well if its flags say so, because the container has interfaces
// without programs, or because the host does not route for it. Those that other plugins made alone get them too if they
// have a default route: it can be moved. Says in the log which mode is taken.
Result<void> put_rules_beside(const cni::Request &request, const Tables &tables, const ContainerLinks &others,
                              const endpoint &record, net::Netlink &pod);

// For an endpoint that is restored or repaired, after the entries of the container's other interfaces: what is missing
// of its rules, and of those that the others have because of it. The flags that say so of interfaces that had programs
// only are not on disk. Without a host-side veth under the exclusive lock, as it changes these.
Result<void> rejoin_container(const cni::Request &request, const Tables &tables, const endpoint &record);

// Takes the endpoint's rules out of the container, and those of the others when it was the last one without a host-side
// veth. A namespace that is gone, or another one by now, is done already. Without maps the records on disk say which
// interfaces are endpoints'.
Result<void> leave_container(const cni::Request &request, const Tables *tables, const endpoint &record);

// The endpoint's addresses as prevResult has them, with the gateways of the configuration if it has any. Nothing
// for an interface of our own: its routes say all.
std::vector<cni::Address> addresses_with_gateways(const cni::Request &request, const endpoint &record);

} // namespace podlane
