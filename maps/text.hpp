// SPDX-License-Identifier: MIT
// Text: lists joined, numbers read.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

std::string join(const std::vector<std::string> &items, std::string_view separator);

// Digits, of a signed type also behind a minus: all of the text, and in the range of the type.
template <std::integral Number> std::optional<Number> parse_number(std::string_view text, int base = 10) {
    Number number{};
    const char *const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number, base);
    return error == std::errc{} && stopped == end ? std::optional(number) : std::nullopt;
}

} // namespace podlane
