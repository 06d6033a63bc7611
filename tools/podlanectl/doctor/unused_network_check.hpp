// SPDX-License-Identifier: MIT
// doctor: networks that no pod is in.
#pragma once

#include "tools/podlanectl/doctor/doctor.hpp"

namespace podlane::ctl::doctor {

Result<void> look_for_unused_networks(const NodeView &node, Findings &findings);

} // namespace podlane::ctl::doctor
