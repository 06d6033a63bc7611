// SPDX-License-Identifier: MIT
// The arithmetic of a limit that pods share: what each gets, by what each wants.
#include "maps/abi/limit_group.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

namespace podlane {
namespace {

constexpr std::uint64_t kMs = NS_PER_MS;
constexpr std::uint64_t kMbit = 1000000;
constexpr std::uint64_t kAll = ~0ULL;

// Pods that send full frames, as fast as their limits let them or at a rate of their own, and report to their group.
class Group {
  public:
    explicit Group(std::uint64_t rate) { make_limit(&limit_, rate, AUTO_BURST_BITS); }

    std::size_t add(std::uint64_t guarantee) {
        Pod &pod = pods_.emplace_back();
        pod.state.group = LIMIT_GROUP | 1;
        pod.state.given_bits_per_s = guarantee;
        pod.state.given_burst_bits = AUTO_BURST_BITS;
        make_limit(&pod.state.limit, guarantee, AUTO_BURST_BITS);
        return pods_.size() - 1;
    }
    // Bits per second; kAll: as much as it can.
    void want(std::size_t pod, std::uint64_t rate) {
        pods_[pod].wanted = rate;
        pods_[pod].next_ns = now_;
    }
    // As much as it can, paced, and so many frames at a time.
    void want_in_bursts(std::size_t pod, std::uint64_t frames) {
        want(pod, kAll);
        pods_[pod].burst = frames;
    }
    void run(std::uint64_t time) {
        for (const std::uint64_t end = now_ + time; now_ < end; now_ += kMs / 10)
            for (Pod &pod : pods_)
                send(pod);
    }
    // Bits per second that each sends in the time.
    std::vector<double> rates(std::uint64_t time) {
        std::vector<double> sent;
        for (const Pod &pod : pods_)
            sent.push_back(-static_cast<double>(pod.state.bytes));
        run(time);
        for (std::size_t i = 0; i < pods_.size(); ++i)
            sent[i] = (sent[i] + static_cast<double>(pods_[i].state.bytes)) * 8e9 / static_cast<double>(time);
        return sent;
    }
    [[nodiscard]] const limit_state &state() const { return group_; }
    [[nodiscard]] std::uint64_t rate_of(std::size_t pod) const { return pods_[pod].state.limit.rate_bits_per_s; }

  private:
    struct Pod {
        limit_state state{};
        std::uint64_t wanted = 0, next_ns = 0;
        std::uint64_t burst = 0, rate = 1000000; // frames, and bits per second
    };

    void send(Pod &pod) {
        if (pod.burst != 0)
            return send_burst(pod);
        while (pod.wanted != 0 && pod.next_ns <= now_) {
            if (backlog_of(pod.state.free_at_ns, &pod.state.limit, now_) > pod.state.limit.horizon_ns) {
                report(pod); // a packet that is dropped
                return;
            }
            report(pod);
            charge(&pod.state, &pod.state.limit, FRAME_BITS / 8, now_, false, true);
            pod.next_ns += pod.wanted == kAll ? 0 : time_of(FRAME_BITS, pod.wanted);
        }
    }
    void send_burst(Pod &pod) {
        if (pod.wanted == 0 || pod.next_ns > now_)
            return;
        report(pod);
        charge(&pod.state, &pod.state.limit, pod.burst * FRAME_BITS / 8, now_, false, false);
        // As announced with the acknowledgment of what was sent before.
        pod.next_ns = now_ + time_of(pod.burst * FRAME_BITS, pod.rate);
        sender what{};
        what.burst = pod.burst * FRAME_BITS / 8;
        what.is_backlogged = true;
        flow_share flow{};
        flow.rate = static_cast<std::uint32_t>(pod.rate / 8);
        pod.rate = pod.state.limit.rate_bits_per_s;
        pod.state.pause_us = static_cast<std::uint32_t>(pause_of(&flow, pod.rate / 8, &what) / 1000);
    }
    // As report_to_group() in bpf/limit_group.h.
    void report(Pod &pod) {
        group_report one{};
        one.now = now_;
        expire_flows(&group_, now_);
        if (!begin_report(&pod.state, &one))
            return;
        answer_report(&group_, &limit_, &one);
        end_report(&pod.state, &one, burst_horizon(one.guarantee, pod.state.given_burst_bits));
    }

    limit limit_{};
    limit_state group_{};
    std::uint64_t now_ = NS_PER_S;
    std::deque<Pod> pods_;
};

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
    for (int i = 0; i < 7; ++i)
        group.want(group.add(12 * kMbit), kAll);
    group.run(kMs);
    for (std::size_t i = 1; i <= 7; ++i)
        EXPECT_NEAR(static_cast<double>(group.rate_of(i)), 12.0 * kMbit, 0.1 * kMbit);
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
