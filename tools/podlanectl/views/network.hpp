// SPDX-License-Identifier: MIT
// Networks as a table, and their names by number.
#pragma once

#include "tools/podlanectl/views/selection.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace podlane::ctl {

// Names of the networks by their numbers; empty if the map is missing.
std::map<std::uint32_t, std::string> network_names(const World &world);
// The name, or the number in hexadecimal digits.
std::string network_words(const std::map<std::uint32_t, std::string> &names, std::uint32_t network);
// How many packets the rules of the key `egress` have dropped. Nothing without the key, or on a kernel that has no
// nf_tables.
std::optional<std::uint64_t> egress_drops_of(const std::string &network);
Result<output::Table> network_table(const Selection &selection, const World &world);

} // namespace podlane::ctl
