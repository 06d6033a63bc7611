// SPDX-License-Identifier: MIT
// BPF objects of the tests: a program in the role of a foreign one, and all that is in Podlane's maps.
#pragma once

#include "loader/attach.hpp"
#include "maps/fd.hpp"
#include "maps/map.hpp"

#include <linux/bpf.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace podlane::test {

// A program that lets the next one have every packet (TCX_NEXT, TC_ACT_UNSPEC).
Fd load_passing_program(const char *name);

// Attach a foreign program in the calling thread's namespace: as a filter of clsact, whose qdisc is created if it is
// missing, or to tcx.
void attach_filter(int program, std::uint32_t ifindex, Hook hook, unsigned priority = 5);
void attach_tcx(int program, std::uint32_t ifindex, Hook hook);
bpf_attach_type tcx_type(Hook hook);

// Keys and values by map, but of the maps named.
using MapEntries = std::map<std::string, std::vector<std::pair<Bytes, Bytes>>>;
MapEntries map_entries(const std::string &bpffs, const std::set<std::string_view> &left_out);

} // namespace podlane::test
