// SPDX-License-Identifier: MIT
// The kernel's name of a map, by which two maps of one layout differ.
#pragma once

#include "result.hpp"

#include <string>
#include <string_view>

namespace podlane {

// At most 15 characters. Empty if libbpf took the kernel for one without names when the map was created.
Result<std::string> map_name(int fd);

// Whether the map of a pin `pin` may have it.
bool is_name_of(std::string_view map_name, std::string_view pin);

} // namespace podlane
