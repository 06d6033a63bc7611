// SPDX-License-Identifier: MIT
// The limits of endpoints, and the limiters of this kernel.
#pragma once

#include "tools/podlanectl/views/selection.hpp"

#include <string>

namespace podlane::ctl {

// The limit states of the selected endpoints; with no selection, also those of endpoints that are gone.
Result<output::Table> limit_state_table(const Selection &selection, const World &world);
// The limiters this kernel supports, as "pace, edt, bucket".
Result<std::string> limiters_words(const World &world);

} // namespace podlane::ctl
