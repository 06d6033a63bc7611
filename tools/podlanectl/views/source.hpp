// SPDX-License-Identifier: MIT
// Which path a packet takes by its source.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::ctl {

// path show with a source and a destination.
Result<int> show_egress(const Call &call, World &world);

} // namespace podlane::ctl
