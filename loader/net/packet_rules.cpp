// SPDX-License-Identifier: MIT
#include "loader/net/packet_rules.hpp"

#include "loader/net/packet_rule.hpp"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace podlane::net {
namespace {

struct Chain {
    ChainId id;
    bool is_forwarded = false; // a base chain that forwarded packets traverse
};

constexpr std::uint32_t kInetIngress = 5; // NF_INET_INGRESS, Linux 5.10

std::optional<Chain> parse_chain(nlmsghdr *answer) {
    const Attributes<NFTA_CHAIN_MAX> chain(answer, sizeof(nfgenmsg));
    auto id = id_of(answer, chain.text(NFTA_CHAIN_TABLE), chain.text(NFTA_CHAIN_NAME));
    if (!id)
        return std::nullopt;
    const auto hook = Attributes<NFTA_HOOK_MAX>(chain.at(NFTA_CHAIN_HOOK)).get<std::uint32_t>(NFTA_HOOK_HOOKNUM);
    if (!hook || chain.text(NFTA_CHAIN_TYPE) == "nat")
        return Chain{*std::move(id)};
    const std::uint32_t number = ntohl(*hook);
    const bool is_forwarded = std::get<0>(*id) == NFPROTO_NETDEV || number == NF_INET_PRE_ROUTING ||
                              number == NF_INET_FORWARD || number == NF_INET_POST_ROUTING || number == kInetIngress;
    return Chain{*std::move(id), is_forwarded};
}

Message dump_of(int message, std::uint8_t family) {
    nfgenmsg header{};
    header.nfgen_family = family;
    header.version = NFNETLINK_V0;
    return {(NFNL_SUBSYS_NFTABLES << 8) | message, kDump, header};
}

Message rules_of(const ChainId &chain) {
    const auto &[family, table, name] = chain;
    Message message = dump_of(NFT_MSG_GETRULE, family);
    message.put(NFTA_RULE_TABLE, table).put(NFTA_RULE_CHAIN, name);
    return message;
}

std::optional<std::vector<std::string>> parse_elements(nlmsghdr *answer) {
    const Attributes<NFTA_SET_ELEM_LIST_MAX> list(answer, sizeof(nfgenmsg));
    std::vector<std::string> leads_to;
    nlattr *elements = list.at(NFTA_SET_ELEM_LIST_ELEMENTS);
    if (!elements)
        return std::nullopt;
    int rest = 0;
    nlattr *one = nullptr;
    nla_for_each_nested(one, elements, rest)
        take_verdict(Attributes<NFTA_SET_ELEM_MAX>(one).at(NFTA_SET_ELEM_DATA), leads_to);
    return leads_to;
}

// The chains that the elements of a verdict map lead to.
Result<std::vector<std::string>> chains_of_map(Netlink &netfilter, const ChainId &chain, const std::string &map) {
    const auto query = [&] {
        Message message = dump_of(NFT_MSG_GETSETELEM, std::get<0>(chain));
        message.put(NFTA_SET_ELEM_LIST_TABLE, std::get<1>(chain)).put(NFTA_SET_ELEM_LIST_SET, map);
        return message;
    };
    std::vector<std::string> all;
    for (auto &part : TRY(dump<std::vector<std::string>>(netfilter, query, parse_elements, "listing the map " + map)))
        std::move(part.begin(), part.end(), std::back_inserter(all));
    return all;
}

// A set by family, table and name, with what each of its elements does by packet.
using ActiveSets = std::map<ChainId, std::set<std::string>>;

std::optional<ActiveSets::value_type> parse_set(nlmsghdr *answer) {
    const Attributes<NFTA_SET_MAX> set(answer, sizeof(nfgenmsg));
    std::set<std::string> effects;
    const auto add = [&](nlattr *expression) {
        if (expression)
            effects.insert(effect_by_packet(Attributes<NFTA_EXPR_MAX>(expression).text(NFTA_EXPR_NAME)));
    };
    add(set.at(NFTA_SET_EXPR));
    int rest = 0;
    nlattr *one = nullptr;
    if (nlattr *several = set.at(NFTA_SET_EXPRESSIONS))
        nla_for_each_nested(one, several, rest) add(one);
    effects.erase("");
    if (effects.empty())
        return std::nullopt;
    const auto *header = static_cast<nfgenmsg *>(nlmsg_data(answer));
    return ActiveSets::value_type(ChainId{header->nfgen_family, set.text(NFTA_SET_TABLE), set.text(NFTA_SET_NAME)},
                                  std::move(effects));
}

// Without those of what a rule for the slow path leads to. Chain by chain: kube-proxy may have tens of thousands.
Result<void> collect(Netlink &netfilter, const ChainId &chain, const ActiveSets &sets, std::set<ChainId> &seen,
                     std::set<std::string> &what) {
    const auto &[family, table, name] = chain;
    if (name.starts_with(kKubeProxy) || !seen.insert(chain).second)
        return {};
    for (Rule &rule : TRY(dump<Rule>(
             netfilter, [&] { return rules_of(chain); }, parse_rule, "listing the rules of chain " + name))) {
        if (rule.slow_path_only || rule.chain != chain)
            continue;
        what.merge(rule.what);
        for (const std::string &set : rule.sets)
            if (const auto active = sets.find({family, table, set}); active != sets.end())
                what.insert(active->second.begin(), active->second.end());
        for (const std::string &map : rule.maps)
            for (std::string &next : TRY(chains_of_map(netfilter, chain, map)))
                rule.leads_to.push_back(std::move(next));
        for (std::string &next : rule.leads_to)
            TRY(collect(netfilter, {family, table, std::move(next)}, sets, seen, what));
    }
    return {};
}

std::string family_word(std::uint8_t family) {
    switch (family) {
    case NFPROTO_IPV4:
        return "ip";
    case NFPROTO_IPV6:
        return "ip6";
    case NFPROTO_NETDEV:
        return "netdev";
    default:
        return "inet";
    }
}

} // namespace

std::string words_of(const PacketRules &rules) {
    std::string text = "chain " + rules.table + " " + rules.chain + " (" + rules.family + "): ";
    for (const std::string &one : rules.what)
        text += (one == rules.what.front() ? "" : ", ") + one;
    return text;
}

Result<std::vector<PacketRules>> packet_rules(Netlink &netfilter) {
    const auto chains = TRY(dump<Chain>(
        netfilter, [] { return dump_of(NFT_MSG_GETCHAIN, NFPROTO_UNSPEC); }, parse_chain,
        "listing the chains of nf_tables"));
    const auto listed = TRY(dump<ActiveSets::value_type>(
        netfilter, [] { return dump_of(NFT_MSG_GETSET, NFPROTO_UNSPEC); }, parse_set, "listing the sets of nf_tables"));
    const ActiveSets sets(listed.begin(), listed.end());
    std::vector<PacketRules> all;
    for (const Chain &chain : chains) {
        std::set<ChainId> seen;
        std::set<std::string> what;
        if (chain.is_forwarded)
            TRY(collect(netfilter, chain.id, sets, seen, what));
        const auto &[family, table, name] = chain.id;
        if (!what.empty())
            all.push_back({family_word(family), table, name, {what.begin(), what.end()}});
    }
    return all;
}

} // namespace podlane::net
