// SPDX-License-Identifier: MIT
#include "loader/foreign_rule.hpp"

#include "loader/host_route.hpp"
#include "loader/net/route.hpp"

#include <linux/fib_rules.h>

#include <algorithm>
#include <string>

namespace podlane {
namespace {

bool refuses(const net::FoundRule &rule) {
    return rule.action == FR_ACT_BLACKHOLE || rule.action == FR_ACT_UNREACHABLE || rule.action == FR_ACT_PROHIBIT;
}

// The route that the rule's table has for the address, unless the next rule decides.
Result<std::optional<net::RouteSpec>> route_in(net::Netlink &host, const net::FoundRule &rule, const ip_addr &addr) {
    auto best = TRY(best_route(host, rule.table, addr));
    const bool is_passed_over =
        best && ((rule.longer_than && best->destination.length <= *rule.longer_than) || best->type == net::kThrow);
    return is_passed_over ? std::optional<net::RouteSpec>{} : best;
}

// A rule for the main table passes over the routes to pods if it wants shorter ones only.
bool reaches_pods(const net::FoundRule &rule, const ip_addr &pod) {
    return rule.table == net::kMainTable && (!rule.longer_than || *rule.longer_than < address_bits(pod));
}

Error main_is_unused(const ip_addr &pod) {
    const std::string ip = is_ipv4(pod) ? "ip" : "ip -6";
    return {ErrorCode::check_failed,
            "no rule of the node looks up its main table, which has the route to " + to_string(pod),
            "see `" + ip + " rule`; then `" + ip + " rule add pref 32766 lookup main`"};
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

// None of a family that the kernel lacks.
Result<std::vector<net::FoundRule>> rules_in(net::Netlink &netlink, net::Family family) {
    auto listed = net::list_rules(netlink, family);
    return !listed && net::lacks_family(listed.error()) ? std::vector<net::FoundRule>{} : std::move(listed);
}

// Of each table, but for those that throw: the next rule decides. From one dump, since a container may have any number
// of rules and routes.
Result<std::map<std::uint32_t, net::RouteSpec>> default_routes(net::Netlink &pod, net::Family family) {
    std::map<std::uint32_t, net::RouteSpec> best;
    for (net::RouteSpec &one : TRY(net::list_routes(pod, 0, family, net::kAllTables))) {
        const std::uint32_t table = one.table.value_or(net::kMainTable);
        const auto there = best.find(table);
        if (one.destination.length == 0 &&
            (there == best.end() || one.priority.value_or(0) < there->second.priority.value_or(0)))
            best.insert_or_assign(table, std::move(one));
    }
    std::erase_if(best, [](const auto &one) { return one.second.type == net::kThrow; });
    return best;
}

} // namespace

Result<std::optional<Error>> find_refusing_rule(net::Netlink &pod, const std::string &netns, net::Family family) {
    const std::string in_pod = "nsenter --net=" + netns + " ip ", of_family = family == net::Family::ipv4 ? "" : "-6 ";
    const auto found = [&](std::string sentence, const std::string &remedy) {
        return std::optional(Error{ErrorCode::check_failed, std::move(sentence),
                                   "`" + in_pod + remedy + "`, or delete the pod's sandbox"});
    };
    const auto defaults = TRY(default_routes(pod, family));
    for (const net::FoundRule &rule : TRY(rules_in(pod, family))) {
        if (rule.is_narrowed || rule.destination.length != 0)
            continue;
        if ((rule.table == net::kMainTable && !rule.longer_than) || rule.action == FR_ACT_GOTO)
            return std::optional<Error>{}; // of the main table, the container's routes are examined
        const std::string priority = std::to_string(rule.priority);
        if (refuses(rule))
            return found("the container's rule " + priority + ", " + rule.text + ", refuses its packets",
                         of_family + "rule del pref " + priority);
        const auto route = rule.longer_than ? defaults.end() : defaults.find(rule.table);
        if (route == defaults.end())
            continue;
        if (!refuses_packets(route->second))
            return std::optional<Error>{}; // of its own
        return found("route " + route_words(route->second) + " of the container refuses its packets",
                     removal_of(route->second));
    }
    return found("no rule of the container looks up its main table, which has its routes",
                 of_family + "rule add pref 32766 lookup main");
}

Result<const std::vector<net::FoundRule> *> NodeRules::rules_of(net::Family family) {
    const auto known = rules_.find(family);
    if (known != rules_.end())
        return &known->second;
    return &rules_.emplace(family, TRY(rules_in(host_, family))).first->second;
}

Result<std::optional<Error>> NodeRules::find_foreign(const ip_addr &pod, std::uint32_t host_veth) {
    const std::vector<net::FoundRule> &rules = *TRY(rules_of(net::family_of(pod)));
    for (const net::FoundRule &rule : rules) {
        if (rule.is_narrowed || !rule.is_for(pod) || rule.table == net::kLocalTable)
            continue;
        if (reaches_pods(rule, pod) || rule.action == FR_ACT_GOTO)
            return std::optional<Error>{}; // of the main table, the host's routes are examined
        if (rule.table == net::kMainTable)
            continue;
        const auto route = rule.table == 0 ? std::nullopt : TRY(route_in(host_, rule, pod));
        if (route && route->ifindex == host_veth)
            return std::optional<Error>{};
        if (route || refuses(rule))
            return std::optional(drawn_away(rule, pod));
    }
    // Rules for some packets are an administrator's policy; a kernel without rules lists none.
    const bool may_reach = rules.empty() || std::ranges::any_of(rules, [&](const net::FoundRule &rule) {
                               return reaches_pods(rule, pod) || rule.action == FR_ACT_GOTO;
                           });
    return may_reach ? std::optional<Error>{} : std::optional(main_is_unused(pod));
}

} // namespace podlane
