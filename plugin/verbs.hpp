// SPDX-License-Identifier: MIT
// The verbs of the CNI specification 1.1.0, section 2, one file each. Their result is printed on standard output.
#pragma once

#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <functional>
#include <string>

namespace podlane {

// Each verb returns its result, or nothing; an error is returned after the rollback. ADD gives its result to `print`
// before it commits.
using Print = std::function<Result<void>(const std::string &result)>;
Result<std::string> add(const cni::Request &request, const Print &print);
Result<std::string> del(const cni::Request &request);
Result<std::string> check(const cni::Request &request);
Result<std::string> gc(const cni::Request &request);
Result<std::string> status(const cni::Request &request);

} // namespace podlane
