// SPDX-License-Identifier: MIT
// Readers of lists in annotations: texts, prefixes and addresses, within the bounds that `podMay` sets.
#pragma once

#include "maps/ip.hpp"
#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/types.hpp"

#include <string>
#include <vector>

namespace podlane::cni {

// ["a", "b"] as JSON, as Calico has it, or "a, b".
Result<std::vector<std::string>> list_in(const json::Node &annotation);
Result<std::vector<Prefix>> prefixes_in(const json::Node &annotation, const Permission &permission);
// Those that a pod can be reached by, as prefixes of full length.
Result<std::vector<Prefix>> addresses_in(const json::Node &annotation, const Permission &permission);

} // namespace podlane::cni
