// SPDX-License-Identifier: MIT
// Runs the programs that print netfilter's rules, and takes what they print apart.
#pragma once

#include "maps/result.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

std::vector<std::string_view> words_of(std::string_view line); // without semicolons

template <typename OnLine> void each_line(std::string_view text, OnLine on_line) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        on_line(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

// ErrorCode::missing if the program, or what it is to print, is not there.
Result<std::string> output_of(const std::string &program, const std::vector<std::string> &arguments);

// The rules of iptables and ip6tables in the table that nft(8) does not print: those of the older iptables and, if
// nft(8) is not installed, those of the iptables that is built on nf_tables. ErrorCode::missing if none of these
// programs is installed.
struct IptablesListing {
    std::string_view family; // "iptables", "ip6tables"
    std::string text;
};
Result<std::vector<IptablesListing>> iptables_listings(std::string_view table);

} // namespace podlane::ctl
