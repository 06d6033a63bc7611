// SPDX-License-Identifier: MIT
#include "maps/printable.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace podlane {
namespace {

constexpr std::uint32_t kLargest = 0x10ffff;

// Of Unicode: controls (C1), marks of direction and embedding, separators of lines, invisible characters, surrogates.
constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 8> kRefused = {{{0x80, 0x9f},
                                                                              {0xad, 0xad},
                                                                              {0x61c, 0x61c},
                                                                              {0x200b, 0x200f},
                                                                              {0x2028, 0x202e},
                                                                              {0x2060, 0x206f},
                                                                              {0xd800, 0xdfff},
                                                                              {0xfeff, 0xfeff}}};

bool is_plain(char c) { return c >= ' ' && c <= '~'; }

std::size_t length_of(unsigned char first) {
    if ((first & 0xe0U) == 0xc0U)
        return 2;
    if ((first & 0xf0U) == 0xe0U)
        return 3;
    return (first & 0xf8U) == 0xf0U ? 4 : 0;
}

// Bytes of the character that the text begins with; 0 if it is not to be printed.
std::size_t printable_length(std::string_view text) {
    constexpr std::array<std::uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000}; // no longer form than needed
    const auto first = static_cast<unsigned char>(text.front());
    if (first < 0x80)
        return is_plain(text.front()) ? 1 : 0;
    const std::size_t length = length_of(first);
    if (length == 0 || text.size() < length)
        return 0;
    std::uint32_t point = first & (0x7fU >> length);
    for (const char c : text.substr(1, length - 1)) {
        const auto byte = static_cast<unsigned char>(c);
        if ((byte & 0xc0U) != 0x80U)
            return 0;
        point = point << 6U | (byte & 0x3fU);
    }
    const auto within = [point](const auto &range) { return point >= range.first && point <= range.second; };
    const bool bad = point < kSmallest.at(length) || point > kLargest || std::ranges::any_of(kRefused, within);
    return bad ? 0 : length;
}

} // namespace

bool is_printable(std::string_view text) {
    if (std::ranges::all_of(text, is_plain))
        return true;
    while (!text.empty()) {
        const std::size_t length = printable_length(text);
        if (length == 0)
            return false;
        text.remove_prefix(length);
    }
    return true;
}

std::string printable(std::string_view text) {
    if (std::ranges::all_of(text, is_plain))
        return std::string(text);
    std::string shown;
    while (!text.empty()) {
        const std::size_t length = printable_length(text);
        shown += length == 0 ? std::string_view("?") : text.substr(0, length);
        text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return shown;
}

} // namespace podlane
