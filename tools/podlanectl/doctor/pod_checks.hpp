// SPDX-License-Identifier: MIT
// doctor: the container's end of an endpoint, its addresses, neighbours and routes.
#pragma once

#include "tools/podlanectl/doctor/doctor.hpp"

namespace podlane::ctl::doctor {

Result<void> look_at_pod_link(const EndpointView &e, Findings &findings);
Result<void> look_at_addresses(const EndpointView &e, Findings &findings);
Result<void> look_at_pod_neighbours(const EndpointView &e, Findings &findings);
Result<void> look_at_pod_routes(const EndpointView &e, Findings &findings);

} // namespace podlane::ctl::doctor
