// SPDX-License-Identifier: MIT
// Names, in output and logs, of the numbers of an endpoint. They are stable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

std::vector<std::string> flag_words(std::uint32_t interface_flags);
std::string_view mode_name(std::uint8_t endpoint_mode);     // "main"; empty if unknown, as is the next
std::string_view attach_name(std::uint8_t endpoint_attach); // "tcx"

} // namespace podlane
