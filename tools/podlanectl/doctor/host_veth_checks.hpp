// SPDX-License-Identifier: MIT
// doctor: the node's side of an endpoint whose interface Podlane made: addresses, neighbours, routes and rules.
#pragma once

#include "tools/podlanectl/doctor/doctor.hpp"

namespace podlane::ctl::doctor {

// Opens its own socket: repairs run after all checks.
std::function<Result<void>()> on_host(std::function<Result<void>(net::Netlink &)> change);

std::function<Result<void>(net::Netlink &)> set_up(std::uint32_t ifindex);
void report_by_record(Findings &findings, std::string what);

Result<void> look_at_host_ipv6(const EndpointView &e, Findings &findings);
Result<void> look_at_host_neighbours(const EndpointView &e, Findings &findings);
Result<void> look_at_host_routes(const EndpointView &e, Findings &findings);
Result<void> look_at_host_rules(const EndpointView &e, Findings &findings);

} // namespace podlane::ctl::doctor
