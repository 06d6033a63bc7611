// SPDX-License-Identifier: MIT
// Readers of what results and configurations have in common; below plugin/cni only.
#pragma once

#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <vector>

namespace podlane::cni {

// A result in the form of any version; errors have code 7 and name the path below `node`.
Result<Attachment> read_attachment(const json::Node &node);
Result<std::vector<Route>> read_routes(const json::Node &list);
// Of a configuration: with no other keys than those of a route.
Result<std::vector<Route>> read_configured_routes(const json::Node &list);
// Of values that an earlier version accepted, so that a record may have them.
Result<void> check_configured_routes(const json::Node &list);
Result<void> check_name_servers(const json::Node &dns);
Result<Dns> read_dns(const json::Node &node);

// "a/b", or with `or_address` also "a".
Result<Prefix> read_prefix(const json::Node &node, bool or_address);

} // namespace podlane::cni
