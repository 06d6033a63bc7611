// SPDX-License-Identifier: MIT
// Loads the programs ahead of the first pod.
#pragma once

#include "maps/result.hpp"

#include <optional>
#include <string>

namespace podlane {

struct LoadedNode {
    std::string bpffs;
    bool was_loaded = false; // nothing had to be done
};

// Does to the node what the first ADD of the network would do before it makes a pod. `configuration` is what a runtime
// hands podlane; `bpffs` is used instead of its own.
Result<LoadedNode> load_node(const std::string &configuration, const std::optional<std::string> &bpffs);

} // namespace podlane
