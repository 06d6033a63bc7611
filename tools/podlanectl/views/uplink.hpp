// SPDX-License-Identifier: MIT
// The uplinks as they are now.
#pragma once

#include "loader/attach.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane::ctl {

// One interface in the map of uplinks.
struct UplinkReport {
    std::uint32_t ifindex = 0;
    std::string name{}; // empty: the interface is gone
    std::vector<std::string> networks{};
    bool has_programs = false;
};
Result<std::vector<UplinkReport>> read_uplinks(const World &world, const ProgramsOnHook &on_hook = &programs_on_hook);
// Those of this name, and those of the networks of the selected endpoints.
Result<std::vector<UplinkReport>> selected_uplinks(const Selection &selection, const World &world);
output::Table uplink_table(const std::vector<UplinkReport> &all);
// Attaches and detaches as the networks' last ADDs configured. Takes the exclusive lock; returns what was left out, in
// sentences.
Result<std::vector<std::string>> sync_all_uplinks(const std::string &root);

} // namespace podlane::ctl
