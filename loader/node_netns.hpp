// SPDX-License-Identifier: MIT
// Restores the link in the directory of pins that names the node's network namespace (kNetnsLink).
#pragma once

#include "maps/result.hpp"

#include <string>

namespace podlane {

// Writes the link of `root` if there is none, and what is pinned is that of the calling thread's network namespace: a
// pinned program is on one of its interfaces, it has made a record below `state_directory`, or the maps have neither an
// endpoint nor an uplink. Else ErrorCode::plugin_not_available. Without pins there is nothing to do.
Result<void> restore_netns(const std::string &root, const std::string &state_directory);

// The fault of the link; empty if it names a namespace.
Result<std::string> netns_fault(const std::string &root);

} // namespace podlane
