// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/rule_text.hpp"

#include "loader/net/legacy_tables.hpp"
#include "loader/process.hpp"
#include "maps/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace podlane::ctl {
namespace {

// Rules may exist all the same: another agent's container may have the program.
Error not_installed(const std::string &path) {
    return {ErrorCode::missing, path + " is not installed",
            std::string("install the package ") + (path == kNft ? "nftables" : "iptables")};
}

} // namespace

std::vector<std::string_view> words_of(std::string_view line) { return split(line, " \t;"); }

Result<std::string> output_of(const char *path, const std::vector<std::string> &arguments) {
    if (access(path, X_OK) != 0)
        return not_installed(path);
    const Finished finished = TRY(run_process(path, {"LC_ALL=C", "PATH=/usr/sbin:/sbin:/usr/bin:/bin"}, "", arguments));
    if (finished.exit_code == 0)
        return finished.out;
    const bool is_missing = finished.err.find("No such file or directory") != std::string::npos;
    return Error{is_missing ? ErrorCode::missing : ErrorCode::io_failure,
                 std::string(path) + ": " + finished.err.substr(0, finished.err.find('\n'))};
}

Result<std::vector<OlderListing>> older_listings(std::string_view table) {
    struct Older {
        bool ipv4;
        const char *program;
        std::string_view family;
    };
    constexpr std::array<Older, 2> kOlder = {{
        {true, "/usr/sbin/iptables-legacy-save", "iptables"},
        {false, "/usr/sbin/ip6tables-legacy-save", "ip6tables"},
    }};
    std::vector<OlderListing> listings;
    for (const Older &older : kOlder)
        if (net::has_legacy_table(older.ipv4, table))
            listings.push_back({older.family, TRY(output_of(older.program, {"-t", std::string(table)}))});
    return listings;
}

} // namespace podlane::ctl
