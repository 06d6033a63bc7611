// SPDX-License-Identifier: MIT
#include "loader/net/packet_rule.hpp"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_tables_compat.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/xt_conntrack.h>
#include <linux/netfilter/xt_tcpudp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <iterator>
#include <map>
#include <utility>

namespace podlane::net {
namespace {

// The effect of an nf_tables expression, or of an iptables match or target, by packet.
const std::map<std::string, std::string, std::less<>> kByPacket = {
    {"limit", "limit"},       {"hashlimit", "limit"}, {"objref", "named object"},
    {"quota", "quota"},       {"counter", "counter"}, {"connbytes", "connection's counter"},
    {"log", "log"},           {"LOG", "log"},         {"SET", "dynamic set"},
    {"NFLOG", "log"},         {"queue", "queue"},     {"dynset", "dynamic set"},
    {"NFQUEUE", "queue"},     {"numgen", "random"},   {"TCPOPTSTRIP", "changed header"},
    {"statistic", "random"},  {"dup", "copy"},        {"TEE", "copy"},
    {"fwd", "redirect"},      {"TTL", "TTL"},         {"HL", "TTL"},
    {"DSCP", "DSCP"},         {"TOS", "DSCP"},        {"MARK", "mark"},
    {"CLASSIFY", "priority"}, {"recent", "recent"},   {"bpf", "bpf"},
    {"string", "string"},     {"u32", "string"},      {"last", "counter"},
    {"length", "length"},     {"time", "time"},       {"cpu", "cpu"},
    {"ttl", "TTL"},           {"hl", "TTL"},          {"dscp", "DSCP"},
    {"tos", "DSCP"},          {"ecn", "DSCP"},        {"AUDIT", "log"},
    {"IDLETIMER", "timer"},   {"rateest", "limit"},   {"RATEEST", "limit"}};
// The same for keys of the expressions `meta` and `ct` that a rule compares.
const std::map<std::uint32_t, std::string> kMetaByPacket = {{NFT_META_LEN, "length"},     {NFT_META_CPU, "cpu"},
                                                            {NFT_META_PRANDOM, "random"}, {NFT_META_TIME_NS, "time"},
                                                            {NFT_META_TIME_DAY, "time"},  {NFT_META_TIME_HOUR, "time"}};
const std::map<std::uint32_t, std::string> kCtByPacket = {{NFT_CT_BYTES, "connection's counter"},
                                                          {NFT_CT_PKTS, "connection's counter"},
                                                          {NFT_CT_AVGPKT, "connection's counter"},
                                                          {NFT_CT_EXPIRATION, "expiration"}};

enum class Kind { other, state, family, protocol, flags };

// Bytes of a header. Without a word they are the same in all packets of a connection on the fast path.
struct Field {
    std::uint32_t base;
    std::uint8_t header; // the address family or protocol; 0: any
    std::uint32_t begin;
    std::uint32_t end;
    const char *word;
    Kind kind = Kind::other;
};
constexpr Field kFields[] = {{NFT_PAYLOAD_LL_HEADER, 0, 12, 14, "", Kind::family},
                             {NFT_PAYLOAD_LL_HEADER, 0, 0, ~0U, ""},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV4, 0, 1, ""},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV4, 1, 2, "DSCP"},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV4, 2, 4, "length"},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV4, 6, 8, ""}, // fragments take the slow path
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV4, 8, 9, "TTL"},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV4, 9, 10, "", Kind::protocol},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV4, 12, 20, ""},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV6, 0, 1, ""},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV6, 0, 2, "DSCP"},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV6, 4, 6, "length"},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV6, 6, 7, "", Kind::protocol},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV6, 7, 8, "TTL"},
                             {NFT_PAYLOAD_NETWORK_HEADER, NFPROTO_IPV6, 8, 40, ""},
                             {NFT_PAYLOAD_TRANSPORT_HEADER, 0, 0, 4, ""}, // ports
                             {NFT_PAYLOAD_TRANSPORT_HEADER, IPPROTO_UDP, 4, 6, "length"},
                             {NFT_PAYLOAD_TRANSPORT_HEADER, IPPROTO_TCP, 13, 14, "TCP flags", Kind::flags}};

// The value that a rule has loaded last, and what its rule is known to be for.
struct Reader {
    Kind kind = Kind::other;
    std::uint32_t mask = ~0U;
    std::set<std::string> by_packet{}; // read, and not compared yet
    std::uint8_t family = 0;
    std::uint8_t protocol = 0;

