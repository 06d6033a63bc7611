// SPDX-License-Identifier: MIT
// Readers of the keys that say who may open connections to a pod.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <string_view>

namespace podlane::cni {

Result<void> read_isolation(const json::Node &node, IsolateBy &into);
Result<void> read_allow(const json::Node &node, std::vector<std::pair<std::string, std::string>> &into);
// "allow" or "deny".
Result<void> read_admission(const json::Node &node, bool &into);
// "allow" or "cluster".
Result<void> read_egress(const json::Node &node, bool &into);
Result<void> read_group_cidrs(const json::Node &node, std::vector<std::pair<Prefix, std::string>> &into);

// A group's name as `podlanectl group list` prints it: printable, and not too long.
bool is_group_name(std::string_view name);

// Checks keys that belong together: an error names the key.
Result<void> check_isolation(const json::Node &root, const Config &config);
Result<void> check_egress(const json::Node &root, const Config &config);

} // namespace podlane::cni
