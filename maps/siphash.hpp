// SPDX-License-Identifier: MIT
// SipHash-2-4 (Aumasson and Bernstein, 2012): without the key nobody finds two texts with one hash.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace podlane {

using SipKey = std::array<std::uint64_t, 2>;

constexpr std::uint64_t siphash(const SipKey &key, std::string_view text) {
    std::array<std::uint64_t, 4> v = {key[0] ^ 0x736f6d6570736575U, key[1] ^ 0x646f72616e646f6dU,
                                      key[0] ^ 0x6c7967656e657261U, key[1] ^ 0x7465646279746573U};
    const auto rounds = [&v](int count) {
        while (count-- > 0) {
            v[0] += v[1], v[2] += v[3];
            v[1] = std::rotl(v[1], 13) ^ v[0], v[3] = std::rotl(v[3], 16) ^ v[2];
            v[0] = std::rotl(v[0], 32);
            v[2] += v[1], v[0] += v[3];
            v[1] = std::rotl(v[1], 17) ^ v[2], v[3] = std::rotl(v[3], 21) ^ v[0];
            v[2] = std::rotl(v[2], 32);
        }
    };
    constexpr std::size_t kWord = 8;
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        word |= std::uint64_t{static_cast<unsigned char>(text[i])} << (i % kWord * kWord);
        if (i % kWord == kWord - 1) {
            v[3] ^= word;
            rounds(2);
            v[0] ^= word;
            word = 0;
        }
    }
    word |= std::uint64_t{text.size()} << 56U;
    v[3] ^= word;
    rounds(2);
    v[0] ^= word;
    v[2] ^= 0xff;
    rounds(4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

} // namespace podlane
