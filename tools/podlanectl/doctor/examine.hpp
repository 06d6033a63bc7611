// SPDX-License-Identifier: MIT
// Runs the table of checks on the node and on its endpoints.
#pragma once

#include "tools/podlanectl/doctor/doctor.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace podlane::ctl::doctor {

struct Row {
    const Check *check;
    Finding finding;
    std::string pod{}; // empty: of the node
    std::string host_interface{};
    std::string fixed{}; // "yes", or why not; empty if not tried

    [[nodiscard]] bool is_fixed() const { return fixed == "yes"; }
    [[nodiscard]] std::string remedy() const;
};

struct Examined {
    std::size_t checks = 0;
    std::vector<Row> rows{};
};

// The scope of the examination, by the options of the command.
struct Scope {
    Selection selection;
    std::string state_directory, bin_dir, conf_dir;
    std::vector<ClusterNode> cluster{};
};

// The number behind the colon ("map ... is nearly full: 950 of 1000") may be another one.
bool is_same(const Row &a, const Row &b);

// A check that fails is a finding itself. Endpoints are examined on all CPUs. If something is wrong, it is found twice:
// for a moment each ADD and DEL leaves the node in a state that none is to stay in.
Result<Examined> examine(const Scope &scope, const World &world);

} // namespace podlane::ctl::doctor
