// SPDX-License-Identifier: MIT
// The pinned maps: those this version knows, and those that are there.
#pragma once

#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

Result<int> map_dump(const Call &call, World &world);
Result<int> map_get(const Call &call, World &world);

// Part of a map's key, as a column of its dump.
struct KeyPart {
    enum class Kind { word, endpoint, address, prefix };
    std::string_view column; // title, or field if it has none
    Kind kind = Kind::word;
};

// A map of this version of Podlane.
struct KnownMap {
    std::string_view name; // as pinned
    std::string_view holds;
    Result<output::Table> (*dump)(const Selection &selection, const World &world);
    std::array<KeyPart, 4> key{};
    bool as_records = false; // too wide for a table
    // As dump, with the fields that dump leaves out.
    Result<output::Table> (*get)(const Selection &selection, const World &world) = nullptr;
};
std::span<const KnownMap> known_maps();
// By full name, name without version, or the beginning of one.
Result<const KnownMap *> find_map(std::string_view word);
void print_entries(const KnownMap &map, const output::Table &entries, World &world);
// Number of entries of the selected endpoints, or of their networks.
Result<std::uint64_t> count_selected(const KnownMap &map, const Selection &selection, const World &world);

// One map pinned below the root, or one that should be.
struct MapReport {
    std::string name;
    unsigned version = 0;
    bool there = false;
    bool known = false;
    std::string note{}; // what is unusual about it
    std::string path{};
    MapFacts facts{};
    std::uint64_t entries = 0;
    std::uint64_t memory = 0;
};
Result<std::vector<MapReport>> read_maps(const World &world);
output::Table map_table(const std::vector<MapReport> &maps);

} // namespace podlane::ctl
