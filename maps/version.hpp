// SPDX-License-Identifier: MIT
// The version of this build, the same for the plugin and the tools.
#pragma once

#include <string_view>

namespace podlane {

inline constexpr std::string_view kVersion = "0.1.0";

} // namespace podlane
