// SPDX-License-Identifier: MIT
// The recorded CNI calls as a table.
#pragma once

#include "maps/history.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <cstdint>
#include <string_view>

namespace podlane::ctl {

std::string_view verb_name(std::uint8_t operation_verb); // "ADD"
Result<History> open_history(const World &world);
// The recorded calls of the selected endpoints, the newest first, at most `most`.
Result<output::Table> history_table(const Selection &selection, std::size_t most, const World &world);

} // namespace podlane::ctl
