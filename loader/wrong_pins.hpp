// SPDX-License-Identifier: MIT
// Pins that are not what this version pins by their names: a directory, a program in a map's place, a map of another
// type, layout or name. Other programs make them; no version of Podlane works beside them.
#pragma once

#include "maps/result.hpp"

#include <string>
#include <vector>

namespace podlane {

// Their paths. A pin that is missing is none of them; one that cannot be opened for another reason is an error.
Result<std::vector<std::string>> wrong_pins(const std::string &root);

// The first of them as an error.
Result<void> refuse_wrong_pins(const std::string &root);

// Needs the exclusive lock. An upgrade then creates what is missing.
Result<void> remove_wrong_pins(const std::string &root);

} // namespace podlane
