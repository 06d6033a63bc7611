// SPDX-License-Identifier: MIT
#include "maps/siphash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace podlane {
namespace {

// The vectors of the paper's reference implementation: key 00 01 … 0f, text 00 01 … of each length.
TEST(Siphash, MatchesTheReference) {
    constexpr SipKey kKey = {0x0706050403020100U, 0x0f0e0d0c0b0a0908U};
    const auto of = [&](std::size_t length) {
        std::string text;
        for (std::size_t i = 0; i < length; ++i)
            text += static_cast<char>(i);
        return siphash(kKey, text);
    };
    EXPECT_EQ(of(0), 0x726fdb47dd0e0e31U);
    EXPECT_EQ(of(1), 0x74f839c593dc67fdU);
    EXPECT_EQ(of(7), 0xab0200f58b01d137U);
    EXPECT_EQ(of(8), 0x93f5f5799a932462U);
    EXPECT_EQ(of(15), 0xa129ca6149be45e5U);
    EXPECT_NE(siphash({1, 2}, "tenant-a"), siphash({1, 3}, "tenant-a"));
}

} // namespace
} // namespace podlane
