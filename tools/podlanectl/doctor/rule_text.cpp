// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/rule_text.hpp"

#include "loader/net/legacy_tables.hpp"
#include "loader/process.hpp"
#include "maps/text.hpp"
#include "tools/podlanectl/views/program_output.hpp"

namespace podlane::ctl {
namespace {

Result<bool> is_installed(const std::string &program) { return !TRY(find_program(program)).empty(); }

// Either may have the plain name alone; which one does, only its version says. Empty if it is not installed.
struct SavePrograms {
    std::string newer; // built on nf_tables
    std::string older;
};

Result<SavePrograms> find_save_programs(const std::string &family) {
    SavePrograms found{family + "-nft-save", family + "-legacy-save"};
    const bool has_newer = TRY(is_installed(found.newer)), has_older = TRY(is_installed(found.older));
    if (has_newer && has_older)
        return found;
    const std::string plain = family + "-save";
    const auto version = output_of(plain, {"--version"});
    if (!version && version.error().code != ErrorCode::missing)
        return version.error();
    const bool is_newer = version && version->find("nf_tables") != std::string::npos;
    if (!has_newer)
        found.newer = version && is_newer ? plain : "";
    if (!has_older)
        found.older = version && !is_newer ? plain : "";
    return found;
}

} // namespace

std::vector<std::string_view> words_of(std::string_view line) { return split(line, " \t;"); }

Result<std::vector<IptablesListing>> iptables_listings(std::string_view table) {
    const bool has_nft = TRY(is_installed("nft"));
    bool has_any = has_nft;
    std::vector<IptablesListing> listings;
    for (const bool ipv4 : {true, false}) {
        // The older iptables registers the table that it is to print, and ADD would take it for one in use.
        const bool has_older_rules = TRY(net::has_legacy_table(ipv4, table));
        if (has_nft && !has_older_rules)
            continue;
        const char *family = ipv4 ? "iptables" : "ip6tables";
        const SavePrograms programs = TRY(find_save_programs(family));
        const auto list = [&](const std::string &program) -> Result<void> {
            listings.push_back({family, TRY(output_of(program, {"-t", std::string(table)}))});
            return {};
        };
        has_any = has_any || !programs.newer.empty() || !programs.older.empty();
        if (!has_nft && !programs.newer.empty())
            TRY(list(programs.newer));
        if (has_older_rules && !programs.older.empty())
            TRY(list(programs.older));
        else if (has_older_rules && has_any)
            return not_installed(std::string(family) + "-legacy-save");
    }
    if (!has_any)
        return Error{ErrorCode::missing, "nft is not installed, nor is iptables: nothing here prints the node's rules",
                     "install the package nftables"};
    return listings;
}

} // namespace podlane::ctl
