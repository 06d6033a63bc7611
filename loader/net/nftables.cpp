// SPDX-License-Identifier: MIT
#include "loader/net/nftables.hpp"

#include "loader/net/message.hpp"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <net/if.h>
#include <unistd.h>

#include <endian.h>

#include <numeric>

namespace podlane::net {
namespace {

nfgenmsg nft_header(std::uint8_t family, std::uint16_t resource = 0) {
    nfgenmsg header{};
    header.nfgen_family = family;
    header.version = NFNETLINK_V0;
    header.res_id = htons(resource);
    return header;
}

constexpr int message_type(int message) { return (NFNL_SUBSYS_NFTABLES << 8) | message; }

// `put` appends each element.
template <typename Put>
Message message_about(int type, int flags, const std::string &table, const std::string &set, Put put) {
    Message message(message_type(type), kChange | flags, nft_header(NFPROTO_INET));
    message.put(NFTA_SET_ELEM_LIST_TABLE, table).put(NFTA_SET_ELEM_LIST_SET, set);
    message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, [&] { put(message); });
    return message;
}

template <typename Key> void put_element(Message &message, const Key &key) {
    message.nest(NFTA_LIST_ELEM, [&] { message.nest(NFTA_SET_ELEM_KEY, [&] { message.put(NFTA_DATA_VALUE, key); }); });
}

// The addresses of one family as elements of its set.
Message elements_message(int type, int flags, const std::string &table, const std::string &set, bool ipv4,
                         std::span<const ip_addr> addresses) {
    return message_about(type, flags, table, set, [&](Message &message) {
        for (const ip_addr &addr : addresses)
            if (is_ipv4(addr) == ipv4)
                put_element(message, addr);
    });
}

Message interface_message(int type, int flags, const std::string &table, const std::string &set,
                          const std::string &ifname) {
    std::array<char, IFNAMSIZ> key{};
    std::ranges::copy(std::string_view(ifname).substr(0, key.size() - 1), key.begin());
    return message_about(type, flags, table, set, [&](Message &message) { put_element(message, key); });
}

void add_messages(int type, int flags, const AddressSets &sets, std::span<const ip_addr> addresses,
                  std::vector<Message> &batch) {
    for (const bool ipv4 : {true, false})
        if (std::ranges::any_of(addresses, [&](const ip_addr &addr) { return is_ipv4(addr) == ipv4; }))
            batch.push_back(elements_message(type, flags, sets.table, ipv4 ? sets.ipv4 : sets.ipv6, ipv4, addresses));
}

Message bracket(int type) { return {type, NLM_F_REQUEST, nft_header(AF_UNSPEC, NFNL_SUBSYS_NFTABLES)}; }

// The kernel commits all of the messages or none.
Result<bool> commit(Netlink &netfilter, std::vector<Message> changes, const std::string &doing) {
    std::vector<Message> batch;
    batch.push_back(bracket(NFNL_MSG_BATCH_BEGIN));
    for (Message &change : changes)
        batch.push_back(std::move(change));
    batch.push_back(bracket(NFNL_MSG_BATCH_END));
    for (const Outcome &outcome : request_all(netfilter, batch)) {
        if (outcome.is({ENOENT}))
            return false;
        if (!outcome.ok())
            return outcome.as_error(doing);
    }
    return true;
}

// The comment in a rule's user data, which nft(8) writes as type, length and text with its NUL.
std::string comment_in(const nlattr *user_data) {
    constexpr int kComment = 0; // NFTNL_UDATA_RULE_COMMENT
    const auto *at = user_data ? static_cast<const std::uint8_t *>(nla_data(user_data)) : nullptr;
    for (int rest = user_data ? nla_len(user_data) : 0; rest > 2 && at[1] + 2 <= rest;) {
        if (at[0] == kComment && at[1] > 0)
            return {reinterpret_cast<const char *>(at + 2), std::size_t{at[1]} - 1};
        rest -= at[1] + 2;
        at += at[1] + 2;
    }
    return {};
}

// Of the counters among a rule's expressions; nothing if it has none.
std::optional<std::uint64_t> packets_counted_by(nlattr *expressions) {
    std::optional<std::uint64_t> packets;
    if (!expressions)
        return packets;
    nlattr *element = nullptr;
    int rest = 0;
    nla_for_each_nested(element, expressions, rest) {
        const Attributes<NFTA_EXPR_MAX> expression(element);
        if (expression.text(NFTA_EXPR_NAME) != "counter")
            continue;
        const Attributes<NFTA_COUNTER_MAX> counter(expression.at(NFTA_EXPR_DATA));
        packets = packets.value_or(0) + be64toh(counter.get<std::uint64_t>(NFTA_COUNTER_PACKETS).value_or(0));
    }
    return packets;
}

// What `parse` finds in the rules of a chain, in their order; nothing if the chain is missing.
template <typename T, typename Parse>
Result<std::vector<T>> dump_rules(Netlink &netfilter, const std::string &table, const std::string &chain, Parse parse) {
    return dump<T>(
        netfilter,
        [&] {
            Message message(message_type(NFT_MSG_GETRULE), kDump, nft_header(NFPROTO_INET));
            message.put(NFTA_RULE_TABLE, table).put(NFTA_RULE_CHAIN, chain);
            return message;
        },
        [&](nlmsghdr *answer) -> std::optional<T> {
            const Attributes<NFTA_RULE_MAX> rule(answer, sizeof(nfgenmsg));
            if (rule.text(NFTA_RULE_TABLE) != table || rule.text(NFTA_RULE_CHAIN) != chain)
                return std::nullopt;
            return parse(rule);
        },
        "listing the rules of chain " + chain + " in table inet " + table);
}

// An expression of a rule: `data` appends its attributes.
template <typename Data> void put_expression(Message &message, const std::string &name, Data data) {
    message.nest(NFTA_LIST_ELEM, [&] {
        message.put(NFTA_EXPR_NAME, name);
        message.nest(NFTA_EXPR_DATA, data);
    });
}

void put_value(Message &message, int attribute, std::uint32_t value) {
    message.nest(attribute, [&] { message.put(NFTA_DATA_VALUE, value); });
}

// `ct state invalid`: the cheapest expression for which the kernel tracks connections.
Message tracking_rule(const std::string &table, const std::string &chain) {
    Message rule(message_type(NFT_MSG_NEWRULE), kChange | NLM_F_CREATE | NLM_F_APPEND, nft_header(NFPROTO_INET));
    rule.put(NFTA_RULE_TABLE, table).put(NFTA_RULE_CHAIN, chain);
    rule.nest(NFTA_RULE_EXPRESSIONS, [&] {
        put_expression(rule, "ct",
                       [&] { rule.put(NFTA_CT_DREG, htonl(NFT_REG_1)).put(NFTA_CT_KEY, htonl(NFT_CT_STATE)); });
        put_expression(rule, "bitwise", [&] {
            rule.put(NFTA_BITWISE_SREG, htonl(NFT_REG_1)).put(NFTA_BITWISE_DREG, htonl(NFT_REG_1));
            rule.put(NFTA_BITWISE_LEN, htonl(sizeof(std::uint32_t)));
            put_value(rule, NFTA_BITWISE_MASK, NF_CT_STATE_INVALID_BIT);
            put_value(rule, NFTA_BITWISE_XOR, 0);
        });
        put_expression(rule, "cmp", [&] {
            rule.put(NFTA_CMP_SREG, htonl(NFT_REG_1)).put(NFTA_CMP_OP, htonl(NFT_CMP_NEQ));
            put_value(rule, NFTA_CMP_DATA, 0);
        });
    });
    return rule;
}

Message table_message(int type, int flags, const std::string &table) {
    Message message(message_type(type), kChange | flags, nft_header(NFPROTO_INET));
    message.put(NFTA_TABLE_NAME, table);
    return message;
}

Message chain_message(int type, int flags, const std::string &table, const std::string &chain,
                      std::uint8_t family = NFPROTO_INET) {
    Message message(message_type(type), flags | NLM_F_REQUEST | NLM_F_ACK, nft_header(family));
    message.put(NFTA_CHAIN_TABLE, table).put(NFTA_CHAIN_NAME, chain);
    return message;
}

// Of all its rules.
Message emptying_message(const std::string &table, const std::string &chain) {
    Message message(message_type(NFT_MSG_DELRULE), kChange, nft_header(NFPROTO_INET));
    message.put(NFTA_RULE_TABLE, table).put(NFTA_RULE_CHAIN, chain);
    return message;
}

std::vector<Message> tracking_messages(const std::string &table, const std::string &chain) {
    std::vector<Message> changes;
    changes.push_back(table_message(NFT_MSG_NEWTABLE, NLM_F_CREATE, table));
    changes.push_back(chain_message(NFT_MSG_NEWCHAIN, NLM_F_CREATE, table, chain));
    changes.push_back(emptying_message(table, chain));
    changes.push_back(tracking_rule(table, chain));
    return changes;
}

// A commit that finds something missing although nothing is looked up: this kernel lacks nf_tables or an expression.
Result<void> commit_new(Netlink &netfilter, std::vector<Message> changes, const std::string &doing) {
    if (!TRY(commit(netfilter, std::move(changes), doing)))
        return Error{ErrorCode::plugin_not_available,
                     doing + ": this kernel has no nf_tables with connection tracking"};
    return {};
}

} // namespace

