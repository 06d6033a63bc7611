// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/forward_rules.hpp"

#include "loader/process.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>

namespace podlane::ctl {
namespace {

// kube-proxy's chains: they accept pods' traffic, and drop what conntrack finds invalid.
constexpr std::array<std::string_view, 5> kKubeProxy = {"KUBE-FORWARD", "KUBE-PROXY-FIREWALL", "KUBE-SERVICES",
                                                        "KUBE-EXTERNAL-SERVICES", "KUBE-NODEPORTS"};

struct Chain {
    bool at_forward = false;
    bool drops = false;
    std::vector<std::string> leads_to{};
};
using Chains = std::map<std::string, Chain, std::less<>>;

std::vector<std::string_view> words_of(std::string_view line) {
    constexpr std::string_view kSpace = " \t;";
    std::vector<std::string_view> words;
    for (std::size_t at = line.find_first_not_of(kSpace); at != std::string_view::npos;) {
        const std::size_t end = std::min(line.find_first_of(kSpace, at), line.size());
        words.push_back(line.substr(at, end - at));
        at = line.find_first_not_of(kSpace, end);
    }
    return words;
}

template <typename OnLine> void each_line(std::string_view text, OnLine on_line) {
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        on_line(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

bool drops(const Chains &chains, std::string_view name, std::set<std::string, std::less<>> &seen) {
    const auto chain = chains.find(name);
    if (chain == chains.end() || !seen.emplace(name).second)
        return false;
    return chain->second.drops || std::ranges::any_of(chain->second.leads_to, [&](const std::string &next) {
               return std::ranges::find(kKubeProxy, next) == kKubeProxy.end() && drops(chains, next, seen);
           });
}

void add_dropping(const Chains &chains, std::string_view table, std::string_view family,
                  std::vector<std::string> &found) {
    for (const auto &[name, chain] : chains) {
        std::set<std::string, std::less<>> seen;
        if (chain.at_forward && drops(chains, name, seen))
            found.push_back("chain " + std::string(table) + " " + name + " (" + std::string(family) + ")");
    }
}

void read_nft_rule(const std::vector<std::string_view> &words, Chain &chain) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool has_next = i + 1 < words.size();
        if (words[i] == "hook" && has_next && words[i + 1] == "forward")
            chain.at_forward = true;
        else if ((words[i] == "jump" || words[i] == "goto") && has_next)
            chain.leads_to.emplace_back(words[++i]);
        else if (words[i] == "drop" || words[i] == "reject") // also as the policy
            chain.drops = true;
    }
}

bool is_installed(const char *path) { return access(path, X_OK) == 0; }

Result<std::string> output_of(const char *path, const std::vector<std::string> &arguments) {
    const Finished finished = TRY(run_process(path, {"LC_ALL=C", "PATH=/usr/sbin:/sbin:/usr/bin:/bin"}, "", arguments));
    if (finished.exit_code != 0)
        return Error{ErrorCode::io_failure, std::string(path) + ": " + finished.err.substr(0, finished.err.find('\n'))};
    return finished.out;
}

// Rules may exist all the same: another agent's container may have the program.
Error not_installed(const std::string &path, const char *package) {
    return {ErrorCode::missing, path + " is not installed", "install the package " + std::string(package)};
}

bool has_older_filter(const char *names) {
    std::ifstream tables(names);
    for (std::string name; std::getline(tables, name);)
        if (name == "filter")
            return true;
    return false;
}

} // namespace

std::vector<std::string> dropping_chains_of_nft(std::string_view listing) {
    std::vector<std::string> found;
    std::string family, table;
    Chains chains;
    std::string current;
    const auto finish = [&] {
        const bool meets_ip = family == "ip" || family == "ip6" || family == "inet";
        if (meets_ip && !table.starts_with("podlane-"))
            add_dropping(chains, table, family, found);
        chains.clear();
    };
    each_line(listing, [&](std::string_view line) {
        const auto words = words_of(line);
        if (words.size() >= 3 && words[0] == "table") {
            finish();
            family = words[1];
            table = words[2];
        } else if (words.size() >= 2 && words[0] == "chain")
            current = words[1];
        else if (words.size() == 1 && words[0] == "}")
            current.clear();
        else if (!current.empty() && !words.empty() && !words[0].starts_with("#"))
            read_nft_rule(words, chains[current]);
    });
    finish();
    return found;
}

std::vector<std::string> dropping_chains_of_iptables(std::string_view listing, std::string_view family) {
    Chains chains;
    each_line(listing, [&](std::string_view line) {
        const auto words = words_of(line);
        if (words.size() < 2)
            return;
        if (line.starts_with(":FORWARD ")) {
            chains["FORWARD"].at_forward = true;
            chains["FORWARD"].drops = chains["FORWARD"].drops || words[1] == "DROP";
        }
        if (words[0] != "-A")
            return;
        Chain &chain = chains[std::string(words[1])];
        for (std::size_t i = 2; i + 1 < words.size(); ++i)
            if (words[i] == "-j" || words[i] == "-g") {
                chain.drops = chain.drops || words[i + 1] == "DROP" || words[i + 1] == "REJECT";
                chain.leads_to.emplace_back(words[i + 1]);
            }
    });
    std::vector<std::string> found;
    add_dropping(chains, "filter", family, found);
    return found;
}

Result<std::vector<std::string>> chains_that_drop_forwarded() {
    struct Older {
        const char *names;
        const char *program;
        std::string_view family;
    };
    constexpr std::array<Older, 2> kOlder = {{
        {"/proc/thread-self/net/ip_tables_names", "/usr/sbin/iptables-legacy-save", "iptables"},
        {"/proc/thread-self/net/ip6_tables_names", "/usr/sbin/ip6tables-legacy-save", "ip6tables"},
    }};
    constexpr const char *kNft = "/usr/sbin/nft";
    std::vector<std::string> found;
    if (!is_installed(kNft))
        return not_installed(kNft, "nftables");
    found = dropping_chains_of_nft(TRY(output_of(kNft, {"list", "ruleset"})));
    for (const Older &older : kOlder) {
        if (!has_older_filter(older.names))
            continue;
        if (!is_installed(older.program))
            return not_installed(older.program, "iptables");
        std::ranges::move(dropping_chains_of_iptables(TRY(output_of(older.program, {"-t", "filter"})), older.family),
                          std::back_inserter(found));
    }
    return found;
}

} // namespace podlane::ctl
