// SPDX-License-Identifier: MIT
// Runs independent work on all CPUs.
#pragma once

#include "maps/result.hpp"

#include <functional>
#include <span>

namespace podlane {

using Work = std::function<Result<void>()>;

// All of them, as far as there are CPUs and threads. Reports the first error in the order of `works`.
Result<void> run_parallel(std::span<const Work> works);

} // namespace podlane
