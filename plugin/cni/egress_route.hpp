// SPDX-License-Identifier: MIT
// Reads how a network leaves the node where it has a way of its own.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

namespace podlane::cni {

Result<void> read_way(const json::Node &root, Config &config);

} // namespace podlane::cni
