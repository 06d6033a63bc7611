// SPDX-License-Identifier: MIT
#include "loader/net/rule.hpp"

#include "loader/net/message.hpp"

#include <linux/fib_rules.h>

namespace podlane::net {
namespace {

Message message_for(int type, int flags, const RuleSpec &rule) {
    fib_rule_hdr header{};
    header.family = number(family_of(rule.source));
    header.src_len = address_bits(rule.source);
    header.action = FR_ACT_TO_TBL;
    Message message(type, flags, header);
    message.put(FRA_SRC, rule.source).put(FRA_TABLE, rule.table).put(FRA_PRIORITY, rule.priority);
    return message;
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
            header.family = number(family_of(rule.source));
            return Message(RTM_GETRULE, kDump, header);
        },
        [&](nlmsghdr *answer) -> std::optional<bool> {
            const auto *header = static_cast<fib_rule_hdr *>(nlmsg_data(answer));
            const Attributes<FRA_MAX> attributes(answer, sizeof *header);
            const bool same = header->src_len == address_bits(rule.source) && attributes.addr(FRA_SRC) == rule.source &&
                              attributes.get<std::uint32_t>(FRA_TABLE) == rule.table &&
                              attributes.get<std::uint32_t>(FRA_PRIORITY) == rule.priority;
            return same ? std::optional(true) : std::nullopt;
        },
        sentence("looking for", rule)));
    return !found.empty();
}

} // namespace podlane::net
