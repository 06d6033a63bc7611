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

// Of ASCII, whatever the locale.
constexpr bool is_alphanumeric(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
// What keys of labels and names of sysctls consist of.
constexpr bool is_key_character(char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '/' || c == '-'; }

// Digits, of a signed type also behind a minus: all of the text, and in the range of the type.
template <std::integral Number> std::optional<Number> parse_number(std::string_view text, int base = 10) {
    Number number{};
    const char *const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number, base);
    return error == std::errc{} && stopped == end ? std::optional(number) : std::nullopt;
}

} // namespace podlane