Result<bool> add_elements(Netlink &netfilter, const AddressSets &sets, std::span<const ip_addr> addresses) {
    std::vector<Message> changes;
    add_messages(NFT_MSG_NEWSETELEM, NLM_F_CREATE, sets, addresses, changes);
    return commit(netfilter, std::move(changes), "adding elements to the sets of table inet " + sets.table);
}

Result<bool> remove_elements(Netlink &netfilter, const AddressSets &sets, std::span<const ip_addr> addresses) {
    std::vector<Message> changes;
    // A missing element would stop the transaction; one that was just added is there.
    add_messages(NFT_MSG_NEWSETELEM, NLM_F_CREATE, sets, addresses, changes);
    add_messages(NFT_MSG_DELSETELEM, 0, sets, addresses, changes);
    return commit(netfilter, std::move(changes), "removing elements from the sets of table inet " + sets.table);
}

Result<bool> has_elements(Netlink &netfilter, const AddressSets &sets, std::span<const ip_addr> addresses) {
    for (const ip_addr &addr : addresses) {
        const bool ipv4 = is_ipv4(addr);
        const Outcome outcome = request(netfilter, elements_message(NFT_MSG_GETSETELEM, 0, sets.table,
                                                                    ipv4 ? sets.ipv4 : sets.ipv6, ipv4, {&addr, 1}));
        if (outcome.is({ENOENT}))
            return false;
        if (!outcome.ok())
            return outcome.as_error("looking for " + to_string(addr) + " in the sets of table inet " + sets.table);
    }
    return true;
}

