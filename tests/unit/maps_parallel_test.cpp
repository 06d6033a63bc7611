// SPDX-License-Identifier: MIT
// Work that runs on all CPUs.
#include "maps/parallel.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace podlane {
namespace {

TEST(RunParallel, RunsEachOnceAndReportsTheFirstErrorFirst) {
    std::array<std::atomic<int>, 100> runs{};
    std::vector<Work> works;
    for (std::size_t i = 0; i < runs.size(); ++i)
        works.emplace_back([&runs, i]() -> Result<void> {
            ++runs[i];
            if (i % 40 == 7)
                return Error{ErrorCode::bpf, "work " + std::to_string(i)};
            return {};
        });

    const Result<void> done = run_parallel(works);

    for (const std::atomic<int> &times : runs)
        EXPECT_EQ(times, 1);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "work 7; work 47; work 87");
    EXPECT_TRUE(run_parallel({}));
}

TEST(RunParallel, RunsNoMoreAtATimeThanItIsGiven) {
    std::atomic<int> running = 0, most = 0;
    const std::vector<Work> works(50, [&]() -> Result<void> {
        const int now = ++running;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        --running;
        return {};
    });

    ASSERT_TRUE(run_parallel(works, 1));
    EXPECT_EQ(most, 1);
    ASSERT_TRUE(run_parallel(works, 2));
    EXPECT_LE(most, 2);
}

} // namespace
} // namespace podlane
