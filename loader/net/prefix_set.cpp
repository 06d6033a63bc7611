// SPDX-License-Identifier: MIT
#include "loader/net/prefix_set.hpp"

#include "loader/net/message.hpp"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include <iterator>
#include <utility>

namespace podlane::net {
namespace {

// Where an interval begins, or the address behind its last one.
struct Bound {
    ip_addr addr{};
    bool is_end = false;
};

bool is_before(const ip_addr &a, const ip_addr &b) { return std::memcmp(&a, &b, sizeof a) < 0; }

ip_addr last_in(const Prefix &prefix) {
    const ip_addr ones = is_ipv4(prefix.addr) ? ipv4_from_host_order(~0U) : ip_addr{{~0U, ~0U, ~0U, ~0U}};
    const ip_addr kept = masked({ones, prefix.length}).addr;
    ip_addr last = prefix.addr;
    for (std::size_t i = 0; i < std::size(last.word); ++i)
        last.word[i] |= ones.word[i] ^ kept.word[i];
    return last;
}

ip_addr one_before(const ip_addr &addr) {
    std::array<std::uint8_t, sizeof addr> bytes{};
    std::memcpy(bytes.data(), &addr, bytes.size());
    for (std::size_t i = bytes.size(); i-- > 0 && bytes.at(i)-- == 0;) {
    }
    ip_addr before{};
    std::memcpy(&before, bytes.data(), bytes.size());
    return before;
}

std::optional<Prefix> prefix_of(const ip_addr &first, const ip_addr &last) {
    for (std::uint8_t length = 0; length <= address_bits(first); ++length)
        if (const Prefix prefix{first, length}; masked(prefix) == prefix && last_in(prefix) == last)
            return prefix;
    return std::nullopt;
}

// An interval without an end reaches to the next one, or to the last address.
std::optional<std::vector<Prefix>> prefixes_between(std::vector<Bound> bounds) {
    std::ranges::sort(bounds, is_before, &Bound::addr);
    std::vector<Prefix> prefixes;
    for (const Bound &first : bounds) {
        if (first.is_end)
            continue;
        const auto next = std::ranges::upper_bound(bounds, first.addr, is_before, &Bound::addr);
        const auto prefix =
            prefix_of(first.addr, next == bounds.end() ? last_in({first.addr, 0}) : one_before(next->addr));
        if (!prefix)
            return std::nullopt;
        prefixes.push_back(*prefix);
    }
    return prefixes;
}

std::vector<Bound> bounds_in(nlattr *elements) {
    std::vector<Bound> bounds;
    nlattr *element = nullptr;
    int rest = 0;
    if (elements)
        nla_for_each_nested(element, elements, rest) {
            const Attributes<NFTA_SET_ELEM_MAX> one(element);
            const std::uint32_t flags = ntohl(one.get<std::uint32_t>(NFTA_SET_ELEM_FLAGS).value_or(0));
            if (const auto addr = Attributes<NFTA_DATA_MAX>(one.at(NFTA_SET_ELEM_KEY)).addr(NFTA_DATA_VALUE))
                bounds.push_back({*addr, (flags & NFT_SET_ELEM_INTERVAL_END) != 0});
        }
    return bounds;
}

Result<std::vector<Bound>> list_bounds(Netlink &netfilter, const std::string &table, const std::string &set) {
    const auto parts = TRY(dump<std::vector<Bound>>(
        netfilter,
        [&] {
            nfgenmsg header{};
            header.nfgen_family = NFPROTO_INET;
            header.version = NFNETLINK_V0;
            Message message((NFNL_SUBSYS_NFTABLES << 8) | NFT_MSG_GETSETELEM, kDump, header);
            message.put(NFTA_SET_ELEM_LIST_TABLE, table).put(NFTA_SET_ELEM_LIST_SET, set);
            return message;
        },
        [](nlmsghdr *answer) {
            const Attributes<NFTA_SET_ELEM_LIST_MAX> list(answer, sizeof(nfgenmsg));
            return std::optional(bounds_in(list.at(NFTA_SET_ELEM_LIST_ELEMENTS)));
        },
        "listing set " + set + " of table inet " + table));
    std::vector<Bound> all;
    for (const std::vector<Bound> &part : parts)
        all.insert(all.end(), part.begin(), part.end());
    return all;
}

} // namespace

Result<std::optional<std::vector<Prefix>>> list_prefixes(Netlink &netfilter, const std::string &table,
                                                         const std::string &set) {
    return prefixes_between(TRY(list_bounds(netfilter, table, set)));
}

Result<std::vector<ip_addr>> list_set_addresses(Netlink &netfilter, const std::string &table, const std::string &set) {
    std::vector<ip_addr> addresses;
    for (const Bound &element : TRY(list_bounds(netfilter, table, set)))
        addresses.push_back(element.addr);
    return addresses;
}

} // namespace podlane::net