Result<bool> add_interface(Netlink &netfilter, const std::string &table, std::span<const char *const> sets,
                           const std::string &ifname) {
    std::vector<Message> changes;
    for (const char *set : sets)
        changes.push_back(interface_message(NFT_MSG_NEWSETELEM, NLM_F_CREATE, table, set, ifname));
    return commit(netfilter, std::move(changes), "adding " + ifname + " to the sets of table inet " + table);
}

Result<bool> remove_interface(Netlink &netfilter, const std::string &table, std::span<const char *const> sets,
                              const std::string &ifname) {
    std::vector<Message> changes;
    for (const char *set : sets) {
        changes.push_back(interface_message(NFT_MSG_NEWSETELEM, NLM_F_CREATE, table, set, ifname));
        changes.push_back(interface_message(NFT_MSG_DELSETELEM, 0, table, set, ifname));
    }
    return commit(netfilter, std::move(changes), "removing " + ifname + " from the sets of table inet " + table);
}

Result<bool> has_interface(Netlink &netfilter, const std::string &table, std::span<const char *const> sets,
                           const std::string &ifname) {
    for (const char *set : sets) {
        const Outcome outcome = request(netfilter, interface_message(NFT_MSG_GETSETELEM, 0, table, set, ifname));
        if (outcome.is({ENOENT}))
            return false;
        if (!outcome.ok())
            return outcome.as_error("looking for " + ifname + " in the sets of table inet " + table);
    }
    return true;
}

