// SPDX-License-Identifier: MIT
// The fair share of a limit, in simulation: what each flow gets beside which others.
#include "tests/harness/test.hpp"
#include "tests/unit/limit_simulation.hpp"

#include <numeric>
#include <random>
#include <tuple>

namespace podlane::simulation {
namespace {

constexpr std::uint64_t kRate = 100000000;
constexpr double kGoodput = 1448.0 / 1514;

double jain(const std::vector<double> &of) {
    const double sum = std::accumulate(of.begin(), of.end(), 0.0);
    return sum * sum / (static_cast<double>(of.size()) * std::inner_product(of.begin(), of.end(), of.begin(), 0.0));
}

struct Measured {
    std::vector<double> bits_per_s;
    [[nodiscard]] double sum() const { return std::accumulate(bits_per_s.begin(), bits_per_s.end(), 0.0); }
};

// The bytes that the first `flows` get in `ns` from now on.
Measured measure(Simulation &all, std::size_t flows, std::uint64_t ns) {
    std::vector<std::uint64_t> before;
    for (std::size_t i = 0; i < flows; ++i)
        before.push_back(all.flow(i).acked);
    all.run_until(all.now() + ns);
    Measured measured;
    for (std::size_t i = 0; i < flows; ++i)
        measured.bits_per_s.push_back(static_cast<double>(all.flow(i).acked - before[i]) * 8e9 /
                                      static_cast<double>(ns));
    return measured;
}

void expect_near_rate(double measured, double rate = kRate) {
    EXPECT_GT(measured, 0.95 * kGoodput * rate);
    EXPECT_LT(measured, 1.01 * kGoodput * rate);
}

TEST(LimitShare, EqualFlowsGetEqualParts) {
    for (const auto &[rate, flows] : {std::pair(10000000U, 1U),
                                      {10000000U, 16U},
                                      {10000000U, 64U},
                                      {100000000U, 1U},
                                      {100000000U, 4U},
                                      {100000000U, 64U},
                                      {100000000U, 256U},
                                      {1000000000U, 256U}}) {
        SCOPED_TRACE(std::to_string(flows) + " flows, " + std::to_string(rate));
        Simulation all(rate, flows);
        all.run_until(3 * kSecond);
        const Measured measured = measure(all, flows, 5 * kSecond);
        expect_near_rate(measured.sum(), rate);
        EXPECT_GT(jain(measured.bits_per_s), 0.99);
    }
}

// Its window was made for a higher rate, and its packets are as large: nothing makes it smaller that is not used up.
TEST(LimitShare, AFlowThatSendsManySegmentsAtATimeGetsAnEqualPart) {
    for (const auto &[rate, flows] : {std::pair(1562500U, 1U), {1562500U, 4U}, {100000000U, 64U}, {100000000U, 1U}}) {
        for (const std::uint64_t burst : {4U, 10U, 17U}) {
            SCOPED_TRACE(std::to_string(flows) + " flows, " + std::to_string(rate) + ", " + std::to_string(burst));
            Simulation all(rate, flows);
            all.set_burst(0, burst);
            all.run_until(3 * kSecond);
            const Measured measured = measure(all, flows, 10 * kSecond);
            EXPECT_GT(measured.sum(), 0.93 * kGoodput * rate);
            EXPECT_GT(measured.bits_per_s[0] * flows, 0.9 * kGoodput * rate);
        }
    }
}

// Its last packets are paced at the rate that was announced before.
TEST(LimitShare, AFlowMayPauseAsTheSlowerOfItsRatesHasIt) {
    sender what{};
    what.is_backlogged = true;
    const auto pause = [&](std::uint32_t before, std::uint64_t now) {
        flow_share flow{};
        flow.rate = before;
        return pause_of(&flow, now, &what);
    };
    const std::uint64_t slow = term_of(10000, &what);
    EXPECT_GT(slow, term_of(40000, &what));
    EXPECT_EQ(pause(10000, 40000), slow);
    EXPECT_EQ(pause(40000, 10000), slow);
    EXPECT_EQ(pause(0, 10000), slow) << "no rate was announced before";
}

// Their sockets never hold more than a part of what they could send: what they take says that they take their share.
TEST(LimitShare, FlowsWithSmallBuffersShareToo) {
    constexpr double kFast = 1e9;
    Simulation all(static_cast<std::uint64_t>(kFast));
    for (std::size_t i = 0; i < 4; ++i) {
        all.set_buffer(all.connect(), 65536);
        all.write(i, kForever);
    }
    all.run_until(kSecond);
    const Measured measured = measure(all, 4, 2 * kSecond);
    expect_near_rate(measured.sum(), kFast);
    EXPECT_GT(jain(measured.bits_per_s), 0.99);
    EXPECT_GT(all.state().weight, 3.5 * ONE);
}

TEST(LimitShare, ConnectionsThatComeAndGoTakeOnlyWhatTheySend) {
    struct Case {
        double per_second;
        std::uint64_t bytes;
    };
    for (const auto &[per_second, bytes] :
         {Case{20, 100}, {100, 100}, {400, 100}, {2000, 100}, {100, 20000}, {20, 200000}}) {
        SCOPED_TRACE(std::to_string(per_second) + "/s of " + std::to_string(bytes));
        Simulation all(kRate, 1);
        all.every(per_second, [&all, size = bytes] { all.write(all.connect(), size); });
        all.run_until(kSecond);
        const std::uint64_t segments = (bytes + kPayload - 1) / kPayload;
        const double others = per_second * static_cast<double>(bytes + segments * (kFrame - kPayload)) * 8;
        expect_near_rate(measure(all, 1, 3 * kSecond).sum(), kRate - others);
    }
}

// Their first window passes, and what comes after it does not wait for a backlog that is usual.
TEST(LimitShare, ShortFetchesEndSoonBesideBulk) {
    Simulation all(kRate, 1);
    all.run_until(kSecond);
    std::size_t fetches = 0;
    all.every(100, [&] {
        all.write(all.connect(), 20000);
        ++fetches;
    });
    all.run_until(5 * kSecond);
    std::vector<std::uint64_t> took;
    for (std::size_t i = 1; i + 10 < fetches; ++i)
        took.push_back(all.flow(i).done_ns - all.flow(i).began_ns);
    std::sort(took.begin(), took.end());
    EXPECT_LT(took[took.size() * 99 / 100], 10 * kMs);
    EXPECT_LT(took[took.size() / 2], 5 * kMs);
}

TEST(LimitShare, IdleConnectionsTakeNothing) {
    Simulation all(kRate, 1);
    for (int i = 0; i < 10000; ++i)
        all.write(all.connect(), 100);
    all.run_until(2 * kSecond);
    expect_near_rate(measure(all, 1, kSecond).sum());
}

TEST(LimitShare, SilenceReleasesItsPartWithin100Ms) {
    for (const std::size_t flows : {2U, 16U, 64U}) {
        SCOPED_TRACE(flows);
        Simulation all(kRate, flows);
        all.run_until(2 * kSecond);
        for (std::size_t i = 1; i < flows; ++i)
            all.stop(i);
        all.run_until(all.now() + 100 * kMs);
        EXPECT_GT(measure(all, 1, 100 * kMs).sum(), 0.9 * kGoodput * kRate);
    }
}

// However many connections are open: what a flow does not take is found again by the others.
TEST(LimitShare, SpareRateIsFoundWithin100MsBeside10000Connections) {
    Simulation all(kRate, 2);
    for (int i = 0; i < 10000; ++i)
        all.write(all.connect(), 100);
    all.run_until(2 * kSecond);
    constexpr std::uint64_t kMinute = 60 * kSecond;
    for (int round = 0; round < 5; ++round) {
        for (std::size_t i = 2; i < 202; ++i)
            all.write(i, 20000); // they wake up, all at once
        all.stop(1);
        const auto is_busy = [&](std::size_t i) { return all.flow(i).unsent > 0; };
        for (std::size_t i = 2; i < 202 && all.now() < kMinute; i += is_busy(i) ? 0 : 1)
            all.run_until(all.now() + kMs / 10);
        while (all.backlog() > 20 * kMs && all.now() < kMinute) // their first windows, which are not paced
            all.run_until(all.now() + kMs);
        all.run_until(all.now() + 100 * kMs);
        EXPECT_GT(measure(all, 1, 100 * kMs).sum(), 0.9 * kGoodput * kRate);
        all.write(1, kForever);
        all.run_until(all.now() + kSecond);
    }
}

TEST(LimitShare, AChangedLimitIsFollowedWithin200Ms) {
    for (const std::size_t flows : {1U, 16U, 64U}) {
        SCOPED_TRACE(flows);
        Simulation all(kRate, flows);
        all.run_until(2 * kSecond);
        for (const std::uint64_t rate : std::initializer_list<std::uint64_t>{20000000, 500000000, 50000000}) {
            all.change_rate(rate);
            // Packets sent at the old rate leave at the new one.
            all.run_until(all.now() + 200 * kMs + all.backlog());
            expect_near_rate(measure(all, flows, 2 * kSecond).sum(), rate);
            EXPECT_LT(all.backlog(), 100 * kMs) << rate;
        }
    }
}

// They have sent all they had when the limit comes, so that none of them weighs anything before it has to wait.
TEST(LimitShare, FlowsThatWriteNowAndThenGetALowerLimitOnceTheBacklogIsGone) {
    constexpr std::uint64_t kBefore = 1000000000, kBlock = 16384;
    for (const auto &[rate, flows, each] :
         {std::tuple(20000000U, 10U, 5e6), {20000000U, 30U, 1.6e6}, {20000000U, 60U, 0.8e6}, {100000000U, 60U, 8e6}}) {
        SCOPED_TRACE(std::to_string(flows) + " flows, " + std::to_string(rate));
        Simulation all(kBefore);
        for (std::size_t i = 0; i < flows; ++i) {
            all.connect();
            all.every(each / 8 / kBlock, [&all, i] { all.write(i, kBlock); });
            all.run_until(all.now() + 131 * kMs / flows);
        }
        all.run_until(2 * kSecond);
        all.change_rate(rate);
        all.run_until(all.now() + 100 * kMs);
        while (all.backlog() > 5 * kMs && all.now() < 4 * kSecond)
            all.run_until(all.now() + kMs);
        all.run_until(all.now() + 100 * kMs);
        EXPECT_GT(measure(all, flows, 500 * kMs).sum(), 0.95 * kGoodput * rate);
        EXPECT_LT(all.backlog(), 100 * kMs);
    }
}

TEST(LimitShare, WhatSomeDoNotWantIsLeftToTheOthers) {
    Simulation all(kRate, 1);
    for (int i = 0; i < 8; ++i) {
        const std::size_t stream = all.connect();
        all.every(400, [&all, stream] { all.write(stream, 1448); }); // 4.6 Mbit/s
    }
    all.run_until(2 * kSecond);
    const Measured measured = measure(all, 9, 2 * kSecond);
    expect_near_rate(measured.sum());
    for (std::size_t i = 1; i < 9; ++i)
        EXPECT_GT(measured.bits_per_s[i], 0.97 * 400 * 1448 * 8);
}

TEST(LimitShare, RoundTripsDoNotDecide) {
    Simulation all(kRate);
    for (const std::uint64_t ms : {1, 10, 50, 100})
        all.write(all.connect(ms * kMs), kForever);
    all.run_until(4 * kSecond);
    const Measured measured = measure(all, 4, 5 * kSecond);
    expect_near_rate(measured.sum());
    EXPECT_GT(jain(measured.bits_per_s), 0.9);
}

TEST(LimitShare, FarFlowsAloneHaveTheRate) {
    for (const std::uint64_t rate : {5000000U, 20000000U, 100000000U})
        for (const std::size_t flows : {1, 4, 16})
            for (const std::uint64_t ms : {20, 50, 100, 200}) {
                SCOPED_TRACE(std::to_string(flows) + " flows, " + std::to_string(rate) + ", " + std::to_string(ms) +
                             " ms");
                Simulation all(rate);
                for (std::size_t i = 0; i < flows; ++i)
                    all.write(all.connect(ms * kMs), kForever);
                all.run_until(5 * kSecond);
                const Measured measured = measure(all, flows, 10 * kSecond);
                expect_near_rate(measured.sum(), static_cast<double>(rate));
                EXPECT_GT(jain(measured.bits_per_s), 0.95);
            }
}

// Whoever answers late, or says so, does not slow down the share of the others for longer than a real distance.
TEST(LimitShare, AnEndlessRoundTripDelaysNobody) {
    limit_state state{};
    limit limit{};
    make_limit(&limit, kRate, AUTO_BURST_BITS);
    const sender late{.round_trip_us = std::numeric_limits<std::uint32_t>::max()};
    for (int i = 0; i < 1000; ++i)
        note_round_trip(&state, &late);
    EXPECT_EQ(arrival_delay(&state, &limit), 250 * kMs);
    Simulation all(kRate, 4);
    all.write(all.connect(60 * kSecond), kForever);
    all.at(4 * kSecond, [&all] { all.stop(3); });
    all.run_until(5 * kSecond);
    const Measured measured = measure(all, 3, 5 * kSecond);
    expect_near_rate(measured.sum());
    EXPECT_GT(jain(measured.bits_per_s), 0.95);
}

TEST(LimitShare, OnAndOffTakesHalfOnlyWhileItIsOn) {
    Simulation all(kRate, 1);
    const std::size_t other = all.connect();
    for (std::uint64_t s = 1; s < 8; s += 2) {
        all.at(s * kSecond, [&all, other] { all.write(other, kForever); });
        all.at((s + 1) * kSecond, [&all, other] { all.stop(other); });
    }
    all.run_until(kSecond);
    const Measured measured = measure(all, 2, 6 * kSecond);
    expect_near_rate(measured.sum());
    EXPECT_GT(measured.bits_per_s[0], 0.7 * kGoodput * kRate);
}

TEST(LimitShare, TheRateIsFoundAgainAfterAFloodOfWhatIsNotPaced) {
    Simulation all(kRate, 1);
    bool is_flooding = true;
    all.every(7000, [&] {
        if (is_flooding)
            all.charge_other(1514); // 85 Mbit/s
    });
    all.run_until(2 * kSecond);
    EXPECT_GT(measure(all, 1, kSecond).sum(), 0.1 * kRate);
    EXPECT_NEAR(static_cast<double>(all.state().other_bytes_per_s) * 8, 0.85 * kRate, 0.03 * kRate);
    is_flooding = false;
    all.run_until(all.now() + 150 * kMs);
    EXPECT_GT(measure(all, 1, 100 * kMs).sum(), 0.9 * kGoodput * kRate);
}

// Held at the qdisc up to a backlog: one of the whole burst would leave the paced ones next to nothing.
TEST(LimitShare, AFloodThatIsHeldLeavesPacedFlowsTheirPart) {
    for (const auto &[rate, flows, floods] : {std::tuple(2000000U, 1U, 1U),
                                              {20000000U, 1U, 1U},
                                              {1000000U, 1U, 1U},
                                              {2000000U, 4U, 1U},
                                              {5000000U, 1U, 1U},

                                              {20000000U, 3U, 1U},
                                              {20000000U, 1U, 4U},
                                              {100000000U, 16U, 1U},
                                              {1000000000U, 4U, 1U}}) {
        SCOPED_TRACE(std::to_string(flows) + " flows, " + std::to_string(floods) + " floods, " + std::to_string(rate));
        Simulation all(rate, flows);
        std::vector<std::uint64_t> passed(floods);
        for (std::uint32_t hash = 0; hash < floods; ++hash)
            all.every(1.5 * rate / 8 / 1514, [&, hash] { passed[hash] += all.pass_unpaced(hash, 1514) ? 1514 : 0; });
        all.run_until(3 * kSecond);
        const std::uint64_t before = std::accumulate(passed.begin(), passed.end(), std::uint64_t{0});
        const double paced = measure(all, flows, 5 * kSecond).sum() / rate / kGoodput;
        const double others =
            static_cast<double>(std::accumulate(passed.begin(), passed.end(), std::uint64_t{0}) - before) * 8 / 5 /
            rate;
        const double part = static_cast<double>(flows) / (flows + floods);
        EXPECT_GT(paced, 0.8 * part);
        EXPECT_GT(others, 0.8 * (1 - part));
        EXPECT_GT(paced + others, 0.95);
    }
}

// The sum of the weights is that of the slots, whatever the flows do and however the clock jumps.
TEST(LimitShare, WeightsAddUp) {
    std::mt19937_64 random(1);
    limit given{};
    make_limit(&given, kRate, AUTO_BURST_BITS);
    limit_state state{};
    std::vector<flow_share> flows(50);
    std::uint64_t now = kSecond;
    for (int i = 0; i < 20000; ++i) {
        now += random() % 100 == 0 ? random() % (10 * kSecond) : random() % kMs;
        set_weight(&state, &given, &flows[random() % flows.size()], static_cast<std::uint32_t>(random() % (ONE + 1)),
                   now, random() % kSecond);
        ASSERT_EQ(state.weight, std::accumulate(std::begin(state.leaving), std::end(state.leaving), 0U)) << i;
        ASSERT_LE(state.fair_bytes_per_s, kRate / 8 + kRate / 32 + 1);
        ASSERT_GE(state.fair_bytes_per_s, 1U);
    }
    set_weight(&state, &given, flows.data(), 0, now + 10 * kSecond, 0);
    EXPECT_EQ(state.weight, 0U);
}

} // namespace
} // namespace podlane::simulation
