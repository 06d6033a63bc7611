// SPDX-License-Identifier: MIT
// The arithmetic of a limit that pods share: what each gets, by what each wants.
#include "tests/unit/limit_group_simulation.hpp"

#include <gtest/gtest.h>

#include <map>

namespace podlane {
namespace {

TEST(LimitGroup, BusyPodsGetTheirGuarantees) {
    Group group(100 * kMbit);
    for (int i = 0; i < 63; ++i)
        group.want(group.add(kMbit), kAll);
    group.want(group.add(37 * kMbit), kAll);
    group.run(300 * kMs);
    const auto rates = group.rates(2 * NS_PER_S);
    for (int i = 0; i < 63; ++i)
        EXPECT_NEAR(rates[static_cast<std::size_t>(i)], kMbit, 0.02 * kMbit);
    EXPECT_NEAR(rates[63], 37.0 * kMbit, 0.02 * 37 * kMbit);
}

// Its packets wait at the group's rate: at less, the queue that the kernel keeps for it would be too short for TCP.
TEST(LimitGroup, OneAloneHasTheWholeRateWhateverItHasSent) {
    Group group(40 * kMbit);
    group.want(group.add(10 * kMbit), kAll);
    group.add(10 * kMbit);
    group.run(100 * kMs);
    for (int i = 0; i < 200; ++i) {
        group.run(10 * kMs);
        ASSERT_EQ(group.rate_of(0), 40 * kMbit) << i;
    }
}

TEST(LimitGroup, WhatOneLeavesIsLentWithin200MsAndReturned) {
    for (const std::size_t pods : {std::size_t{2}, std::size_t{64}}) {
        SCOPED_TRACE(pods);
        const std::uint64_t guarantee = 100 * kMbit / pods;
        Group group(100 * kMbit);
        for (std::size_t i = 0; i < pods; ++i)
            group.want(group.add(guarantee), kAll);
        group.run(NS_PER_S);
        for (std::size_t i = pods / 2; i < pods; ++i)
            group.want(i, 0);
        group.run(200 * kMs);
        EXPECT_NEAR(group.rates(NS_PER_S)[0], 2.0 * static_cast<double>(guarantee),
                    0.04 * static_cast<double>(guarantee));
        for (std::size_t i = pods / 2; i < pods; ++i)
            group.want(i, kAll);
        group.run(200 * kMs);
        const auto rates = group.rates(NS_PER_S);
        EXPECT_NEAR(rates[0], static_cast<double>(guarantee), 0.03 * static_cast<double>(guarantee));
        EXPECT_NEAR(rates[pods - 1], static_cast<double>(guarantee), 0.03 * static_cast<double>(guarantee));
    }
}

// A connection that could once send faster keeps its window, and its packets are as large.
TEST(LimitGroup, PodsThatSendManyFramesAtATimeGetAndBorrowAsMuch) {
    for (const std::uint64_t burst : {4, 10, 17}) {
        SCOPED_TRACE(burst);
        constexpr double kGuarantee = 100.0 * kMbit / 64;
        Group group(100 * kMbit);
        for (std::size_t i = 0; i < 64; ++i)
            group.want_in_bursts(group.add(100 * kMbit / 64), i % 4 == 0 ? burst : 2);
        group.run(NS_PER_S);
        auto rates = group.rates(10 * NS_PER_S);
        for (std::size_t i = 0; i < 64; ++i)
            EXPECT_NEAR(rates[i], kGuarantee, 0.03 * kGuarantee) << i;
        for (std::size_t i = 32; i < 64; ++i)
            group.want(i, 0);
        group.run(400 * kMs);
        rates = group.rates(10 * NS_PER_S);
        for (std::size_t i = 0; i < 32; ++i)
            EXPECT_NEAR(rates[i], 2 * kGuarantee, 0.06 * kGuarantee) << i;
    }
}

TEST(LimitGroup, WhatAPodDoesNotWantOfItsGuaranteeIsLent) {
    Group group(100 * kMbit);
    const std::size_t modest = group.add(50 * kMbit), busy = group.add(50 * kMbit);
    group.want(modest, 10 * kMbit);
    group.want(busy, kAll);
    group.run(NS_PER_S);
    const auto rates = group.rates(2 * NS_PER_S);
    EXPECT_NEAR(rates[modest], 10.0 * kMbit, 0.02 * 10 * kMbit);
    EXPECT_GT(rates[busy], 0.95 * 90 * kMbit);
    EXPECT_LT(rates[busy] + rates[modest], 1.02 * 100 * kMbit);
    group.want(modest, kAll);
    group.run(200 * kMs);
    EXPECT_NEAR(group.rates(NS_PER_S)[modest], 50.0 * kMbit, 0.02 * 50 * kMbit) << "it is its own at once";
}

// Also if the guarantees exceed the group's rate together, and whether or not a pod is silent in between.
TEST(LimitGroup, PodsThatSendAPacketNowAndThenTakeNothingFromABusyOne) {
    for (const std::uint64_t guarantee : {10 * kMbit, 50 * kMbit})
        for (const std::uint64_t pause : {20, 55, 75, 100}) {
            SCOPED_TRACE(std::to_string(guarantee) + ", every " + std::to_string(pause) + " ms");
            Group group(100 * kMbit);
            const std::size_t busy = group.add(guarantee);
            group.want(busy, kAll);
            group.run(300 * kMs);
            for (int i = 0; i < 7; ++i)
                group.want(group.add(guarantee), FRAME_BITS * 1000 / pause);
            EXPECT_GT(group.rates(2 * NS_PER_S)[busy], 0.9 * 100 * kMbit);
        }
}

TEST(LimitGroup, PodsThatBeginAreLentToOnceTheyHaveShownWhatTheyWant) {
    Group group(100 * kMbit);
    const std::size_t busy = group.add(12 * kMbit);
    group.want(busy, kAll);
    group.run(NS_PER_S);
    for (std::size_t i = 1; i <= 7; ++i)
        group.send_packet(group.add(12 * kMbit), FRAME_BITS / 8);
    for (std::size_t i = 1; i <= 7; ++i) {
        EXPECT_NEAR(static_cast<double>(group.rate_of(i)), 12.0 * kMbit, 0.1 * kMbit);
        group.want(i, kAll);
    }
    group.run(100 * kMs);
    for (const double rate : group.rates(NS_PER_S))
        EXPECT_NEAR(rate, 12.5 * kMbit, 0.05 * 12.5 * kMbit);
}

// The rates of these members if they want all that there is.
void expect_shares(Group &group, const std::map<std::size_t, std::uint64_t> &shares) {
    for (const auto &[member, share] : shares)
        group.want(member, kAll);
    group.run(NS_PER_S);
    const auto rates = group.rates(NS_PER_S);
    for (const auto &[member, share] : shares)
        EXPECT_NEAR(rates[member], static_cast<double>(share), 0.03 * static_cast<double>(share));
}

TEST(LimitGroup, WhatIsUnusedIsLentInProportion) {
    Group group(100 * kMbit);
    const std::size_t one = group.add(10 * kMbit), three = group.add(30 * kMbit);
    group.add(60 * kMbit);
    expect_shares(group, {{one, 25 * kMbit}, {three, 75 * kMbit}});
}

TEST(LimitGroup, GuaranteesBeyondTheRateAreCutInProportion) {
    Group group(60 * kMbit);
    const std::size_t one = group.add(30 * kMbit), three = group.add(90 * kMbit);
    expect_shares(group, {{one, 15 * kMbit}, {three, 45 * kMbit}});
}

TEST(LimitGroup, OneAloneGetsAllWhateverItsGuarantee) {
    for (const std::uint64_t rate : {std::uint64_t{100000}, 100 * kMbit, 100000 * kMbit})
        for (const std::uint64_t part : {1, 100, 1000}) {
            Group group(rate);
            group.want(group.add(rate / part), kAll);
            group.run(kMs);
            EXPECT_NEAR(static_cast<double>(group.rate_of(0)), static_cast<double>(rate),
                        0.01 * static_cast<double>(rate))
                << rate << " / " << part;
        }
}

TEST(LimitGroup, AClockThatJumpsAndHugeNumbersBreakNothing) {
    for (const std::uint64_t guarantee : {std::uint64_t{1}, std::uint64_t{HIGHEST_RATE}, kAll})
        for (const std::uint64_t rate : {std::uint64_t{1}, std::uint64_t{HIGHEST_RATE}})
            for (const std::uint64_t now : {std::uint64_t{1}, kAll / 2, kAll - 1}) {
                limit group_limit{};
                limit_state group{}, pod{};
                make_limit(&group_limit, rate, AUTO_BURST_BITS);
                make_limit(&pod.limit, guarantee, AUTO_BURST_BITS);
                pod.group = LIMIT_GROUP;
                pod.given_bits_per_s = guarantee;
                pod.bytes = kAll / 3;
                group_report one{};
                one.now = now;
                expire_flows(&group, now);
                if (!begin_report(&pod, &one))
                    continue;
                answer_report(&group, &group_limit, &one);
                end_report(&pod, &one, AUTO_HORIZON_NS);
                EXPECT_GE(pod.limit.rate_bits_per_s, 1U);
                EXPECT_LE(pod.limit.rate_bits_per_s, std::max<std::uint64_t>(rate, 1));
            }
}

} // namespace
} // namespace podlane
