#include "plugin/pod_rules.hpp"

#include "plugin/log.hpp"
#include "plugin/net/route.hpp"
#include "plugin/net/rule.hpp"

namespace podlane {
namespace {

constexpr std::uint32_t kPriority = 0x504c; // "PL", before the main table's 32766
constexpr std::uint32_t kFirstTable = 0x504c0000;

net::RuleSpec rule_for(const ip_addr &source, std::uint32_t pod_ifindex) {
    return {source, kFirstTable + pod_ifindex, kPriority};
}

std::span<const ip_addr> addresses_of(const endpoint &record) {
    return std::span(record.addresses).first(record.address_count);
}

} // namespace

void log_strangers(const std::vector<net::Link> &strangers) {
    for (const net::Link &one : strangers)
        log(cni::Log::Level::warning, "interface " + one.name + (one.kind.empty() ? "" : " (" + one.kind + ")") +
                                          " of the container is no endpoint of Podlane: source routing is done by "
                                          "rules in the container");
}

Result<void> put_pod_rules(net::Netlink &pod, std::uint32_t pod_ifindex, const Plan &plan) {
    for (net::RouteSpec route : plan.pod_routes) {
        if (route.table)
            continue;
        route.ifindex = pod_ifindex;
        route.table = kFirstTable + pod_ifindex;
        TRY(net::add_route(pod, route));
    }
    for (const ip_addr &addr : plan.addresses)
        TRY(net::add_rule(pod, rule_for(addr, pod_ifindex)));
    return {};
}

Result<void> remove_pod_rules(net::Netlink &pod, const endpoint &record) {
    for (const ip_addr &addr : addresses_of(record))
        TRY(net::remove_rule(pod, rule_for(addr, record.pod_ifindex)));
    return {};
}

Result<void> check_pod_rules(net::Netlink &pod, const endpoint &record) {
    const auto failed = [](std::string sentence) {
        return Error{ErrorCode::check_failed, std::move(sentence),
                     "delete the pod's sandbox; the runtime makes a new one"};
    };
    for (const ip_addr &addr : addresses_of(record)) {
        const net::RuleSpec rule = rule_for(addr, record.pod_ifindex);
        if (!TRY(net::has_rule(pod, rule)))
            return failed("the rule from " + to_string(addr) + " is gone from the container");
        const auto family = is_ipv4(addr) ? net::Family::ipv4 : net::Family::ipv6;
        if (TRY(net::list_routes(pod, record.pod_ifindex, family, rule.table)).empty())
            return failed("table " + std::to_string(rule.table) + " of the container is empty");
    }
    return {};
}

} // namespace podlane
