// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/nat_rules.hpp"

#include "tools/podlanectl/doctor/rule_text.hpp"
#include "tools/podlanectl/views/program_output.hpp"

#include <algorithm>
#include <string>

namespace podlane::ctl {
namespace {

using Words = std::vector<std::string_view>;

bool has(const Words &words, std::string_view word) { return std::ranges::find(words, word) != words.end(); }

std::string_view after(const Words &words, std::string_view word) {
    const auto at = std::ranges::find(words, word);
    return at == words.end() || at + 1 == words.end() ? std::string_view() : *(at + 1);
}

void add_address(std::string_view text, std::vector<ip_addr> &addresses) {
    if (const auto prefix = parse_prefix(text); prefix && is_host_prefix(*prefix))
        addresses.push_back(prefix->addr);
}

// Of a map: "10.96.0.1 . tcp . 443 : goto …".
void add_keys(const Words &words, std::vector<ip_addr> &addresses) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i)
        if (words[i + 1] == ".")
            add_address(words[i], addresses);
}

bool is_masquerade(const Words &words) {
    return has(words, "masquerade") || has(words, "MASQUERADE") || has(words, "\"MASQUERADE\"") || has(words, "snat") ||
           has(words, "SNAT");
}

// A rule without a source is for every sender, and so is one whose source is no prefix: a set, or all but a prefix.
bool covers(const Words &words, const Prefix &range) {
    std::string_view source = after(words, "-s");
    if (source.empty())
        source = after(words, "saddr");
    if (source.empty())
        return true;
    const auto prefix = parse_prefix(source);
    return !prefix || contains(*prefix, range);
}

Result<std::vector<ip_addr>> from_nft(const std::vector<std::string> &arguments) {
    const auto text = output_of("nft", arguments);
    if (text)
        return cluster_ips_of(*text);
    return text.error().code == ErrorCode::missing ? std::vector<ip_addr>{}
                                                   : Result<std::vector<ip_addr>>(text.error());
}

} // namespace

std::vector<ip_addr> cluster_ips_of(std::string_view listing) {
    std::vector<ip_addr> addresses;
    bool in_chain = false, in_map = false;
    each_line(listing, [&](std::string_view line) {
        const Words words = words_of(line);
        if (words.size() >= 2 && (words[0] == "chain" || words[0] == "map")) {
            in_chain = words[0] == "chain" && words[1] == "KUBE-SERVICES";
            in_map = words[0] == "map" && words[1] == "service-ips";
        } else if (words.size() >= 2 && words[0] == "-A" && words[1] == "KUBE-SERVICES")
            add_address(after(words, "-d"), addresses);
        else if (in_chain)
            add_address(after(words, "daddr"), addresses);
        else if (in_map)
            add_keys(words, addresses);
    });
    return addresses;
}

Result<std::vector<ip_addr>> cluster_ips() {
    std::vector<ip_addr> all;
    for (const char *family : {"ip", "ip6"}) {
        std::ranges::copy(TRY(from_nft({"list", "map", family, "kube-proxy", "service-ips"})), std::back_inserter(all));
        std::ranges::copy(TRY(from_nft({"list", "chain", family, "nat", "KUBE-SERVICES"})), std::back_inserter(all));
    }
    for (const IptablesListing &one : TRY(iptables_listings("nat")))
        std::ranges::copy(cluster_ips_of(one.text), std::back_inserter(all));
    return all;
}

bool masquerades_in(std::string_view listing, const Prefix &range) {
    bool found = false, passed_table = false, passed = false;
    each_line(listing, [&](std::string_view line) {
        const Words words = words_of(line);
        if (words.size() >= 3 && words[0] == "table")
            passed = passed_table = words[2] == "kube-proxy" || words[2].starts_with("podlane-");
        else if (words.size() >= 2 && (words[0] == "chain" || words[0] == "-A"))
            passed = passed_table || words[1] == "KUBE-POSTROUTING" || words[1].starts_with("PODLANE-");
        found = found || (!passed && is_masquerade(words) && !has(words, "mark") && covers(words, range));
    });
    return found;
}

Result<bool> is_masqueraded_by_others(const Prefix &range) {
    const auto listing = output_of("nft", {"list", "ruleset"});
    if (!listing && listing.error().code != ErrorCode::missing)
        return listing.error();
    if (listing && masquerades_in(*listing, range))
        return true;
    const auto others = TRY(iptables_listings("nat"));
    return std::ranges::any_of(others, [&](const IptablesListing &one) { return masquerades_in(one.text, range); });
}

} // namespace podlane::ctl
