// SPDX-License-Identifier: MIT
#include "loader/foreign_rule.hpp"

#include "loader/net/route.hpp"

#include <linux/fib_rules.h>

#include <string>

namespace podlane {
namespace {

bool refuses(const net::FoundRule &rule) {
    return rule.action == FR_ACT_BLACKHOLE || rule.action == FR_ACT_UNREACHABLE || rule.action == FR_ACT_PROHIBIT;
}

// The route that the rule's table has for the address, unless the next rule decides.
Result<std::optional<net::RouteSpec>> route_in(net::Netlink &host, const net::FoundRule &rule, const ip_addr &addr) {
    std::optional<net::RouteSpec> best;
    for (net::RouteSpec &one : TRY(net::list_routes(host, 0, net::family_of(addr), rule.table))) {
        const std::uint32_t metric = one.priority.value_or(0);
        const bool is_better =
            !best || one.destination.length > best->destination.length ||
            (one.destination.length == best->destination.length && metric < best->priority.value_or(0));
        if (contains(one.destination, addr) && is_better)
            best = std::move(one);
    }
    const bool is_passed_over =
        best && ((rule.longer_than && best->destination.length <= *rule.longer_than) || best->type == net::kThrow);
    return is_passed_over ? std::optional<net::RouteSpec>{} : best;
}

Error drawn_away(const net::FoundRule &rule, const ip_addr &pod) {
    const std::string ip = is_ipv4(pod) ? "ip" : "ip -6", priority = std::to_string(rule.priority);
    return {ErrorCode::check_failed,
            "the node's rule " + priority + ", " + rule.text + ", leads packets to " + to_string(pod) + " elsewhere",
            "see `" + ip + " rule`" +
                (rule.table == 0 ? "" : " and `" + ip + " route show table " + std::to_string(rule.table) + "`") +
                "; then `" + ip + " rule del pref " + priority + "`, or add a rule \"to " +
                to_string(host_prefix(pod)) + " lookup main\" in front of it"};
}

} // namespace

Result<const std::vector<net::FoundRule> *> NodeRules::rules_of(net::Family family) {
    const auto known = rules_.find(family);
    if (known != rules_.end())
        return &known->second;
    auto listed = net::list_rules(host_, family);
    if (!listed && net::lacks_family(listed.error()))
        listed = std::vector<net::FoundRule>{};
    return &rules_.emplace(family, TRY(std::move(listed))).first->second;
}

Result<std::optional<Error>> NodeRules::find_foreign(const ip_addr &pod, std::uint32_t host_veth) {
    for (const net::FoundRule &rule : *TRY(rules_of(net::family_of(pod)))) {
        if (rule.is_narrowed || !rule.is_for(pod) || rule.table == net::kLocalTable)
            continue;
        if (rule.table == net::kMainTable || rule.action == FR_ACT_GOTO)
            break; // of the main table, the host's routes are examined
        const auto route = rule.table == 0 ? std::nullopt : TRY(route_in(host_, rule, pod));
        if (route && route->ifindex == host_veth)
            break;
        if (route || refuses(rule))
            return std::optional(drawn_away(rule, pod));
    }
    return std::optional<Error>{};
}

} // namespace podlane
