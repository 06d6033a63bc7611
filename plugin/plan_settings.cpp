// SPDX-License-Identifier: MIT
#include "plugin/plan.hpp"

#include <algorithm>
#include <utility>

namespace podlane {

net::SysctlPath sysctl_path(std::string_view name) {
    net::SysctlPath path;
    while (!name.empty()) {
        std::string part(name.substr(0, name.find('.')));
        name.remove_prefix(std::min(part.size() + 1, name.size()));
        std::ranges::replace(part, '/', '.');
        path.push_back(std::move(part));
    }
    return path;
}

std::vector<Setting> pod_settings_of(const cni::Config &config, const Plan &plan) {
    std::vector<Setting> settings;
    const std::string forwards = config.allow_ip_forwarding ? "1" : "0";
    if (std::ranges::any_of(plan.addresses, is_ipv4))
        settings.push_back({{"net", "ipv4", "ip_forward"}, forwards});
    if (!is_none(plan.link_local))
        settings.push_back({{"net", "ipv6", "conf", "all", "forwarding"}, forwards});
    for (const auto &[name, value] : config.sysctls)
        settings.push_back({sysctl_path(name), value, true});
    return settings;
}

std::vector<Setting> node_settings_of(std::span<const ip_addr> addresses) {
    std::vector<Setting> settings;
    if (std::ranges::any_of(addresses, is_ipv4))
        settings.push_back({{"net", "ipv4", "ip_forward"}, "1"});
    if (!std::ranges::all_of(addresses, is_ipv4))
        settings.push_back({{"net", "ipv6", "conf", "all", "forwarding"}, "1"});
    return settings;
}

std::uint32_t limiter_flags_of(cni::Limiter limiter) {
    switch (limiter) {
    case cni::Limiter::automatic:
        return 0;
    case cni::Limiter::pace:
        return INTERFACE_LIMIT_NO_EDT;
    case cni::Limiter::edt:
        return INTERFACE_LIMIT_UNPACED_INGRESS;
    case cni::Limiter::bucket:
        return INTERFACE_LIMIT_NO_EDT | INTERFACE_LIMIT_UNPACED_INGRESS | INTERFACE_LIMIT_UNPACED_EGRESS;
    }
    return 0;
}

bool follows_conntrack(std::uint32_t interface_flags) {
    constexpr std::uint32_t kIsolated = INTERFACE_ISOLATED_GROUP | INTERFACE_ISOLATED_NETWORK;
    constexpr std::uint32_t kFast = INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK;
    return (interface_flags & kIsolated) != 0 ||
           ((interface_flags & kFast) != 0 && (interface_flags & INTERFACE_FIRST_DIRECT) == 0);
}

bool follows_conntrack(const cni::Config &config) { return follows_conntrack(interface_flags_of(config, 1)); }

std::vector<const char *> egress_sets_of(const cni::Config &config) {
    if (!config.egress_in_cluster)
        return {};
    const bool is_closed = config.isolation.by != cni::IsolateBy::none && !config.isolation.outside;
    return is_closed ? std::vector<const char *>{"limited", "closed"} : std::vector<const char *>{"limited"};
}

} // namespace podlane
