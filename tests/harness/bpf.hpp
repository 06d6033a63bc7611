// SPDX-License-Identifier: MIT
// BPF objects of the tests' own: a program for the place of somebody else's, and all that is in Podlane's maps.
#pragma once

#include "maps/fd.hpp"
#include "maps/map.hpp"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace podlane::test {

// A program that lets the next one have every packet (TCX_NEXT, TC_ACT_UNSPEC).
Fd load_passing_program(const char *name);

// Keys and values by map, but of the maps named.
using MapEntries = std::map<std::string, std::vector<std::pair<Bytes, Bytes>>>;
MapEntries map_entries(const std::string &bpffs, const std::set<std::string_view> &left_out);

} // namespace podlane::test
