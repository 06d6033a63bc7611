// SPDX-License-Identifier: MIT
// Reads the NAT rules that iptables(8) lists (-S), others' among them, and writes the script that removes a network's.
#pragma once

#include "maps/ip.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace podlane {

inline constexpr const char *kUnmarked = "podlane"; // a mark is a hash of the chain with this in its place

// The rule that leads to the chain all that leaves the subnet, as it is listed, without its command.
std::string jump_from(const Prefix &subnet, const std::string &chain);

// Whichever configuration wrote the rules of the listed chain: the mark in the last one is of all of them.
bool is_as_marked(std::string_view listed, const std::string &network);

// The subnets from which all but what stays within them is led to the chain.
std::vector<Prefix> subnets_that_jump(std::string_view rules, const std::string &chain);

// For iptables-restore(8): removes the chain, and the jumps to it in POSTROUTING. Empty if the chain is not listed.
std::string script_that_removes(std::string_view listed, const std::string &chain);

} // namespace podlane
