// Rules in the container, for where one of its interfaces has no host end with a program: what is sent from an address
// of ours is routed by a table of its own.
#pragma once

#include "maps/abi/endpoint.h"
#include "plugin/net/link.hpp"
#include "plugin/plan.hpp"

#include <span>

namespace podlane {

// Rules and tables go with the container's namespace; DEL takes them out of one that stays.
Result<void> put_pod_rules(net::Netlink &pod, std::uint32_t pod_ifindex, const Plan &plan);
// What is missing is done already.
Result<void> remove_pod_rules(net::Netlink &pod, const endpoint &record);
// ErrorCode::check_failed names what is missing.
Result<void> check_pod_rules(net::Netlink &pod, const endpoint &record);

// Says in the log which way is taken, and because of whom.
void log_strangers(const std::vector<net::Link> &strangers);

} // namespace podlane
