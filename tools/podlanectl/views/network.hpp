// SPDX-License-Identifier: MIT
// Networks as a table, and their names by number.
#pragma once

#include "tools/podlanectl/views/selection.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace podlane::ctl {

// Names of the networks by their numbers; empty if the map is missing.
std::map<std::uint32_t, std::string> network_names(const World &world);
// The name, or the number in hexadecimal digits.
std::string network_words(const std::map<std::uint32_t, std::string> &names, std::uint32_t network);
Result<output::Table> network_table(const Selection &selection, const World &world);

} // namespace podlane::ctl
