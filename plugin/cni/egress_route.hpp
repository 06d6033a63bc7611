// SPDX-License-Identifier: MIT
// Readers of a network's own egress route: by which interface, to which gateways, by which table.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::cni {

// Of ASCII characters, and one that an interface of the node can have.
[[nodiscard]] bool is_uplink_name(std::string_view text);

Result<void> read_uplink(const json::Node &node, std::string &into);
// Of an ADD, not of its record: earlier versions accepted more names.
Result<void> check_uplink(const json::Node &node);
Result<void> read_gateways(const json::Node &node, std::vector<ip_addr> &into); // at most one of each family
Result<void> read_table(const json::Node &node, std::optional<std::uint32_t> &into);

} // namespace podlane::cni