Result<bool> remove_table(Netlink &netfilter, const std::string &table) {
    std::vector<Message> changes;
    changes.push_back(table_message(NFT_MSG_DELTABLE, 0, table));
    return commit(netfilter, std::move(changes), "removing table inet " + table);
}

Result<bool> remove_chain(Netlink &netfilter, const std::string &table, const std::string &chain,
                          std::span<const char *const> sets) {
    std::vector<Message> changes;
    changes.push_back(emptying_message(table, chain));
    changes.push_back(chain_message(NFT_MSG_DELCHAIN, 0, table, chain));
    for (const char *set : sets) {
        changes.emplace_back(message_type(NFT_MSG_DELSET), kChange, nft_header(NFPROTO_INET));
        changes.back().put(NFTA_SET_TABLE, table).put(NFTA_SET_NAME, std::string(set));
    }
    return commit(netfilter, std::move(changes), "removing chain " + chain + " of table inet " + table);
}

Result<void> add_tracking(Netlink &netfilter, const std::string &table, const std::string &chain) {
    return commit_new(netfilter, tracking_messages(table, chain), "adding chain " + chain + " to table inet " + table);
}

Result<void> load_tracking(Netlink &netfilter) {
    const std::string scratch = "podlane-loading-" + std::to_string(gettid());
    std::vector<Message> changes = tracking_messages(scratch, "conntrack");
    changes.push_back(table_message(NFT_MSG_DELTABLE, 0, scratch));
    return commit_new(netfilter, std::move(changes), "loading connection tracking");
}

// No netlink of netfilter, no subsystem for a message, none for a batch.
bool lacks_nf_tables(const Error &error) {
    return error.system_errno == EPROTONOSUPPORT || error.system_errno == EINVAL || error.system_errno == EOPNOTSUPP;
}

Result<bool> has_iptables_chain(Netlink &netfilter, bool ipv4, const std::string &chain) {
    const std::uint8_t family = ipv4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
    const Outcome outcome = request(netfilter, chain_message(NFT_MSG_GETCHAIN, 0, "nat", chain, family));
    if (outcome.is({ENOENT}))
        return false;
    if (!outcome.ok())
        return outcome.as_error("looking for chain " + chain + " in table " + (ipv4 ? "ip" : "ip6") + " nat");
    return true;
}

BaseChain postrouting_nat() {
    return {.type = "nat", .hook = NF_INET_POST_ROUTING, .priority = 100, .policy = NF_ACCEPT};
}

BaseChain forward_filter() { return {.type = "filter", .hook = NF_INET_FORWARD, .priority = 0, .policy = NF_ACCEPT}; }

