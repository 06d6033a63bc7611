// SPDX-License-Identifier: MIT
// The nouns of the doctor.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

extern const Noun kDoctorNoun;

} // namespace podlane::ctl
