// SPDX-License-Identifier: MIT
// doctor: the addresses that nftables masquerades, against the pods.
#pragma once

#include "tools/podlanectl/doctor/doctor.hpp"

namespace podlane::ctl::doctor {

Result<void> look_at_masqueraded_addresses(const NodeView &node, Findings &findings);

} // namespace podlane::ctl::doctor
