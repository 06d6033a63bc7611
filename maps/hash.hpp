// SPDX-License-Identifier: MIT
// FNV-1a: spreads names over numbers and detects accidents. It does not resist an attacker who chooses the input.
#pragma once

#include <cstdint>
#include <string_view>

namespace podlane {

constexpr std::uint32_t fnv1a_32(std::string_view bytes) {
    std::uint32_t hash = 0x811c9dc5U;
    for (const char c : bytes)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193U;
    return hash;
}

constexpr std::uint64_t kFnv1aStart = 0xcbf29ce484222325U;

// `start`: the hash of the bytes before these.
constexpr std::uint64_t fnv1a_64(std::string_view bytes, std::uint64_t start = kFnv1aStart) {
    std::uint64_t hash = start;
    for (const char c : bytes)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    return hash;
}

} // namespace podlane
