// SPDX-License-Identifier: MIT
// Keys of a configuration that have an effect only beside another one.
#pragma once

#include "plugin/cni/types.hpp"

#include <string>
#include <vector>

namespace podlane::cni {

// A sentence on each that lacks the other one, and is not at its default.
[[nodiscard]] std::vector<std::string> keys_without_effect(const Config &config);

} // namespace podlane::cni
