// SPDX-License-Identifier: MIT
// Suggestions for mistyped words.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace podlane {

// The candidate with the fewest typing errors in `word`; empty if none is near: more than `tolerated` errors, or more
// than a third of the letters if that is more, make another word.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates,
                         std::size_t tolerated = 1);

} // namespace podlane
