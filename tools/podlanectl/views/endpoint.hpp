// SPDX-License-Identifier: MIT
// Endpoints as a table.
#pragma once

#include "tools/podlanectl/views/selection.hpp"

#include <vector>

namespace podlane::ctl {

output::Table endpoint_table(const std::vector<EndpointEntry> &entries, const World &world);

} // namespace podlane::ctl
