// SPDX-License-Identifier: MIT
#include "loader/net/packet_rules.hpp"

#include "loader/net/message.hpp"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/xt_conntrack.h>

#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace podlane::net {
namespace {

using ChainId = std::tuple<std::uint8_t, std::string, std::string>; // family, table, chain

struct Chain {
    ChainId id;
    bool is_forwarded = false; // a base chain that forwarded packets traverse
};

struct Rule {
    ChainId chain;
    std::set<std::string> what{};
    std::vector<std::string> leads_to{};
    std::vector<std::string> maps{}; // verdict maps, whose elements lead to chains as well
    bool first_packets_only = false;
};

// The effect of an nf_tables expression, or of an iptables match or target, by packet.
const std::map<std::string, std::string, std::less<>> kByPacket = {{"limit", "limit"},
                                                                   {"hashlimit", "limit"},
                                                                   {"quota", "quota"},
                                                                   {"counter", "counter"},
                                                                   {"log", "log"},
                                                                   {"LOG", "log"},
                                                                   {"NFLOG", "log"},
                                                                   {"queue", "queue"},
                                                                   {"NFQUEUE", "queue"},
                                                                   {"numgen", "random"},
                                                                   {"statistic", "random"},
                                                                   {"dup", "copy"},
                                                                   {"TEE", "copy"},
                                                                   {"fwd", "redirect"},
                                                                   {"objref", "named object"},
                                                                   {"TTL", "TTL"},
                                                                   {"HL", "TTL"},
                                                                   {"DSCP", "DSCP"},
                                                                   {"TOS", "DSCP"},
                                                                   {"MARK", "mark"},
                                                                   {"CLASSIFY", "priority"},
                                                                   {"recent", "recent"},
                                                                   {"bpf", "bpf"},
                                                                   {"string", "string"},
                                                                   {"u32", "string"},
                                                                   {"last", "counter"},
                                                                   {"connbytes", "connection's counter"},
                                                                   {"length", "length"},
                                                                   {"time", "time"},
                                                                   {"rateest", "limit"},
                                                                   {"SET", "dynamic set"},
                                                                   {"dynset", "dynamic set"}};
// Expressions that read a packet, or write to it if they have this attribute.
const std::map<std::string, std::pair<int, std::string>, std::less<>> kWriters = {
    {"payload", {NFTA_PAYLOAD_SREG, "changed header"}}, {"meta", {NFTA_META_SREG, "mark"}}};

constexpr std::string_view kKubeProxy = "KUBE-";
constexpr std::uint32_t kInetIngress = 5; // NF_INET_INGRESS, Linux 5.10

constexpr std::uint32_t kFirstPackets =
    NF_CT_STATE_INVALID_BIT | NF_CT_STATE_BIT(IP_CT_NEW) | NF_CT_STATE_UNTRACKED_BIT;

bool is_iptables(const ChainId &chain) {
    const auto &[family, table, name] = chain;
    const bool is_table = table == "filter" || table == "mangle" || table == "raw" || table == "security";
    return is_table && family != NFPROTO_INET;
}

std::optional<ChainId> id_of(nlmsghdr *answer, const std::string &table, const std::string &chain) {
    const auto *header = static_cast<nfgenmsg *>(nlmsg_data(answer));
    const bool meets_ip = header->nfgen_family == NFPROTO_IPV4 || header->nfgen_family == NFPROTO_IPV6 ||
                          header->nfgen_family == NFPROTO_INET || header->nfgen_family == NFPROTO_NETDEV;
    if (!meets_ip || table == "kube-proxy" || table.starts_with("podlane-") || chain.starts_with(kKubeProxy))
        return std::nullopt;
    return ChainId{header->nfgen_family, table, chain};
}

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

// `ct state` loads the state; the mask after it says which states the rule is for.
bool is_mask_of_first_packets(nlattr *mask) {
    const auto value = Attributes<NFTA_DATA_MAX>(mask).get<std::uint32_t>(NFTA_DATA_VALUE);
    return value && *value != 0 && (*value & ~kFirstPackets) == 0;
}

bool is_match_of_first_packets(nlattr *info) {
    constexpr auto kSize = static_cast<int>(sizeof(xt_conntrack_mtinfo3));
    if (!info || nla_len(info) < kSize)
        return false;
    xt_conntrack_mtinfo3 match; // NOLINT(cppcoreguidelines-pro-type-member-init)
    std::memcpy(&match, nla_data(info), sizeof match);
    return (match.match_flags & XT_CONNTRACK_STATE) != 0 && (match.invert_flags & XT_CONNTRACK_STATE) == 0 &&
           match.state_mask != 0 && (match.state_mask & ~kFirstPackets) == 0;
}

void take_verdict(nlattr *data, std::vector<std::string> &leads_to) {
    const Attributes<NFTA_DATA_MAX> value(data);
    const Attributes<NFTA_VERDICT_MAX> verdict(value.at(NFTA_DATA_VERDICT));
    if (std::string target = verdict.text(NFTA_VERDICT_CHAIN); !target.empty())
        leads_to.push_back(std::move(target));
}

void take_lookup(nlattr *data, Rule &rule) {
    const Attributes<NFTA_LOOKUP_MAX> lookup(data);
    if (lookup.get<std::uint32_t>(NFTA_LOOKUP_DREG) == htonl(NFT_REG_VERDICT))
        rule.maps.push_back(lookup.text(NFTA_LOOKUP_SET));
}

void take_kind(const std::string &name, Rule &rule) {
    if (const auto kind = kByPacket.find(name); kind != kByPacket.end())
        if (kind->second != "counter" || !is_iptables(rule.chain))
            rule.what.insert(kind->second);
}

void take_dynamic_set(nlattr *data, Rule &rule) {
    const Attributes<NFTA_DYNSET_MAX> set(data);
    const Attributes<NFTA_EXPR_MAX> expression(set.at(NFTA_DYNSET_EXPR));
    take_kind(set.at(NFTA_DYNSET_EXPR) ? expression.text(NFTA_EXPR_NAME) : "dynset", rule);
}

bool reads_counters(std::optional<std::uint32_t> key) {
    return key == htonl(NFT_CT_BYTES) || key == htonl(NFT_CT_PKTS) || key == htonl(NFT_CT_AVGPKT);
}

void take_expression(const std::string &name, nlattr *data, bool &has_state, Rule &rule) {
    if (name == "immediate")
        return take_verdict(Attributes<NFTA_IMMEDIATE_MAX>(data).at(NFTA_IMMEDIATE_DATA), rule.leads_to);
    if (name == "lookup")
        return take_lookup(data, rule);
    if (name == "dynset")
        return take_dynamic_set(data, rule);
    if (name == "ct") {
        const auto key = Attributes<NFTA_CT_MAX>(data).get<std::uint32_t>(NFTA_CT_KEY);
        has_state = key == htonl(NFT_CT_STATE);
        if (reads_counters(key))
            take_kind("connbytes", rule);
    } else if (name == "bitwise" && std::exchange(has_state, false))
        rule.first_packets_only |= is_mask_of_first_packets(Attributes<NFTA_BITWISE_MAX>(data).at(NFTA_BITWISE_MASK));
    else if (name == "match") {
        const Attributes<NFTA_MATCH_MAX> match(data);
        if (match.text(NFTA_MATCH_NAME) == "conntrack")
            rule.first_packets_only |= is_match_of_first_packets(match.at(NFTA_MATCH_INFO));
        take_kind(match.text(NFTA_MATCH_NAME), rule);
    } else if (name == "target")
        take_kind(Attributes<NFTA_TARGET_MAX>(data).text(NFTA_TARGET_NAME), rule);
    else if (const auto writer = kWriters.find(name); writer == kWriters.end())
        take_kind(name, rule);
    else if (Attributes<NFTA_PAYLOAD_MAX>(data).at(writer->second.first))
        rule.what.insert(writer->second.second);
}

std::optional<Rule> parse_rule(nlmsghdr *answer) {
    const Attributes<NFTA_RULE_MAX> attributes(answer, sizeof(nfgenmsg));
    auto id = id_of(answer, attributes.text(NFTA_RULE_TABLE), attributes.text(NFTA_RULE_CHAIN));
    nlattr *expressions = attributes.at(NFTA_RULE_EXPRESSIONS);
    if (!id || !expressions)
        return std::nullopt;
    Rule rule{*std::move(id)};
    bool has_state = false;
    int rest = 0;
    nlattr *element = nullptr;
    nla_for_each_nested(element, expressions, rest) {
        const Attributes<NFTA_EXPR_MAX> expression(element);
        if (nlattr *data = expression.at(NFTA_EXPR_DATA))
            take_expression(expression.text(NFTA_EXPR_NAME), data, has_state, rule);
    }
    return rule;
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

// Without those of what a rule for first packets leads to. Chain by chain: kube-proxy may have tens of thousands.
Result<void> collect(Netlink &netfilter, const ChainId &chain, std::set<ChainId> &seen, std::set<std::string> &what) {
    const auto &[family, table, name] = chain;
    if (name.starts_with(kKubeProxy) || !seen.insert(chain).second)
        return {};
    for (Rule &rule : TRY(dump<Rule>(
             netfilter, [&] { return rules_of(chain); }, parse_rule, "listing the rules of chain " + name))) {
        if (rule.first_packets_only || rule.chain != chain)
            continue;
        what.merge(rule.what);
        for (const std::string &map : rule.maps)
            for (std::string &next : TRY(chains_of_map(netfilter, chain, map)))
                rule.leads_to.push_back(std::move(next));
        for (std::string &next : rule.leads_to)
            TRY(collect(netfilter, {family, table, std::move(next)}, seen, what));
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
    std::vector<PacketRules> all;
    for (const Chain &chain : chains) {
        std::set<ChainId> seen;
        std::set<std::string> what;
        if (chain.is_forwarded)
            TRY(collect(netfilter, chain.id, seen, what));
        const auto &[family, table, name] = chain.id;
        if (!what.empty())
            all.push_back({family_word(family), table, name, {what.begin(), what.end()}});
    }
    return all;
}

} // namespace podlane::net
