// SPDX-License-Identifier: MIT
// The limits of a pod: those of the configuration, and those that the runtime or an annotation requests.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::cni {

// No value if nobody sets a limit, also if all four numbers are 0. `pod_may`: its annotations count.
Result<std::optional<Bandwidth>> read_bandwidth(const json::Node &root, bool pod_may = true);

// Those of the configuration alone.
Result<std::optional<Bandwidth>> read_configured_limits(const json::Node &root);

// The prefixes of `unshapedSubnets` and `shapedSubnets`, beside the limits or in `bandwidth`.
Result<void> read_limited_prefixes(const json::Node &root, Config &config);

// Keys of the capability `bandwidth` that are not read; the runtime's limit would lack them silently.
void warn_of_unread_limits(const json::Node &root, std::vector<std::string> &warnings);

// A Kubernetes quantity as a whole number, rounded up: "10M", "1Mi", "0.5G", "1e6". No value for anything else, and
// beyond 64 bits.
std::optional<std::uint64_t> parse_quantity(std::string_view text);

} // namespace podlane::cni
