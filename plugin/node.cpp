// SPDX-License-Identifier: MIT
#include "plugin/node.hpp"

#include "loader/object.hpp"
#include "loader/probe.hpp"
#include "plugin/conntrack.hpp"
#include "plugin/history.hpp"
#include "plugin/log.hpp"
#include "loader/net/link.hpp"
#include "loader/net/route.hpp"
#include "loader/net/sysctl.hpp"

#include <string>

namespace podlane {
namespace {

Result<void> switch_on(const net::SysctlPath &path) {
    TRY(net::write_sysctl_if_different(path, "1"));
    return {};
}

// RFC 4861, 6.2.2: a forwarding interface ignores advertisements; accept_ra 2 accepts them all the same.
Result<void> keep_router_advertisements(net::Netlink &host) {
    const auto route = TRY(net::default_route(host, net::Family::ipv6));
    if (!route)
        return {};
    const auto link = TRY(net::find_link(host, route->ifindex));
    if (!link)
        return {};
    const net::SysctlPath accept_ra = {"net", "ipv6", "conf", link->name, "accept_ra"};
    if (TRY(net::read_sysctl(accept_ra)) != "1")
        return {};
    TRY(net::write_sysctl_if_different(accept_ra, "2"));
    log(cni::Log::Level::warning, "IPv6 forwarding is switched on: accept_ra of " + link->name +
                                      " is now 2, so that its router advertisements still count");
    return {};
}

} // namespace

Result<void> prepare_node(const cni::Config &config) {
    const Step step(STEP_LOAD);
    LoadSettings settings{.endpoints = config.max_endpoints, .paths = config.max_paths, .mark = config.mark};
    settings.slow_mark = config.slow_path_mark;
    settings.slow_mark_mask = config.slow_path_mask;
    settings.confirm_ms = config.confirm_interval_ms;
    TRY(ensure_loaded(config.bpffs, settings));
    return let_conntrack_follow(config);
}

Result<Tables> open_node(const cni::Config &config) {
    auto tables = Tables::open(config.bpffs);
    if (!tables && tables.error().code == ErrorCode::missing)
        TRY(check_pins(config.bpffs));
    return tables;
}

Result<HookKind> choose_hook_kind(const cni::Config &config) {
    if (config.attach == cni::AttachBy::clsact)
        return HookKind::clsact;
    if (config.attach == cni::AttachBy::tcx && !has_tcx())
        return Error{ErrorCode::plugin_not_available, "kernel: tcx is not there (Linux 6.6 or newer has it)",
                     "set \"attach\" to \"auto\" or \"clsact\""};
    return preferred_kind();
}

Result<HookKind> choose_hook_kind(const cni::Config &config, std::uint32_t ifindex) {
    const HookKind wanted = TRY(choose_hook_kind(config)), usable = TRY(usable_kind(ifindex, wanted));
    if (usable != wanted && config.attach == cni::AttachBy::clsact)
        return Error{ErrorCode::invalid_network_config,
                     "clsact cannot be put on interface " + std::to_string(ifindex) +
                         ": a qdisc `ingress` of somebody else is in its place",
                     "set \"attach\" to \"auto\" or \"tcx\""};
    return usable;
}

Result<void> enable_forwarding(net::Netlink &host, bool ipv4, bool ipv6) {
    if (ipv4)
        TRY(switch_on({"net", "ipv4", "ip_forward"}));
    const net::SysctlPath ipv6_forwarding = {"net", "ipv6", "conf", "all", "forwarding"};
    if (!ipv6 || TRY(net::read_sysctl(ipv6_forwarding)) == "1")
        return {};
    TRY(keep_router_advertisements(host));
    return switch_on(ipv6_forwarding);
}

Result<std::uint32_t> uplink_mtu(net::Netlink &host) {
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6})
        if (const auto route = TRY(net::default_route(host, family)))
            if (const auto link = TRY(net::find_link(host, route->ifindex)))
                return link->mtu;
    return 0U;
}

} // namespace podlane
