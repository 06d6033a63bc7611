// SPDX-License-Identifier: MIT
// The embedded object that holds all programs, opened for some of them.
#pragma once

#include "loader/embedded.hpp"
#include "programs.skel.h"

#include <initializer_list>

namespace podlane {

using ProgramNames = std::initializer_list<const char *>;

// Only these programs will be loaded, with the constants of the settings.
Result<Owned<programs_bpf>> open_programs(ProgramNames programs, const LoadSettings &settings);

} // namespace podlane
