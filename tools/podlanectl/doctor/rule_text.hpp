// SPDX-License-Identifier: MIT
// Takes apart what the programs print that list netfilter's rules.
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

// Lines that `nft list ruleset` prints, and where they are: `chain` is empty outside of one. `end` is called behind
// each table, and once before the first.
struct NftPlace {
    std::string_view family, table, chain;
};
template <typename OnLine, typename End> void each_nft_line(std::string_view listing, OnLine on_line, End end) {
    NftPlace at;
    each_line(listing, [&](std::string_view line) {
        const auto words = words_of(line);
        if (words.size() >= 3 && words[0] == "table") {
            end(at);
            at = {words[1], words[2], {}};
        } else if (words.size() >= 2 && words[0] == "chain")
            at.chain = words[1];
        else if (words.size() == 1 && words[0] == "}")
            at.chain = {};
        else if (!words.empty() && !words[0].starts_with("#"))
            on_line(at, line, words);
    });
    end(at);
}

// The rules of iptables and ip6tables in the table that nft(8) does not print: those of the older iptables and, if
// nft(8) is not installed, those of the iptables that is built on nf_tables. ErrorCode::missing if none of these
// programs is installed.
struct IptablesListing {
    std::string_view family; // "iptables", "ip6tables"
    std::string text;
};
Result<std::vector<IptablesListing>> iptables_listings(std::string_view table);

} // namespace podlane::ctl
