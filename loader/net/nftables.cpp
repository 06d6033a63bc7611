// SPDX-License-Identifier: MIT
#include "loader/net/nftables.hpp"

#include "loader/net/message.hpp"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

namespace podlane::net {
namespace {

nfgenmsg header_for(std::uint8_t family, std::uint16_t resource = 0) {
    nfgenmsg header{};
    header.nfgen_family = family;
    header.version = NFNETLINK_V0;
    header.res_id = htons(resource);
    return header;
}

constexpr int message_type(int message) { return (NFNL_SUBSYS_NFTABLES << 8) | message; }

// The addresses of one family as elements of its set.
Message elements_message(int type, int flags, const std::string &table, const std::string &set, bool ipv4,
                         std::span<const ip_addr> addresses) {
    Message message(message_type(type), kChange | flags, header_for(NFPROTO_INET));
    message.put(NFTA_SET_ELEM_LIST_TABLE, table).put(NFTA_SET_ELEM_LIST_SET, set);
    message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, [&] {
        for (const ip_addr &addr : addresses)
            if (is_ipv4(addr) == ipv4)
                message.nest(NFTA_LIST_ELEM,
                             [&] { message.nest(NFTA_SET_ELEM_KEY, [&] { message.put(NFTA_DATA_VALUE, addr); }); });
    });
    return message;
}

void add_messages(int type, int flags, const AddressSets &sets, std::span<const ip_addr> addresses,
                  std::vector<Message> &batch) {
    for (const bool ipv4 : {true, false})
        if (std::ranges::any_of(addresses, [&](const ip_addr &addr) { return is_ipv4(addr) == ipv4; }))
            batch.push_back(elements_message(type, flags, sets.table, ipv4 ? sets.ipv4 : sets.ipv6, ipv4, addresses));
}

Message bracket(int type) { return {type, NLM_F_REQUEST, header_for(AF_UNSPEC, NFNL_SUBSYS_NFTABLES)}; }

// The kernel commits all of the messages or none.
Result<bool> commit(Netlink &netfilter, std::vector<Message> changes, const std::string &doing) {
    std::vector<Message> batch;
    batch.push_back(bracket(NFNL_MSG_BATCH_BEGIN));
    for (Message &change : changes)
        batch.push_back(std::move(change));
    batch.push_back(bracket(NFNL_MSG_BATCH_END));
    for (const Outcome &outcome : ask_all(netfilter, batch)) {
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

Result<bool> remove_table(Netlink &netfilter, const std::string &table) {
    std::vector<Message> changes;
    changes.emplace_back(message_type(NFT_MSG_DELTABLE), kChange, header_for(NFPROTO_INET)).put(NFTA_TABLE_NAME, table);
    return commit(netfilter, std::move(changes), "removing table inet " + table);
}

Result<std::vector<std::string>> rule_comments(Netlink &netfilter, const std::string &table, const std::string &chain) {
    return dump<std::string>(
        netfilter,
        [&] {
            Message message(message_type(NFT_MSG_GETRULE), kDump, header_for(NFPROTO_INET));
            message.put(NFTA_RULE_TABLE, table).put(NFTA_RULE_CHAIN, chain);
            return message;
        },
        [&](nlmsghdr *answer) -> std::optional<std::string> {
            const Attributes<NFTA_RULE_MAX> rule(answer, sizeof(nfgenmsg));
            if (rule.text(NFTA_RULE_TABLE) != table || rule.text(NFTA_RULE_CHAIN) != chain)
                return std::nullopt;
            return comment_in(rule.at(NFTA_RULE_USERDATA));
        },
        "listing the rules of chain " + chain + " in table inet " + table);
}

} // namespace podlane::net
