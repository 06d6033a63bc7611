// SPDX-License-Identifier: MIT
// Limits that pods of a network share: `limitGroups` defines them, `limitGroup` or an annotation names a pod's.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

namespace podlane::cni {

Result<void> read_limit_group(const json::Node &node, std::string &into);
Result<void> read_limit_groups(const json::Node &node, LimitGroups &into);

// Once it is known which group the pod is in. Its guarantee is the operator's word: what the runtime or an annotation
// says lowers it, but makes none.
Result<void> check_limit_group(const json::Node &root, const Config &config);

} // namespace podlane::cni