    void load(Kind loaded) {
        kind = loaded;
        mask = ~0U;
    }
};

constexpr std::uint32_t kFirstPackets =
    NF_CT_STATE_INVALID_BIT | NF_CT_STATE_BIT(IP_CT_NEW) | NF_CT_STATE_UNTRACKED_BIT;
constexpr std::uint32_t kOpensOrCloses = TH_SYN | TH_FIN | TH_RST;
constexpr const char *kTcpOption = "TCP option";

bool is_iptables(const ChainId &chain) {
    const auto &[family, table, name] = chain;
    const bool is_table = table == "filter" || table == "mangle" || table == "raw" || table == "security";
    return is_table && family != NFPROTO_INET;
}

// Whether each value that passes the comparison has one of these bits. A state is one bit.
bool needs_one_of(std::uint32_t bits, std::uint32_t mask, std::uint32_t operation, std::uint32_t value) {
    if (operation == NFT_CMP_EQ)
        return (value & mask & bits) != 0;
    return operation == NFT_CMP_NEQ && value == 0 && mask != 0 && (mask & ~bits) == 0;
}

std::optional<std::uint32_t> number_in(nlattr *data) {
    const Attributes<NFTA_DATA_MAX> value(data);
    if (const auto host_order = value.get<std::uint32_t>(NFTA_DATA_VALUE))
        return host_order;
    if (const auto word = value.get<std::uint16_t>(NFTA_DATA_VALUE))
        return ntohs(*word);
    return value.get<std::uint8_t>(NFTA_DATA_VALUE);
}

template <typename Info> std::optional<Info> info_of(nlattr *attribute) {
    if (!attribute || nla_len(attribute) < static_cast<int>(sizeof(Info)))
        return std::nullopt;
    Info info{};
    std::memcpy(&info, nla_data(attribute), sizeof info);
    return info;
}

void take_conntrack(const xt_conntrack_mtinfo3 &match, Rule &rule) {
    rule.slow_path_only |= (match.match_flags & XT_CONNTRACK_STATE) != 0 &&
                           (match.invert_flags & XT_CONNTRACK_STATE) == 0 &&
                           needs_one_of(kFirstPackets, match.state_mask, NFT_CMP_NEQ, 0);
    if ((match.match_flags & XT_CONNTRACK_EXPIRES) != 0)
        rule.what.insert("expiration");
}

// iptables writes flags like this in older versions, or beside a TCP option.
void take_tcp(const xt_tcp &match, Rule &rule) {
    const auto operation = (match.invflags & XT_TCP_INV_FLAGS) != 0 ? NFT_CMP_NEQ : NFT_CMP_EQ;
    rule.slow_path_only |= needs_one_of(kOpensOrCloses, match.flg_mask, operation, match.flg_cmp);
    if (match.flg_mask != 0)
        rule.what.insert("TCP flags");
    if (match.option != 0)
        rule.what.insert(kTcpOption);
}

void take_lookup(nlattr *data, Rule &rule) {
    const Attributes<NFTA_LOOKUP_MAX> lookup(data);
    if (lookup.get<std::uint32_t>(NFTA_LOOKUP_DREG) == htonl(NFT_REG_VERDICT))
        rule.maps.push_back(lookup.text(NFTA_LOOKUP_SET));
    rule.sets.push_back(lookup.text(NFTA_LOOKUP_SET));
}

void take_kind(const std::string &name, Rule &rule) {
    if (auto effect = effect_by_packet(name); !effect.empty() && (effect != "counter" || !is_iptables(rule.chain)))
        rule.what.insert(std::move(effect));
}

void take_dynamic_set(nlattr *data, Rule &rule) {
    const Attributes<NFTA_DYNSET_MAX> set(data);
    const Attributes<NFTA_EXPR_MAX> expression(set.at(NFTA_DYNSET_EXPR));
    take_kind(set.at(NFTA_DYNSET_EXPR) ? expression.text(NFTA_EXPR_NAME) : "dynset", rule);
}

