// SPDX-License-Identifier: MIT
// Runs independent work on all CPUs.
#pragma once

#include "maps/result.hpp"

#include <cstddef>
#include <functional>
#include <limits>
#include <span>

namespace podlane {

using Work = std::function<Result<void>()>;

// All of them, as far as there are CPUs and threads, and no more than so many at a time. Reports the first error in the
// order of `works`.
Result<void> run_parallel(std::span<const Work> works, std::size_t at_a_time = std::numeric_limits<std::size_t>::max());

} // namespace podlane
