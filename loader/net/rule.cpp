// SPDX-License-Identifier: MIT
#include "loader/net/rule.hpp"

#include "loader/net/message.hpp"

#include <linux/fib_rules.h>

#include <algorithm>
#include <array>

namespace podlane::net {
namespace {

Message message_for(int type, int flags, const RuleSpec &rule) {
    fib_rule_hdr header{};
    header.family = number(family_of(rule.source.addr));
    header.src_len = rule.source.length;
    header.action = FR_ACT_TO_TBL;
    Message message(type, flags, header);
    message.put(FRA_SRC, rule.source.addr).put(FRA_TABLE, rule.table).put(FRA_PRIORITY, rule.priority);
    message.put(FRA_PROTOCOL, rule.protocol);
    if (rule.only) {
        const fib_rule_port_range port{rule.only->source_port, rule.only->source_port};
        message.put(FRA_IIFNAME, rule.only->interface).put(FRA_IP_PROTO, rule.only->protocol);
        message.put(FRA_SPORT_RANGE, port);
    }
    return message;
}

bool is_for_only(const Attributes<FRA_MAX> &attributes, const std::optional<QueryKind> &only) {
    const auto port = attributes.get<fib_rule_port_range>(FRA_SPORT_RANGE);
    if (!only)
        return !attributes.at(FRA_IIFNAME) && !port;
    return attributes.text(FRA_IIFNAME) == only->interface &&
           attributes.get<std::uint8_t>(FRA_IP_PROTO) == only->protocol && port && port->start == only->source_port &&
           port->end == only->source_port;
}

// Whoever narrows a rule down means some packets only.
bool narrows(const fib_rule_hdr &header, const Attributes<FRA_MAX> &attributes) {
    constexpr std::array kSelectors = {FRA_IIFNAME,   FRA_OIFNAME,  FRA_FWMARK,      FRA_L3MDEV,
                                       FRA_UID_RANGE, FRA_IP_PROTO, FRA_SPORT_RANGE, FRA_DPORT_RANGE};
    return header.src_len != 0 || header.tos != 0 || (header.flags & FIB_RULE_INVERT) != 0 ||
           attributes.get<std::uint64_t>(FRA_TUN_ID) ||
           std::ranges::any_of(kSelectors, [&](int one) { return attributes.at(one) != nullptr; });
}

FoundRule parse_found_rule(nlmsghdr *answer) {
    const auto *header = static_cast<fib_rule_hdr *>(nlmsg_data(answer));
    const Attributes<FRA_MAX> attributes(answer, sizeof *header);
    const ip_addr any = any_addr(header->family == AF_INET);
    FoundRule rule;
    rule.destination = {attributes.addr(FRA_DST).value_or(any), header->dst_len};
    rule.action = header->action;
    if (rule.action == FR_ACT_TO_TBL)
        rule.table = attributes.get<std::uint32_t>(FRA_TABLE).value_or(header->table);
    rule.priority = attributes.get<std::uint32_t>(FRA_PRIORITY).value_or(0);
    const auto suppressed = attributes.get<std::uint32_t>(FRA_SUPPRESS_PREFIXLEN);
    if (suppressed && *suppressed <= 128) // all bits set: none
        rule.longer_than = static_cast<std::uint8_t>(*suppressed);
    rule.text = "from all" + (rule.destination.length == 0 ? "" : " to " + to_string(rule.destination)) +
                (rule.table == 0 ? "" : " lookup " + std::to_string(rule.table));
    rule.is_narrowed = narrows(*header, attributes);
    return rule;
}

std::string sentence(const char *verb, const RuleSpec &rule) {
    return std::string(verb) + " the rule from " + to_string(rule.source) + " to table " + std::to_string(rule.table);
}

} // namespace

Result<bool> add_rule(Netlink &netlink, const RuleSpec &rule) {
    return changed(request(netlink, message_for(RTM_NEWRULE, kChange | NLM_F_CREATE | NLM_F_EXCL, rule)), {EEXIST},
                   sentence("adding", rule));
}

Result<bool> remove_rule(Netlink &netlink, const RuleSpec &rule) {
    return changed(request(netlink, message_for(RTM_DELRULE, kChange, rule)), {ENOENT}, sentence("removing", rule));
}

Result<bool> has_rule(Netlink &netlink, const RuleSpec &rule) {
    const auto found = TRY(dump<bool>(
        netlink,
        [&] {
            fib_rule_hdr header{};
            header.family = number(family_of(rule.source.addr));
            return Message(RTM_GETRULE, kDump, header);
        },
        [&](nlmsghdr *answer) -> std::optional<bool> {
            const auto *header = static_cast<fib_rule_hdr *>(nlmsg_data(answer));
            const Attributes<FRA_MAX> attributes(answer, sizeof *header);
            const bool same_source = rule.source.length == 0 || attributes.addr(FRA_SRC) == rule.source.addr;
            const bool same = header->src_len == rule.source.length && same_source &&
                              is_for_only(attributes, rule.only) && header->action == FR_ACT_TO_TBL &&
                              (!rule.protocol || attributes.get<std::uint8_t>(FRA_PROTOCOL) == rule.protocol) &&
                              attributes.get<std::uint32_t>(FRA_TABLE) == rule.table &&
                              attributes.get<std::uint32_t>(FRA_PRIORITY) == rule.priority;
            return same ? std::optional(true) : std::nullopt;
        },
        sentence("looking for", rule)));
    return !found.empty();
}

Result<std::vector<FoundRule>> list_rules(Netlink &netlink, Family family) {
    return dump<FoundRule>(
        netlink,
        [&] {
            fib_rule_hdr header{};
            header.family = number(family);
            return Message(RTM_GETRULE, kDump, header);
        },
        [](nlmsghdr *answer) { return std::optional(parse_found_rule(answer)); }, "listing the routing rules");
}

} // namespace podlane::net