// nft(8) compares family and protocol before it loads from a header of theirs.
void take_payload(nlattr *data, Reader &reader, Rule &rule) {
    const Attributes<NFTA_PAYLOAD_MAX> payload(data);
    const auto number = [&](int attribute) { return ntohl(payload.get<std::uint32_t>(attribute).value_or(0)); };
    if (payload.at(NFTA_PAYLOAD_SREG)) {
        rule.what.insert("changed header");
        return reader.by_packet.clear(); // the rest of a word that is changed in part
    }
    constexpr std::uint32_t kHeader = 20;
    const std::uint32_t base = number(NFTA_PAYLOAD_BASE);
    const std::uint32_t begin = number(NFTA_PAYLOAD_OFFSET);
    const std::uint32_t end = begin + number(NFTA_PAYLOAD_LEN);
    const std::uint8_t header = base == NFT_PAYLOAD_NETWORK_HEADER ? reader.family : reader.protocol;
    const auto *const field = std::find_if(std::begin(kFields), std::end(kFields), [&](const Field &one) {
        return one.base == base && (one.header == 0 || header == 0 || one.header == header) && one.begin <= begin &&
               end <= one.end;
    });
    reader.load(field == std::end(kFields) ? Kind::other : field->kind);
    const std::string word = field != std::end(kFields) ? field->word : end <= kHeader ? "header" : "payload";
    if (!word.empty())
        reader.by_packet.insert(word);
}

// Only packets that open a connection have the option of the maximum segment size.
void take_option(nlattr *data, Reader &reader, Rule &rule) {
    const Attributes<NFTA_EXTHDR_MAX> option(data);
    reader.load(Kind::other);
    if (ntohl(option.get<std::uint32_t>(NFTA_EXTHDR_OP).value_or(0)) != NFT_EXTHDR_OP_TCPOPT ||
        option.get<std::uint8_t>(NFTA_EXTHDR_TYPE) == TCPOPT_MAXSEG)
        return;
    if (option.at(NFTA_EXTHDR_DREG))
        reader.by_packet.insert(kTcpOption);
    else
        rule.what.insert("changed header");
}

void take_meta(nlattr *data, Reader &reader, Rule &rule) {
    const Attributes<NFTA_META_MAX> meta(data);
    const std::uint32_t key = ntohl(meta.get<std::uint32_t>(NFTA_META_KEY).value_or(0));
    if (meta.at(NFTA_META_SREG)) {
        if (key != NFT_META_NFTRACE)
            rule.what.insert(key == NFT_META_PRIORITY ? "priority" : "mark");
        return reader.by_packet.clear();
    }
    reader.load(key == NFT_META_L4PROTO                               ? Kind::protocol
                : key == NFT_META_NFPROTO || key == NFT_META_PROTOCOL ? Kind::family
                                                                      : Kind::other);
    if (const auto found = kMetaByPacket.find(key); found != kMetaByPacket.end())
        reader.by_packet.insert(found->second);
}

void take_ct(nlattr *data, Reader &reader) {
    const Attributes<NFTA_CT_MAX> ct(data);
    if (ct.at(NFTA_CT_SREG))
        return reader.by_packet.clear();
    const std::uint32_t key = ntohl(ct.get<std::uint32_t>(NFTA_CT_KEY).value_or(0));
    reader.load(key == NFT_CT_STATE ? Kind::state : Kind::other);
    if (const auto found = kCtByPacket.find(key); found != kCtByPacket.end())
        reader.by_packet.insert(found->second);
}

void take_comparison(nlattr *data, Reader &reader, Rule &rule) {
    const Attributes<NFTA_CMP_MAX> comparison(data);
    const auto operation = ntohl(comparison.get<std::uint32_t>(NFTA_CMP_OP).value_or(0));
    const auto value = number_in(comparison.at(NFTA_CMP_DATA));
    if (!value)
        return;
    if (reader.kind == Kind::state)
        rule.slow_path_only |= needs_one_of(kFirstPackets, reader.mask, operation, *value);
    else if (reader.kind == Kind::flags)
        rule.slow_path_only |= needs_one_of(kOpensOrCloses, reader.mask, operation, *value);
    else if (reader.kind == Kind::family && operation == NFT_CMP_EQ) {
        const bool is_ipv4 = *value == NFPROTO_IPV4 || *value == ETH_P_IP;
        reader.family = is_ipv4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
        rule.slow_path_only |= !is_ipv4 && *value != NFPROTO_IPV6 && *value != ETH_P_IPV6;
    } else if (reader.kind == Kind::protocol && operation == NFT_CMP_EQ) {
        reader.protocol = static_cast<std::uint8_t>(*value);
        rule.slow_path_only |= *value != IPPROTO_TCP && *value != IPPROTO_UDP;
    }
}

