// SPDX-License-Identifier: MIT
#include "loader/host_route.hpp"

#include <algorithm>

namespace podlane {

Result<bool> leads_elsewhere(net::Netlink &host, const net::RouteSpec &planned) {
    constexpr std::uint32_t kDefaultIpv6Metric = 1024; // IP6_RT_PRIO_USER
    const bool ipv4 = is_ipv4(planned.destination.addr);
    const std::uint32_t metric = planned.priority.value_or(ipv4 ? 0 : kDefaultIpv6Metric);
    return std::ranges::any_of(TRY(net::list_routes(host, 0, net::family_of(ipv4))), [&](const net::RouteSpec &one) {
        return one.destination == planned.destination && one.priority.value_or(0) == metric &&
               (one.ifindex != planned.ifindex || one.type != planned.type);
    });
}

Error elsewhere(const net::RouteSpec &planned) {
    const std::string to = to_string(planned.destination);
    return {ErrorCode::check_failed, "the node's route to " + to + " leads elsewhere",
            "see `ip route show " + to + "`; then `ip route del " + to + "` and `podlanectl repair`"};
}

Result<void> restore_host_route(net::Netlink &host, const net::RouteSpec &planned) {
    if (TRY(net::add_route(host, planned)) || planned.append || TRY(net::find_route(host, planned)))
        return {};
    return elsewhere(planned);
}

} // namespace podlane
