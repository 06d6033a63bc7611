// SPDX-License-Identifier: MIT
// Flows that nobody paces, in simulation: what each of them gets through one limit.
#include "tests/harness/test.hpp"
#include "maps/abi/unpaced_flow.h"

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace podlane {
namespace {

constexpr std::uint64_t kRate = 20000000, kBytes = 1042, kStart = NS_PER_S;
constexpr double kSeconds = 20;

// A flow that sends at a steady rate, or in bursts of so many packets.
struct Flow {
    double rate; // of the limit's
    std::uint64_t burst = 1;
    double sent = 0, passed = 0;
    std::uint64_t due = kStart;
    [[nodiscard]] double lost() const { return 1 - passed / sent; }
    [[nodiscard]] double got() const { return passed * kBytes * 8 / kSeconds / kRate; }
};

constexpr std::uint32_t kTurns = static_cast<std::uint32_t>((kSeconds + 1) * NS_PER_S / 4294967296) + 1;

// So many flows that are in different buckets in each turn.
std::vector<std::uint32_t> hashes_apart(std::size_t count) {
    std::vector<std::uint32_t> all;
    for (std::uint32_t hash = 0; all.size() < count; ++hash) {
        const auto meets = [&](std::uint32_t other) {
            for (std::uint32_t turn = 0; turn < kTurns; ++turn)
                if (unpaced_bucket(hash, turn) == unpaced_bucket(other, turn))
                    return true;
            return false;
        };
        if (std::ranges::none_of(all, meets))
            all.push_back(hash);
    }
    return all;
}

class Unpaced {
  public:
    explicit Unpaced(std::uint32_t paced = 0) {
        make_limit(&limit_, kRate, AUTO_BURST_BITS);
        state_.flows = paced;
    }
    void run(std::vector<Flow> &flows) { run(flows, hashes_apart(flows.size())); }
    void run(std::vector<Flow> &flows, const std::vector<std::uint32_t> &hashes) {
        std::minstd_rand random(1);
        const auto end = kStart + static_cast<std::uint64_t>(kSeconds * NS_PER_S);
        while (true) {
            const auto next = std::ranges::min_element(flows, {}, &Flow::due);
            if (next->due >= end)
                return;
            for (std::uint64_t i = 0; i < next->burst; ++i) {
                next->sent += 1;
                next->passed += pass(hashes[static_cast<std::size_t>(next - flows.begin())], next->due) ? 1 : 0;
            }
            const double apart = static_cast<double>(next->burst * kBytes) * 8e9 / (kRate * next->rate);
            next->due += static_cast<std::uint64_t>(apart * (0.9 + 0.2 * static_cast<double>(random() % 1000) / 1000));
        }
    }

    [[nodiscard]] std::uint64_t horizon() const { return limit_.horizon_ns; }
    [[nodiscard]] std::uint64_t most_backlog() const { return most_backlog_; }

  private:
    bool pass(std::uint32_t hash, std::uint64_t now) {
        const std::uint64_t backlog = backlog_of(state_.free_at_ns, &limit_, now);
        most_backlog_ = std::max(most_backlog_, backlog);
        const unpaced_flow flow = measure_unpaced(&state_, &limit_, hash, now, backlog);
        if (backlog > unpaced_tolerance(&flow, &limit_))
            return false;
        charge(&state_, &limit_, kBytes, now, false, true);
        charge_unpaced(&state_, &limit_, &flow, kBytes, now);
        return true;
    }

    limit limit_{};
    limit_state state_{};
    std::uint64_t most_backlog_ = 0;
};

double sum(const std::vector<Flow> &flows) {
    return std::accumulate(flows.begin(), flows.end(), 0.0,
                           [](double all, const Flow &one) { return all + one.got(); });
}

TEST(LimitUnpaced, AFlowAloneGetsTheRate) {
    std::vector<Flow> flows{{2}};
    Unpaced().run(flows);
    EXPECT_NEAR(flows[0].got(), 1, 0.01);
}

TEST(LimitUnpaced, AFlowWithinItsPartLosesNothing) {
    struct Case {
        double flood, call;
        std::uint64_t burst;
    };
    for (const auto &[flood, call, burst] :
         {Case{2, 0.01, 1}, {2, 0.2, 1}, {2, 0.2, 10}, {2, 0.4, 1}, {2, 0.4, 20}, {50, 0.2, 1}, {1.1, 0.3, 1}}) {
        SCOPED_TRACE(std::to_string(flood) + " " + std::to_string(call) + " in bursts of " + std::to_string(burst));
        std::vector<Flow> flows{{flood}, {call, burst}};
        Unpaced().run(flows);
        EXPECT_LT(flows[1].lost(), 0.001);
        EXPECT_NEAR(sum(flows), 1, 0.01);
    }
}

TEST(LimitUnpaced, AFlowAloneHasTheBurstInEachTurn) {
    std::vector<Flow> flows{{2}};
    Unpaced limited;
    limited.run(flows);
    EXPECT_LE(limited.most_backlog(), limited.horizon() + time_of(kBytes * 8, kRate));
}

TEST(LimitUnpaced, AFlowLeavesTheBucketOfAFlood) {
    double met = 0;
    for (std::uint32_t hash = 1; hash < 1000; ++hash) {
        std::uint32_t together = 0;
        for (std::uint32_t turn = 0; turn < 160; ++turn)
            together += unpaced_bucket(0, turn) == unpaced_bucket(hash << 20U | hash, turn) ? 1 : 0;
        EXPECT_LT(together, 40U) << hash; // one in 16 is 10
        met += together;
    }
    EXPECT_NEAR(met / 999, 10, 2);
    std::uint32_t hash = 1;
    while (unpaced_bucket(hash, 0) != unpaced_bucket(0, 0) || unpaced_bucket(hash, 1) == unpaced_bucket(0, 1))
        ++hash;
    std::vector<Flow> flows{{2}, {0.2}};
    Unpaced().run(flows, {0, hash});
    EXPECT_GT(flows[1].lost(), 0.05) << "they are together at first";
    EXPECT_LT(flows[1].lost(), 0.4);
}

TEST(LimitUnpaced, FloodsGetEqualParts) {
    for (const std::size_t count : {2U, 3U, 10U}) {
        std::vector<Flow> flows;
        for (std::size_t i = 0; i < count; ++i)
            flows.push_back({1 + static_cast<double>(i)});
        Unpaced().run(flows);
        for (const Flow &one : flows)
            EXPECT_NEAR(one.got() * static_cast<double>(count), 1, 0.1) << count << " flows, " << one.rate;
        EXPECT_NEAR(sum(flows), 1, 0.01);
    }
}

TEST(LimitUnpaced, WhatSmallFlowsLeaveIsTheFloods) {
    std::vector<Flow> flows{{2}, {0.3}, {0.1}, {0.05, 5}, {0.05}};
    Unpaced().run(flows);
    for (std::size_t i = 1; i < flows.size(); ++i)
        EXPECT_LT(flows[i].lost(), 0.001) << i;
    EXPECT_NEAR(flows[0].got(), 0.5, 0.02);
}

// A backlog that is taken for that of a clock that jumped would let the next packet pass.
TEST(LimitCharge, NoPacketEndsTheBacklog) {
    for (const std::uint64_t rate : std::initializer_list<std::uint64_t>{1000, kRate, 100'000'000'000})
        for (const std::uint64_t bytes : std::initializer_list<std::uint64_t>{1, 1514, 775'000, 64'000'000}) {
            SCOPED_TRACE(std::to_string(bytes) + " bytes at " + std::to_string(rate));
            limit of{};
            make_limit(&of, rate, AUTO_BURST_BITS);
            limit_state state{};
            std::uint64_t before = 0;
            for (int i = 0; i < 1000; ++i) { // by turns of another CPU, which has read its clock before
                charge(&state, &of, bytes, kStart - i % 2, false, true);
                const std::uint64_t backlog = backlog_of(state.free_at_ns, &of, kStart - 1);
                ASSERT_GE(backlog + 1, before);
                before = backlog;
            }
            EXPECT_GE(before + 1, std::min<std::uint64_t>(longest_backlog(&of), 1000 * time_of(bytes * 8, rate)));
        }
}

} // namespace
} // namespace podlane
