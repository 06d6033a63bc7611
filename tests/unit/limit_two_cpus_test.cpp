// SPDX-License-Identifier: MIT
// The fair share of a limit while several CPUs charge it.
#include "maps/abi/fair_share.h"
#include "tests/harness/test.hpp"

#include <limits>
#include <numeric>

namespace podlane::simulation {
namespace {

constexpr std::uint64_t kRate = 100000000, kSecond = NS_PER_S;

// Each CPU reads the clock before it takes the lock: another one may have been later already.
class TwoCpus : public testing::Test {
  protected:
    TwoCpus() {
        make_limit(&limit_, kRate, AUTO_BURST_BITS);
        restart_share(&state_, &limit_, kNow);
    }

    static constexpr std::uint64_t kNow = 100ULL << LIMIT_SLOT_SHIFT; // a slot begins
    limit limit_{};
    limit_state state_{};
};

TEST_F(TwoCpus, AnEarlierClockEndsNoTerm) {
    std::vector<flow_share> flows(4);
    for (flow_share &flow : flows)
        set_weight(&state_, &limit_, &flow, ONE, kNow, LEAST_TERM_NS);
    set_weight(&state_, &limit_, flows.data(), ONE, kNow - 1, LEAST_TERM_NS);
    EXPECT_EQ(state_.weight, 4U * ONE);
    // However long a CPU was held up, what it adds leaves again.
    for (const std::uint64_t late : std::initializer_list<std::uint64_t>{1, 2 * LEAST_TERM_NS, kSecond}) {
        for (flow_share &flow : flows)
            set_weight(&state_, &limit_, &flow, ONE, kNow - late, LEAST_TERM_NS);
        EXPECT_EQ(state_.weight, 4U * ONE) << late;
        EXPECT_EQ(std::accumulate(std::begin(state_.leaving), std::end(state_.leaving), 0U), state_.weight) << late;
    }
    expire_flows(&state_, kNow + LEAST_TERM_NS + (2ULL << LIMIT_SLOT_SHIFT));
    EXPECT_EQ(state_.weight, 0U);
}

TEST_F(TwoCpus, AnEarlierClockMeasuresNothing) {
    flow_share flow{};
    set_weight(&state_, &limit_, &flow, ONE, kNow, kSecond);
    state_.other_bytes_per_s = kRate / 80;
    state_.gain = ONE / 2;
    charge(&state_, &limit_, 1514, kNow - 1, false, false);
    EXPECT_EQ(state_.gain, ONE / 2);
    EXPECT_EQ(state_.other_bytes_per_s, kRate / 80);
    EXPECT_EQ(state_.window_since_ns, kNow);
}

TEST_F(TwoCpus, AnEarlierClockIsNotIdle) {
    state_.large_at_ns = kNow;
    EXPECT_FALSE(is_idle(&state_, &limit_, kNow - 1));
    EXPECT_TRUE(is_idle(&state_, &limit_, kNow + kSecond));
}

// A sum that wrapped would be a share for each of as much as the limit.
TEST_F(TwoCpus, MoreFlowsThanCanBeCountedLeaveTheSumAtItsGreatest) {
    constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
    std::vector<flow_share> flows(5);
    expire_flows(&state_, kNow);
    state_.weight = state_.leaving[(slot_of(kNow) + 2) % LIMIT_SLOTS] = kMost - 3 * ONE; // of four million
    for (flow_share &flow : flows) {
        set_weight(&state_, &limit_, &flow, ONE, kNow, LEAST_TERM_NS);
        EXPECT_LT(state_.fair_bytes_per_s, kRate / 8 / 4000);
    }
    EXPECT_EQ(state_.weight, kMost);
    for (flow_share &flow : flows)
        set_weight(&state_, &limit_, &flow, 0, kNow, 0);
    EXPECT_EQ(state_.weight, kMost - 3 * ONE);
}

} // namespace
} // namespace podlane::simulation
