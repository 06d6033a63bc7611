// SPDX-License-Identifier: MIT
#include "loader/uplink.hpp"
#include "maps/tables.hpp"
#include "plugin/egress_route.hpp"
#include "plugin/plan.hpp"

#include <algorithm>

namespace podlane {
namespace {

Result<std::optional<LimitGroupPlan>> plan_limit_group(const cni::Config &config) {
    const auto group = config.limit_groups.find(config.limit_group);
    if (group == config.limit_groups.end())
        return std::optional<LimitGroupPlan>{};
    const std::uint32_t network = network_id(config.name);
    LimitGroupPlan plan{.number = limit_group_number(network, group->first)};
    const cni::Bandwidth &limits = group->second;
    plan.entry.network = network;
    plan.entry.configured = {limits.ingress_rate, limits.ingress_burst, limits.egress_rate, limits.egress_burst};
    if (!set_field(plan.entry.name, group->first))
        return Error{ErrorCode::invalid_network_config, "the name of the limit group is too long"};
    return std::optional(plan);
}

} // namespace

std::vector<std::string> uplinks_of(const cni::Config &config, const std::optional<EgressRoute> &egress_route) {
    std::vector<std::string> uplinks = config.uplinks;
    if (egress_route && std::ranges::find(uplinks, egress_route->uplink.name) == uplinks.end())
        uplinks.push_back(egress_route->uplink.name);
    return uplinks;
}

Result<NetworkPlan> plan_network(const cni::Config &config, const NodeFacts &node) {
    NetworkPlan plan{.id = network_id(config.name), .uplinks = uplinks_of(config, node.egress_route)};
    std::string patterns;
    for (const std::string &one : plan.uplinks)
        patterns += (patterns.empty() ? "" : " ") + one;
    if (!set_field(plan.entry.name, config.name) || !set_field(plan.entry.uplinks, patterns))
        return Error{ErrorCode::invalid_network_config, "the network's name or its uplinks are too long",
                     "name several uplinks by a pattern, such as \"ens*\""};
    plan.entry.masquerade = static_cast<std::uint8_t>(node.masquerade);
    plan.own_address_rules = has_egress_route(config);
    plan.is_tracked = follows_conntrack(config);
    // The programs judge ends of connections that conntrack cannot, and who speaks for an isolated pod.
    const bool is_fast = config.fast_path == cni::FastPath::on || has_egress_route(config);
    const bool is_judged = config.fast_path != cni::FastPath::off || config.isolation.by != cni::IsolateBy::none;
    plan.entry.has_uplinks = is_fast ? kFastUplinks : is_judged ? kJudgedUplinks : 0;
    plan.entry.attach = attach_of(node.hook_kind);
    for (const Prefix &prefix : config.cluster_cidrs)
        if (std::ranges::find(plan.cluster_cidrs, masked(prefix)) == plan.cluster_cidrs.end())
            plan.cluster_cidrs.push_back(masked(prefix));
    plan.limit_group = TRY(plan_limit_group(config));
    return plan;
}

} // namespace podlane
