// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/rule_text.hpp"

#include "loader/net/legacy_tables.hpp"
#include "loader/process.hpp"
#include "maps/text.hpp"

#include <unistd.h>

namespace podlane::ctl {
namespace {

// Rules may exist all the same: another agent's container may have the program.
Error not_installed(const std::string &path) {
    return {ErrorCode::missing, path + " is not installed",
            std::string("install the package ") + (path == kNft ? "nftables" : "iptables")};
}

bool is_installed(const std::string &path) { return access(path.c_str(), X_OK) == 0; }

// Either may have the plain name alone; which one does, only its version says. Empty if it is not installed.
struct SavePrograms {
    std::string newer; // built on nf_tables
    std::string older;
};

SavePrograms find_save_programs(const std::string &start) {
    SavePrograms found{start + "-nft-save", start + "-legacy-save"};
    const std::string plain = start + "-save";
    const auto version = output_of(plain, {"--version"});
    const bool is_newer = version && version->find("nf_tables") != std::string::npos;
    if (!is_installed(found.newer))
        found.newer = version && is_newer ? plain : "";
    if (!is_installed(found.older))
        found.older = version && !is_newer ? plain : "";
    return found;
}

} // namespace

std::vector<std::string_view> words_of(std::string_view line) { return split(line, " \t;"); }

Result<std::string> output_of(const std::string &path, const std::vector<std::string> &arguments) {
    if (!is_installed(path))
        return not_installed(path);
    const Finished finished = TRY(run_process(path, {"LC_ALL=C", "PATH=/usr/sbin:/sbin:/usr/bin:/bin"}, "", arguments));
    if (finished.exit_code == 0)
        return finished.out;
    const bool is_missing = finished.err.find("No such file or directory") != std::string::npos;
    return Error{is_missing ? ErrorCode::missing : ErrorCode::io_failure,
                 path + ": " + finished.err.substr(0, finished.err.find('\n'))};
}

Result<std::vector<IptablesListing>> iptables_listings(std::string_view table) {
    const bool has_nft = is_installed(kNft);
    bool has_any = has_nft;
    std::vector<IptablesListing> listings;
    for (const bool ipv4 : {true, false}) {
        // The older iptables registers the table that it is to print, and ADD would take it for one in use.
        const bool has_older_rules = TRY(net::has_legacy_table(ipv4, table));
        if (has_nft && !has_older_rules)
            continue;
        const char *family = ipv4 ? "iptables" : "ip6tables";
        const std::string start = std::string("/usr/sbin/") + family;
        const SavePrograms programs = find_save_programs(start);
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
            return not_installed(start + "-legacy-save");
    }
    if (!has_any)
        return Error{ErrorCode::missing,
                     std::string(kNft) + " is not installed, nor is iptables: nothing here prints the node's rules",
                     "install the package nftables"};
    return listings;
}

} // namespace podlane::ctl
