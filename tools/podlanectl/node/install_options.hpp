// SPDX-License-Identifier: MIT
// Options of install that name several values.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// Prefixes, separated by commas; none if the option is not given.
Result<std::vector<std::string>> prefixes_in(const Call &call, Opt option, std::string_view name);

// Those of --subnets: a pod gets an address of each, and two of them must not be the same.
Result<std::vector<std::string>> subnets_in(const Call &call);

// --keys: each key once, and none that another option sets.
Result<void> check_keys_option(const Call &call);

} // namespace podlane::ctl
