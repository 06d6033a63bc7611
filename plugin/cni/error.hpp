// SPDX-License-Identifier: MIT
// An Error as the JSON a CNI runtime expects on standard output.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <string>

namespace podlane::cni {

// {cniVersion, code, msg, details}: msg says what failed and why, details the way out and the errno's name.
std::string to_json(const Error &error, Version version);

} // namespace podlane::cni
