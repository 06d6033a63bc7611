// SPDX-License-Identifier: MIT
// Rules in the container, if one of its interfaces has no host-side veth with a program: packets sent from an address
// of Podlane's are routed by a table of its own.
#pragma once

#include "maps/abi/endpoint.h"
#include "plugin/cni/types.hpp"
#include "loader/net/link.hpp"

#include <cstdint>
#include <vector>

namespace podlane {

// A rule and a table for each address of the endpoint. The table has what the main one has on the interface, and the
// default route by the address's gateway if `own` has one. What is there and right stays. Rules and tables go with the
// container's namespace; DEL takes them out of one that stays.
Result<void> put_pod_rules(net::Netlink &pod, const endpoint &record, const std::vector<cni::Address> &own);
// Whether it is one of these tables.
bool is_pod_rules_table(const endpoint &record, std::uint32_t table);
Result<bool> has_pod_rules(net::Netlink &pod, const endpoint &record);
// Missing routes and rules count as removed.
Result<void> remove_pod_rules(net::Netlink &pod, const endpoint &record);
// ErrorCode::check_failed names what is missing. Of the main table's routes, those that the ADD has seen are to be in
// the table: `leased`, and those that every interface has.
Result<void> check_pod_rules(net::Netlink &pod, const endpoint &record, const std::vector<cni::Address> &own,
                             const std::vector<cni::Route> &leased);

} // namespace podlane
