// SPDX-License-Identifier: MIT
// One CNI call, checked: environment and standard input become a Request here and nowhere else.
//
// key.hpp lists the keys of the configuration. A key that is not in that list, nor marked as foreign by a '.' or a '/'
// in its name ("cni.dev/valid-attachments", "io.kubernetes…"), is an error that names it and suggests the nearest key.
#pragma once

#include "plugin/cni/types.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace podlane::cni {

using Environment = std::map<std::string, std::string>;

// Errors carry the spec's codes: 4 environment, 6 not JSON, 7 a key's value, 1 version, 2 unsupported field.
// VERSION asks nothing of either; its config holds only the version found, or the newest.
// Hostile input is refused quickly: at most 1 MiB and 32 levels of nesting.
Result<Request> parse_request(const Environment &environment, std::string_view stdin_text);

// The supported version a text asks for, also where the rest is broken: what to write an error in. An object that names
// none asks for the oldest. No value where nothing can be read or we do not speak it; write kNewestVersion then.
std::optional<Version> version_of(std::string_view stdin_text);

} // namespace podlane::cni
