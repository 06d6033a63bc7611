// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/forward_rules.hpp"

#include "tools/podlanectl/doctor/rule_text.hpp"
#include "tools/podlanectl/views/program_output.hpp"

#include <algorithm>
#include <array>
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

bool drops(const Chains &chains, std::string_view name, std::set<std::string, std::less<>> &seen) {
    const auto chain = chains.find(name);
    if (chain == chains.end() || !seen.emplace(name).second)
        return false;
    return chain->second.drops || std::ranges::any_of(chain->second.leads_to, [&](const std::string &next) {
               return !is_chain_of_kube_proxy(next) && drops(chains, next, seen);
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

} // namespace

bool is_chain_of_kube_proxy(std::string_view name) { return std::ranges::find(kKubeProxy, name) != kKubeProxy.end(); }

std::vector<std::string> dropping_chains_of_nft(std::string_view listing) {
    std::vector<std::string> found;
    Chains chains;
    const auto read = [&](const NftPlace &at, std::string_view /*line*/, const auto &words) {
        if (!at.chain.empty())
            read_nft_rule(words, chains[std::string(at.chain)]);
    };
    each_nft_line(listing, read, [&](const NftPlace &at) {
        const bool meets_ip = at.family == "ip" || at.family == "ip6" || at.family == "inet";
        if (meets_ip && !at.table.starts_with("podlane-"))
            add_dropping(chains, std::string(at.table), std::string(at.family), found);
        chains.clear();
    });
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

Result<void> find_chains(const OfNft &of_nft, const OfIptables &of_iptables, std::vector<std::string> &found) {
    const auto listing = output_of("nft", {"list", "ruleset"});
    if (listing)
        found = of_nft(*listing);
    else if (listing.error().code != ErrorCode::missing)
        return listing.error();
    for (const IptablesListing &one : TRY(iptables_listings("filter")))
        std::ranges::move(of_iptables(one.text, one.family), std::back_inserter(found));
    return listing ? Result<void>{} : listing.error();
}

} // namespace podlane::ctl
