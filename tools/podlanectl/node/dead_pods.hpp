// SPDX-License-Identifier: MIT
// For uninstall: what is left of pods that are gone, and that only a DEL or GC of the plugin would remove later.
#pragma once

#include "maps/result.hpp"
#include "plugin/torn_record.hpp"

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace podlane::ctl {

struct World;

struct DeadPods {
    std::size_t without_interface = 0; // attachments whose DEL is still to come, and which have no interface
    std::set<std::pair<std::string, std::string>> kept{}; // container and interface of what could not be removed
    TornRecords torn{};               // as they were before anything was removed: other records name their networks
    Result<void> unread{};            // why torn records, if there are any, are kept
    std::vector<std::string> lines{}; // of the report
};

// Those that died without a DEL: their rules, leases and records. `owned`: the maps are of this network namespace.
Result<void> collect_dead_pods(const World &world, bool owned, const std::string &state_directory, DeadPods &dead);

// Leases that are held, or wait, and those whose record is torn.
Result<void> release_leases(const World &world, const std::string &state_directory, DeadPods &dead);

} // namespace podlane::ctl
