// SPDX-License-Identifier: MIT
// Work that runs on all CPUs.
#include "maps/parallel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
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

// By the caller's thread alone, and so in their order.
TEST(RunParallel, RunsNoMoreThanSoManyAtATime) {
    std::vector<int> order;
    std::vector<Work> works;
    for (int i = 0; i < 100; ++i)
        works.emplace_back([&order, i]() -> Result<void> {
            order.push_back(i);
            return {};
        });

    ASSERT_TRUE(run_parallel(works, 1));

    EXPECT_EQ(order.size(), works.size());
    EXPECT_TRUE(std::ranges::is_sorted(order));
}

} // namespace
} // namespace podlane
