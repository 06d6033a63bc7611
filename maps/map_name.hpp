// SPDX-License-Identifier: MIT
// The kernel's name of a map, by which two maps of one layout differ.
#pragma once

#include "result.hpp"

#include <bpf/bpf.h>

#include <string_view>

namespace podlane {

// All that the kernel says of a map, in one call.
Result<bpf_map_info> map_info(int fd);

// Whether the map of a pin `pin` may have the name: at most 15 characters; none if libbpf took the kernel for one
// without names when the map was created.
bool is_name_of(std::string_view map_name, std::string_view pin);

} // namespace podlane
