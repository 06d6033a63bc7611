// SPDX-License-Identifier: MIT
#include "loader/net/conntrack.hpp"

#include "loader/net/message.hpp"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include <vector>

namespace podlane::net {
namespace {

constexpr std::uint32_t kSourceOnly = 1; // CTA_FILTER_F_CTA_IP_SRC of the kernel

struct Connection {
    std::vector<std::uint32_t> tuple; // the attributes of CTA_TUPLE_ORIG, as they came
    std::optional<std::uint32_t> id;
    std::optional<std::uint16_t> zone;
};

Message request(int type, int flags, const ip_addr &addr) {
    nfgenmsg header{};
    header.nfgen_family = number(family_of(addr));
    header.version = NFNETLINK_V0;
    return {(NFNL_SUBSYS_CTNETLINK << 8) | type, flags, header};
}

int source_attribute(const ip_addr &addr) { return is_ipv4(addr) ? CTA_IP_V4_SRC : CTA_IP_V6_SRC; }

// Kernels before 5.8 ignore the filter, and list all. That of IPv6 addresses is inverted
// (ctnetlink_filter_match_tuple(), 5.8 to 6.18 at least): it would list all connections but those of the address.
Message list_of(const ip_addr &source) {
    Message message = request(IPCTNL_MSG_CT_GET, kDump, source);
    if (!is_ipv4(source))
        return message;
    message.nest(CTA_TUPLE_ORIG | NLA_F_NESTED, [&] {
        message.nest(CTA_TUPLE_IP | NLA_F_NESTED, [&] { message.put(source_attribute(source), source); });
    });
    message.nest(CTA_FILTER | NLA_F_NESTED, [&] {
        message.put(CTA_FILTER_ORIG_FLAGS, kSourceOnly).put(CTA_FILTER_REPLY_FLAGS, std::uint32_t{0});
    });
    return message;
}

std::optional<ip_addr> source_in(nlattr *tuple, const ip_addr &of_family) {
    return Attributes<CTA_IP_MAX>(Attributes<CTA_TUPLE_MAX>(tuple).at(CTA_TUPLE_IP)).addr(source_attribute(of_family));
}

std::optional<Connection> parse_connection(nlmsghdr *answer, std::span<const ip_addr> sources,
                                           std::span<const Prefix> but_to) {
    const Attributes<CTA_MAX> all(answer, sizeof(nfgenmsg));
    nlattr *const tuple = all.at(CTA_TUPLE_ORIG);
    const auto source = source_in(tuple, sources.front());
    if (!source || std::ranges::find(sources, *source) == sources.end())
        return std::nullopt;
    const auto replies_from = source_in(all.at(CTA_TUPLE_REPLY), *source);
    if (std::ranges::any_of(but_to, [&](const Prefix &one) { return replies_from && contains(one, *replies_from); }))
        return std::nullopt;
    Connection found{{}, all.get<std::uint32_t>(CTA_ID), all.get<std::uint16_t>(CTA_ZONE)};
    found.tuple.resize(static_cast<std::size_t>(nla_len(tuple)) / sizeof(std::uint32_t));
    std::memcpy(found.tuple.data(), nla_data(tuple), found.tuple.size() * sizeof(std::uint32_t));
    return found;
}

Message deletion_of(const Connection &one, const ip_addr &source) {
    Message message = request(IPCTNL_MSG_CT_DELETE, kChange, source);
    message.nest(CTA_TUPLE_ORIG | NLA_F_NESTED, [&] {
        for (const std::uint32_t word : one.tuple)
            message.append(word);
    });
    return std::move(message.put(CTA_ID, one.id).put(CTA_ZONE, one.zone));
}

// By one walk of the table. The sources are of one family; of IPv4 it is one.
Result<std::size_t> forget_listed(Netlink &netfilter, std::span<const ip_addr> sources,
                                  std::span<const Prefix> but_to) {
    constexpr const char *kDoing = "forgetting the connections of an address";
    const ip_addr &of_family = sources.front();
    const auto all = TRY(dump<Connection>(
        netfilter, [&] { return list_of(of_family); },
        [&](nlmsghdr *answer) { return parse_connection(answer, sources, but_to); }, kDoing));
    std::size_t count = 0;
    for (const Connection &one : all)
        count += TRY(changed(request(netfilter, deletion_of(one, of_family)), {ENOENT}, kDoing)) ? 1 : 0;
    return count;
}

} // namespace

Result<std::size_t> forget_connections_from(Netlink &netfilter, std::span<const ip_addr> sources,
                                            std::span<const Prefix> but_to) {
    std::size_t count = 0;
    std::vector<ip_addr> unfiltered;
    for (const ip_addr &source : sources)
        if (is_ipv4(source))
            count += TRY(forget_listed(netfilter, {&source, 1}, but_to));
        else
            unfiltered.push_back(source);
    return unfiltered.empty() ? count : count + TRY(forget_listed(netfilter, unfiltered, but_to));
}

} // namespace podlane::net
