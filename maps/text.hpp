// SPDX-License-Identifier: MIT
// Text: lists joined and split, numbers read.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

template <typename Items> std::string join(const Items &items, std::string_view separator) {
    std::string text;
    for (const auto &item : items)
        text.append(text.empty() ? "" : separator).append(item);
    return text;
}
// The parts between any of these characters, without the empty ones: views into `text`, unless another type is
// named.
template <typename Part = std::string_view>
std::vector<Part> split(std::string_view text, std::string_view separators) {
    std::vector<Part> parts;
    for (std::size_t at = text.find_first_not_of(separators); at != std::string_view::npos;) {
        const std::size_t end = std::min(text.find_first_of(separators, at), text.size());
        parts.emplace_back(text.substr(at, end - at));
        at = text.find_first_not_of(separators, end);
    }
    return parts;
}

// Of ASCII, whatever the locale.
constexpr bool is_alphanumeric(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
std::string lower_case(std::string text);
// The characters of label keys and sysctl names.
constexpr bool is_key_character(char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '/' || c == '-'; }

// Digits, of a signed type also behind a minus: all of the text, and in the range of the type.
template <std::integral Number> std::optional<Number> parse_number(std::string_view text, int base = 10) {
    Number number{};
    const char *const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number, base);
    return error == std::errc{} && stopped == end ? std::optional(number) : std::nullopt;
}

} // namespace podlane
