// SPDX-License-Identifier: MIT
// Which keys a configuration may have, and the nearest of them to one that it may not.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"

#include <span>
#include <string_view>

namespace podlane::cni {

// Code 7 on the first key at the top level that is neither known nor foreign.
Result<void> check_top_level_keys(const json::Value &document);

// Code 7 on the first key of an object of ours that is not in the list.
Result<void> check_keys(const json::Node &object, std::span<const std::string_view> known);

} // namespace podlane::cni
