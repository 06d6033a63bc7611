// SPDX-License-Identifier: MIT
// doctor: leases of living pods, as the IPAM plugin has them.
#pragma once

#include "tools/podlanectl/doctor/doctor.hpp"

namespace podlane::ctl::doctor {

// Compares the recorded leases of host-local with its files. By its own reading of the records, so that it needs no
// other check before it.
Result<void> look_at_lease_files(const NodeView &node, Findings &findings);

} // namespace podlane::ctl::doctor
