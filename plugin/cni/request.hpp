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
// VERSION requires neither; its config holds only the version found, or the newest.
// Hostile input is refused quickly: at most 1 MiB and 32 levels of nesting.
Result<Request> parse_request(const Environment &environment, std::string_view stdin_text);
// Of an ADD that may have been an earlier version's, which refused less.
Result<Request> parse_recorded(const Environment &environment, std::string_view stdin_text);

// The supported version that a text names, even if the rest is broken: errors are written in it. An object that names
// none means the oldest. No value if nothing can be read or the version is not supported; write kNewestVersion then.
std::optional<Version> version_of(std::string_view stdin_text);

} // namespace podlane::cni
