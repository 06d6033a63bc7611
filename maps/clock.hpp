// SPDX-License-Identifier: MIT
// The kernel's clocks, in nanoseconds, and the time that is left.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace podlane {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
constexpr std::uint64_t kNsPerMs = 1'000'000;

inline std::uint64_t clock_ns(clockid_t clock) {
    std::timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

// The clock of bpf_ktime_get_ns(): it stops while the node sleeps.
inline std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline std::uint64_t boottime_ns() { return clock_ns(CLOCK_BOOTTIME); }
inline std::uint64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }

// Rounded up, and 0 from then on: as poll(2) takes it.
inline int milliseconds_until(std::chrono::steady_clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT32_MAX));
}

} // namespace podlane
