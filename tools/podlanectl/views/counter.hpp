// SPDX-License-Identifier: MIT
// The counters of endpoints, by reason.
#pragma once

#include "tools/podlanectl/views/selection.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane::ctl {

// Counters of one endpoint, summed over the CPUs.
struct EndpointCounters {
    std::uint32_t ifindex = 0;
    std::string pod{}; // empty: no endpoint is known for it
    std::string container_id{};
    counters total{};
};
// In the order of `entries`, then, if `orphans`, those without an endpoint.
Result<std::vector<EndpointCounters>> read_counters(const std::vector<EndpointEntry> &entries, bool orphans,
                                                    const World &world);
// With `before`, also the rates since then.
output::Table counter_table(const std::vector<EndpointCounters> &all, bool zeros, const Before *before = nullptr,
                            std::uint64_t now_ns = 0);

} // namespace podlane::ctl
