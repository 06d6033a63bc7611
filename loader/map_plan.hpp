// SPDX-License-Identifier: MIT
// The maps that loading creates, and what they cost on a machine of any number of CPUs, without loading anything.
#pragma once

#include "loader/object.hpp"
#include "maps/map.hpp"

#include <cstdint>
#include <string>
#include <vector>

struct bpf_object;

namespace podlane {

struct PlannedMap {
    std::string name;
    MapFacts facts;
};

// Of the embedded programs, with the sizes of these settings.
Result<std::vector<PlannedMap>> planned_maps(const LoadSettings &settings);

void set_map_sizes(bpf_object *object, const LoadSettings &settings);

// Memory of a map with so many entries, as the kernel counts it (Linux 6.4 and newer).
std::uint64_t map_bytes(const MapFacts &facts, std::uint64_t entries);
// The reserve of the kernel's allocator for new entries, on a machine of so many possible CPUs that has made none
// (Linux 6.1 and newer).
std::uint64_t reserve_bytes(const MapFacts &facts, unsigned cpus);

} // namespace podlane
