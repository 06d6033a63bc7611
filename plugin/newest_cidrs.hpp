// SPDX-License-Identifier: MIT
// The clusterCIDRs of a network's newest ADD, if it changed them, in a file beside the records of attachments: its pod
// may be gone while others live.
#pragma once

#include "maps/ip.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

// Of config.name. None if there is no whole file: the configurations of living pods say what they are.
Result<std::optional<std::vector<Prefix>>> newest_cidrs(const cni::Config &config);

// One that cannot be written is logged, and removed.
void note_newest_cidrs(const cni::Config &config, const std::vector<Prefix> &cidrs);

void forget_newest_cidrs(const cni::Config &config, const std::string &network);

} // namespace podlane
