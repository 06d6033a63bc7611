// SPDX-License-Identifier: MIT
// Readers of a network's own egress route: by which interface, to which gateways, by which table.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace podlane::cni {

Result<void> read_uplink(const json::Node &node, std::string &into);
Result<void> read_gateways(const json::Node &node, std::vector<ip_addr> &into); // at most one of each family
Result<void> read_table(const json::Node &node, std::optional<std::uint32_t> &into);

} // namespace podlane::cni
