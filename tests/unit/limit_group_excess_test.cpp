// SPDX-License-Identifier: MIT
// How far pods that share a limit can exceed it together, whatever their habits.
#include "tests/unit/limit_group_simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace podlane {
namespace {

constexpr std::uint64_t kRate = 40 * kMbit;
constexpr std::size_t kMeasuredMs = 6000, kStartMs = 1000;

// With each period it sends a small packet, later many bytes at once, and as much as it can for a while. In ms.
struct Habit {
    std::uint64_t period, small_at, bytes, busy, phase;
};
constexpr Habit kFlood{1000000, 0, 0, 1000000, 0};

void act(Group &group, std::size_t pod, const Habit &habit, std::uint64_t ms) {
    const std::uint64_t at = (ms + habit.phase) % habit.period;
    if (at == habit.small_at)
        group.send_packet(pod, 62);
    if (at == 0)
        group.send_at_once(pod, habit.bytes);
    if (at == 0 || at == habit.busy)
        group.want(pod, at < habit.busy ? kAll : 0);
}

// Of the group's rate.
struct Load {
    double mean = 0, busiest_second = 0;
};

// The pods have equal guarantees, which are together the rate so many times.
Load load_of(const std::vector<Habit> &habits, double over = 1) {
    Group group(kRate);
    for (std::size_t i = 0; i < habits.size(); ++i)
        group.add(static_cast<std::uint64_t>(over * static_cast<double>(kRate) / static_cast<double>(habits.size())));
    std::vector<std::uint64_t> sent;
    for (std::uint64_t ms = 0; ms <= kStartMs + kMeasuredMs; ++ms) {
        sent.push_back(group.sent());
        for (std::size_t i = 0; i < habits.size(); ++i)
            act(group, i, habits[i], ms);
        group.run(kMs);
    }
    const auto part = [&](std::size_t from, std::size_t to) {
        return static_cast<double>(sent[to] - sent[from]) * 8000 / static_cast<double>((to - from) * kRate);
    };
    Load load{part(kStartMs, sent.size() - 1)};
    for (std::size_t end = 1000; end < sent.size(); ++end)
        load.busiest_second = std::max(load.busiest_second, part(end - 1000, end));
    return load;
}

// A second has the bursts of the guarantees and of one that is lent all.
void expect_held(const Load &load) {
    EXPECT_LT(load.mean, 1.05);
    EXPECT_LT(load.busiest_second, 1.25);
}

// One that sends next to nothing is lent much, and its bucket holds 100 ms of that.
TEST(LimitGroupExcess, BurstsOfPodsThatWereSilentBesideAFlood) {
    for (const std::size_t pods : {2, 5, 64})
        for (const std::uint64_t period : {60, 120, 200, 300})
            for (const std::uint64_t bytes : {100000, 500000, 1000000})
                for (const std::uint64_t apart : {0, 7}) {
                    if (pods == 64 && bytes == 500000)
                        continue; // takes long
                    SCOPED_TRACE(std::to_string(pods) + " pods, " + std::to_string(bytes) + " bytes every " +
                                 std::to_string(period) + " ms");
                    std::vector<Habit> habits{kFlood};
                    for (std::size_t i = 1; i < pods; ++i)
                        habits.push_back({period, period - 20, bytes, 0, i * apart});
                    expect_held(load_of(habits));
                }
}

TEST(LimitGroupExcess, PodsThatAreBusyInTurn) {
    for (const std::uint64_t busy : {30, 80, 140})
        expect_held(load_of({{2 * busy, busy, 0, busy, 0}, {2 * busy, busy, 0, busy, busy}}));
}

TEST(LimitGroupExcess, PodsOfAnyHabits) {
    for (const double over : {1.0, 2.0})
        for (unsigned seed = 0; seed < 60; ++seed) {
            SCOPED_TRACE(std::to_string(seed) + ", guarantees of " + std::to_string(over));
            std::mt19937 random(seed);
            const std::uint64_t period = 60 + random() % 240;
            std::vector<Habit> habits(2 + random() % 4);
            for (Habit &one : habits) {
                one.period = seed % 2 == 0 ? period : 60 + random() % 240;
                one.small_at = random() % one.period;
                one.bytes = random() % 2 * (random() % 1000000);
                one.busy = random() % 2 * (random() % one.period);
                one.phase = random() % one.period;
            }
            expect_held(load_of(habits, over));
        }
}

} // namespace
} // namespace podlane
