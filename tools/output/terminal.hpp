// SPDX-License-Identifier: MIT
// Properties of the output stream: width and colours.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace podlane::output {

enum class Tone { plain, strong, faint, good, warning, bad };

struct Style {
    bool colour = false;
    std::size_t width = 0; // columns; 0: no limit
    std::string_view indent{};
};

// Colour and a width only on a terminal. NO_COLOR (no-color.org) and TERM=dumb forbid colour; COLUMNS sets the width.
Style style_of(int fd);

std::string toned(std::string_view text, Tone tone, const Style &style);

} // namespace podlane::output
