// SPDX-License-Identifier: MIT
#include "text.hpp"

#include <algorithm>

namespace podlane {

std::string lower_case(std::string text) {
    std::ranges::transform(text, text.begin(), [](char c) { return lower_case(c); });
    return text;
}

} // namespace podlane
