// SPDX-License-Identifier: MIT
// Values of a configuration that are one of a few words.
#pragma once

#include "plugin/cni/json.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace podlane::cni {

template <typename T> using Word = std::pair<std::string_view, T>;

// Writes the meaning of a present value; an error names the key and all words.
template <typename T, std::size_t N>
Result<void> read_word(const json::Node &node, const std::array<Word<T>, N> &words, T &into) {
    if (!node.present())
        return {};
    std::string expected;
    const auto text = node.text();
    for (const auto &[word, meaning] : words) {
        expected += (expected.empty() ? "\"" : ", \"") + std::string(word) + "\"";
        if (text && *text == word) {
            into = meaning;
            return {};
        }
    }
    return node.wrong("one of " + expected);
}

} // namespace podlane::cni
