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

} // namespace podlane
