// SPDX-License-Identifier: MIT
// The log: one line an event, with the pod's identity in each. Standard output is the CNI result's alone.
#pragma once

#include "plugin/cni/types.hpp"

#include <string_view>

namespace podlane {

// Says where to and how much from here on; before it, nothing is logged. A file that cannot be opened or
// written is no failure of the call: what would go there goes to standard error.
void log_to(const cni::Request &request);

[[nodiscard]] bool is_logged(cni::Log::Level level);
void log(cni::Log::Level level, std::string_view text);

} // namespace podlane
