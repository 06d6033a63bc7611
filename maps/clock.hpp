// SPDX-License-Identifier: MIT
// The kernel's clocks, in nanoseconds.
#pragma once

#include <cstdint>
#include <ctime>

namespace podlane {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

inline std::uint64_t clock_ns(clockid_t clock) {
    std::timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<std::uint64_t>(now.tv_nsec);
}

// The clock of bpf_ktime_get_ns(): it stops while the node sleeps.
inline std::uint64_t monotonic_ns() { return clock_ns(CLOCK_MONOTONIC); }
inline std::uint64_t boottime_ns() { return clock_ns(CLOCK_BOOTTIME); }
inline std::uint64_t realtime_ns() { return clock_ns(CLOCK_REALTIME); }

} // namespace podlane
