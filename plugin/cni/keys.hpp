// SPDX-License-Identifier: MIT
// Which keys a configuration may have, and the nearest of them to one that it may not.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/key.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::cni {

// The names of an object's keys: "bandwidth", "log".
[[nodiscard]] std::vector<std::string_view> keys_of(Key::Place place);

// Code 7 on the first key at the top level that is neither in the list of keys nor foreign.
Result<void> check_top_level_keys(const json::Value &document);

// A sentence on each key at the top level that is accepted, and has no effect.
[[nodiscard]] std::vector<std::string> foreign_keys(const json::Value &document);

// Code 7 on the first key of an object that is not among the known ones.
Result<void> check_keys(const json::Node &object, std::span<const std::string_view> known);

} // namespace podlane::cni
