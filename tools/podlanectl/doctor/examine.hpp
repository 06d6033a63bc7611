// SPDX-License-Identifier: MIT
// Runs the table of checks on the node and on its endpoints.
#pragma once

#include "tools/podlanectl/doctor/passes.hpp"

#include <string>
#include <vector>

namespace podlane::ctl::doctor {

// The scope of the examination, by the options of the command.
struct Scope {
    Selection selection;
    std::string state_directory, bin_dir, conf_dir;
    std::vector<ClusterNode> cluster{};
};

// A check that fails is a finding itself. Endpoints are examined on all CPUs.
Result<Examined> examine(const Scope &scope, const World &world);

} // namespace podlane::ctl::doctor
