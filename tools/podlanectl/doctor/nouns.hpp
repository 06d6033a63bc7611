// SPDX-License-Identifier: MIT
// The nouns of the doctor.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

extern const Noun kDoctorNoun;
extern const Noun kRepairNoun;

} // namespace podlane::ctl
