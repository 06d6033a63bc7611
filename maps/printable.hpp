// SPDX-License-Identifier: MIT
// Text from outside, made safe to print: one line, and nothing that a terminal or a reader of a log obeys.
#pragma once

#include <string>
#include <string_view>

namespace podlane {

// Whether printable() leaves the text as it is.
[[nodiscard]] bool is_printable(std::string_view text);

// Control characters of ASCII and Unicode, characters that reorder or hide text, and bytes that are no UTF-8 become
// '?', one for each byte.
[[nodiscard]] std::string printable(std::string_view text);

} // namespace podlane