Result<std::optional<BaseChain>> find_base_chain(Netlink &netfilter, const std::string &table,
                                                 const std::string &chain) {
    std::vector<Message> questions;
    questions.push_back(table_message(NFT_MSG_GETTABLE, 0, table));
    questions.push_back(chain_message(NFT_MSG_GETCHAIN, 0, table, chain));
    BaseChain found;
    const auto host_order = [](const std::optional<std::uint32_t> &number) { return ntohl(number.value_or(0)); };
    const auto outcomes = request_all(netfilter, questions, [&](nlmsghdr *answer) {
        if (answer->nlmsg_type == message_type(NFT_MSG_NEWTABLE)) {
            const Attributes<NFTA_TABLE_MAX> own(answer, sizeof(nfgenmsg));
            found.table_flags = host_order(own.get<std::uint32_t>(NFTA_TABLE_FLAGS));
            return;
        }
        const Attributes<NFTA_CHAIN_MAX> one(answer, sizeof(nfgenmsg));
        const Attributes<NFTA_HOOK_MAX> hook(one.at(NFTA_CHAIN_HOOK));
        found.type = one.text(NFTA_CHAIN_TYPE);
        found.policy = host_order(one.get<std::uint32_t>(NFTA_CHAIN_POLICY));
        found.hook = host_order(hook.get<std::uint32_t>(NFTA_HOOK_HOOKNUM));
        found.priority = static_cast<std::int32_t>(host_order(hook.get<std::uint32_t>(NFTA_HOOK_PRIORITY)));
    });
    for (const Outcome &outcome : outcomes) {
        if (outcome.is({ENOENT}))
            return std::optional<BaseChain>();
        if (!outcome.ok())
            return outcome.as_error("looking at chain " + chain + " in table inet " + table);
    }
    return std::optional(std::move(found));
}

Result<bool> clear_table_flags(Netlink &netfilter, const std::string &table) {
    std::vector<Message> changes;
    changes.push_back(table_message(NFT_MSG_NEWTABLE, 0, table));
    changes.back().put(NFTA_TABLE_FLAGS, std::uint32_t{0});
    return commit(netfilter, std::move(changes), "clearing the flags of table inet " + table);
}

Result<bool> has_rules(Netlink &netfilter, const std::string &table, const std::string &chain) {
    std::uint32_t rules = 0;
    const Outcome outcome = request(netfilter, chain_message(NFT_MSG_GETCHAIN, 0, table, chain), [&](nlmsghdr *answer) {
        rules =
            ntohl(Attributes<NFTA_CHAIN_MAX>(answer, sizeof(nfgenmsg)).get<std::uint32_t>(NFTA_CHAIN_USE).value_or(0));
    });
    if (outcome.is({ENOENT}))
        return false;
    if (!outcome.ok())
        return outcome.as_error("looking for chain " + chain + " in table inet " + table);
    return rules != 0;
}

Result<std::vector<std::string>> rule_comments(Netlink &netfilter, const std::string &table, const std::string &chain) {
    return dump_rules<std::string>(netfilter, table, chain, [](const Attributes<NFTA_RULE_MAX> &rule) {
        return comment_in(rule.at(NFTA_RULE_USERDATA));
    });
}

Result<std::set<std::string>> tables_with_mark(Netlink &netfilter, std::string_view mark) {
    const auto found = TRY(dump<std::string>(
        netfilter, [] { return Message(message_type(NFT_MSG_GETRULE), kDump, nft_header(NFPROTO_INET)); },
        [&](nlmsghdr *answer) -> std::optional<std::string> {
            const Attributes<NFTA_RULE_MAX> rule(answer, sizeof(nfgenmsg));
            return comment_in(rule.at(NFTA_RULE_USERDATA)).starts_with(mark)
                       ? std::optional(std::string(rule.text(NFTA_RULE_TABLE)))
                       : std::nullopt;
        },
        "listing the rules of tables inet"));
    return std::set(found.begin(), found.end());
}

Result<std::optional<std::uint64_t>> counted_packets(Netlink &netfilter, const std::string &table,
                                                     const std::string &chain) {
    const auto counts =
        TRY(dump_rules<std::uint64_t>(netfilter, table, chain, [](const Attributes<NFTA_RULE_MAX> &rule) {
            return packets_counted_by(rule.at(NFTA_RULE_EXPRESSIONS));
        }));
    if (counts.empty())
        return std::optional<std::uint64_t>();
    return std::optional(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
}

} // namespace podlane::net
