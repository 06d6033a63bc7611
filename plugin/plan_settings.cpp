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

std::vector<const char *> egress_sets_of(const cni::Config &config) {
    if (!config.egress_in_cluster)
        return {};
    const bool is_closed = config.isolation.by != cni::IsolateBy::none && !config.isolation.outside;
    return is_closed ? std::vector<const char *>{"limited", "closed"} : std::vector<const char *>{"limited"};
}

} // namespace podlane
