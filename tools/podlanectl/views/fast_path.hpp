// SPDX-License-Identifier: MIT
// The requirements of the fast path on the node, met or not: for status and doctor.
#pragma once

#include "tools/podlanectl/views/selection.hpp"

#include <string>
#include <vector>

namespace podlane::ctl {

// "follows conntrack", or why connections take the slow path.
std::string fast_path_words(const World &world);

// Networks of these endpoints whose connections follow conntrack, and whose rule that has the kernel track connections
// is missing.
Result<std::vector<std::string>> networks_without_tracking(const std::vector<EndpointEntry> &endpoints);

} // namespace podlane::ctl