void take_match(nlattr *data, Rule &rule) {
    const Attributes<NFTA_MATCH_MAX> match(data);
    const std::string name = match.text(NFTA_MATCH_NAME);
    take_kind(name, rule);
    if (const auto conntrack = info_of<xt_conntrack_mtinfo3>(match.at(NFTA_MATCH_INFO));
        conntrack && name == "conntrack")
        take_conntrack(*conntrack, rule);
    if (const auto tcp = info_of<xt_tcp>(match.at(NFTA_MATCH_INFO)); tcp && name == "tcp")
        take_tcp(*tcp, rule);
}

void take_expression(const std::string &name, nlattr *data, Reader &reader, Rule &rule) {
    if (name == "cmp" || name == "range" || name == "lookup")
        rule.what.merge(reader.by_packet);
    if (name == "immediate")
        return take_verdict(Attributes<NFTA_IMMEDIATE_MAX>(data).at(NFTA_IMMEDIATE_DATA), rule.leads_to);
    if (name == "lookup")
        return take_lookup(data, rule);
    if (name == "dynset")
        return take_dynamic_set(data, rule);
    if (name == "payload")
        return take_payload(data, reader, rule);
    if (name == "exthdr")
        return take_option(data, reader, rule);
    if (name == "meta")
        return take_meta(data, reader, rule);
    if (name == "ct")
        return take_ct(data, reader);
    if (name == "cmp")
        return take_comparison(data, reader, rule);
    if (name == "match")
        return take_match(data, rule);
    if (name == "bitwise")
        reader.mask = number_in(Attributes<NFTA_BITWISE_MAX>(data).at(NFTA_BITWISE_MASK)).value_or(~0U);
    else
        take_kind(name == "target" ? Attributes<NFTA_TARGET_MAX>(data).text(NFTA_TARGET_NAME) : name, rule);
}

} // namespace

std::string effect_by_packet(const std::string &expression) {
    const auto kind = kByPacket.find(expression);
    return kind == kByPacket.end() ? std::string() : kind->second;
}

std::optional<ChainId> id_of(nlmsghdr *answer, const std::string &table, const std::string &chain) {
    const auto *header = static_cast<nfgenmsg *>(nlmsg_data(answer));
    const bool meets_ip = header->nfgen_family == NFPROTO_IPV4 || header->nfgen_family == NFPROTO_IPV6 ||
                          header->nfgen_family == NFPROTO_INET || header->nfgen_family == NFPROTO_NETDEV;
    if (!meets_ip || table == "kube-proxy" || table.starts_with("podlane-") || chain.starts_with(kKubeProxy))
        return std::nullopt;
    return ChainId{header->nfgen_family, table, chain};
}

void take_verdict(nlattr *data, std::vector<std::string> &leads_to) {
    const Attributes<NFTA_DATA_MAX> value(data);
    const Attributes<NFTA_VERDICT_MAX> verdict(value.at(NFTA_DATA_VERDICT));
    if (std::string target = verdict.text(NFTA_VERDICT_CHAIN); !target.empty())
        leads_to.push_back(std::move(target));
}

std::optional<Rule> parse_rule(nlmsghdr *answer) {
    const Attributes<NFTA_RULE_MAX> attributes(answer, sizeof(nfgenmsg));
    auto id = id_of(answer, attributes.text(NFTA_RULE_TABLE), attributes.text(NFTA_RULE_CHAIN));
    nlattr *expressions = attributes.at(NFTA_RULE_EXPRESSIONS);
    if (!id || !expressions)
        return std::nullopt;
    Rule rule{*std::move(id)};
    Reader reader;
    if (const std::uint8_t family = std::get<0>(rule.chain); family == NFPROTO_IPV4 || family == NFPROTO_IPV6)
        reader.family = family;
    int rest = 0;
    nlattr *element = nullptr;
    nla_for_each_nested(element, expressions, rest) {
        const Attributes<NFTA_EXPR_MAX> expression(element);
        if (nlattr *data = expression.at(NFTA_EXPR_DATA))
            take_expression(expression.text(NFTA_EXPR_NAME), data, reader, rule);
    }
    return rule;
}

} // namespace podlane::net
