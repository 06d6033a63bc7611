// SPDX-License-Identifier: MIT
// The flow cache as a table.
#pragma once

#include "tools/podlanectl/views/selection.hpp"

namespace podlane::ctl {

// The flows in `paths` of the selected endpoints; with no selection, also those of endpoints that are gone.
Result<output::Table> path_table(const Selection &selection, const World &world);

// The same of `kept_paths`.
Result<output::Table> kept_path_table(const Selection &selection, const World &world);

// The same of the flows in `flows`, which conntrack has confirmed.
Result<output::Table> flow_table(const Selection &selection, const World &world);

} // namespace podlane::ctl
