// SPDX-License-Identifier: MIT
#include "maps/abi/tcp_window.h"

#include <gtest/gtest.h>

namespace podlane {
namespace {

// From one window below what the endpoint expects next to the last number of its window; numbers go round.
TEST(TcpWindow, HoldsAWindowBelowAndTheWindow) {
    constexpr std::uint8_t kScale = 7;
    constexpr std::uint32_t kSize = (255U + 1) << kScale;
    for (const std::uint32_t ack : {0U, 5000U, kSize, 0x80000000U, 0xffffffffU}) {
        SCOPED_TRACE(ack);
        const tcp_window window{ack, 255, 1};
        for (const std::uint32_t inside : {ack, ack - 1, ack + 1, ack - kSize, ack + kSize - 1})
            EXPECT_TRUE(is_in_window(&window, kScale, inside)) << inside;
        for (const std::uint32_t outside : {ack - kSize - 1, ack + kSize, ack + 0x80000000U})
            EXPECT_FALSE(is_in_window(&window, kScale, outside)) << outside;
    }
}

TEST(TcpWindow, OfAnEndpointThatHasSaidNothingHoldsNothing) {
    const tcp_window window{5000, 255, 0};
    EXPECT_FALSE(is_in_window(&window, 0, 5000));
}

// A closed window lets a FIN in that follows what was acknowledged, and nothing behind it.
TEST(TcpWindow, HoldsTheNextNumberWhenItIsClosed) {
    const tcp_window window{5000, 0, 1};
    EXPECT_TRUE(is_in_window(&window, 0, 5000));
    EXPECT_FALSE(is_in_window(&window, 0, 5001));
}

// In steps of 64 KiB: the window that is announced to it, and 16 more, in both directions.
TEST(TcpWindow, AnAcknowledgmentIsOfWhatTheEndpointSendsAbout) {
    for (const std::uint16_t sent : {1, 0x1235, 0xffff}) {
        for (const auto &[scale, reach] : {std::pair{0, 17}, {7, 144}, {14, 16400}}) {
            SCOPED_TRACE(std::to_string(sent) + " " + std::to_string(scale));
            const tcp_window window{0, 0, sent};
            const auto holds = [&, scale = scale](int steps) {
                const auto upper = static_cast<std::uint16_t>(sent + steps);
                return acknowledges_sent(&window, static_cast<std::uint8_t>(scale), std::uint32_t{upper} << 16U);
            };
            EXPECT_TRUE(holds(reach) && holds(0) && holds(-reach));
            EXPECT_FALSE(holds(reach + 1) || holds(-reach - 1));
        }
    }
}

} // namespace
} // namespace podlane
