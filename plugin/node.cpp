// SPDX-License-Identifier: MIT
#include "plugin/node.hpp"

#include "loader/net/namespace.hpp"
#include "loader/node_netns.hpp"
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "loader/upgrade.hpp"
#include "maps/text.hpp"
#include "plugin/conntrack.hpp"
#include "plugin/history.hpp"
#include "plugin/log.hpp"
#include "loader/net/address.hpp"
#include "loader/net/link.hpp"
#include "loader/net/route.hpp"
#include "loader/net/sysctl.hpp"

#include <algorithm>
#include <string>

namespace podlane {
namespace {

// Whether an advertisement gave the interface a route, a prefix on its link, or an address (those of advertisements
// expire). The interfaces of the default route count whoever set it.
Result<bool> lives_on_advertisements(net::Netlink &host, std::uint32_t ifindex) {
    constexpr std::uint8_t kOfKernel = 2, kFromAdvertisement = 9; // RTPROT_*
    const auto route = TRY(net::default_route(host, net::Family::ipv6));
    if (route && std::ranges::find(route->links, ifindex) != route->links.end())
        return true;
    const auto routes = TRY(net::list_routes(host, ifindex, net::Family::ipv6, net::kAllTables));
    if (std::ranges::any_of(routes, [](const net::RouteSpec &one) {
            return one.protocol == kFromAdvertisement || (one.protocol == kOfKernel && one.expires);
        }))
        return true;
    const auto addresses = TRY(net::list_addresses(host, ifindex));
    return std::ranges::any_of(addresses, [](const net::Address &one) {
        return !is_ipv4(one.prefix.addr) && one.scope == net::kScopeGlobal && (one.flags & net::kPermanent) == 0;
    });
}

Result<void> enforce(const std::string &state_dir, const net::SysctlPath &path, const std::string &value) {
    const NodeSettings settings = TRY(NodeSettings::open(state_dir));
    log_replaced(settings, TRY(settings.enforce(path, value)));
    return {};
}

// RFC 4861, 6.2.2: a forwarding interface ignores advertisements; accept_ra 2 accepts them all the same.
Result<void> keep_router_advertisements(net::Netlink &host, const std::string &state_dir) {
    for (const net::Link &link : TRY(net::list_links(host))) {
        const net::SysctlPath accept_ra = {"net", "ipv6", "conf", link.name, "accept_ra"};
        if (TRY(net::read_sysctl(accept_ra)) != "1" || !TRY(lives_on_advertisements(host, link.ifindex)))
            continue;
        TRY(enforce(state_dir, accept_ra, "2"));
        log(cni::Log::Level::warning, "IPv6 forwarding is switched on: accept_ra of " + link.name +
                                          " is now 2, so that its router advertisements still count");
    }
    return {};
}

Error removed_meanwhile(const std::string &root, Error error) {
    error.code = ErrorCode::try_again_later;
    error.hint = "repeat the call, which loads the programs again";
    return std::move(error).context("the programs below " + root +
                                    " were removed during this call, as by podlanectl uninstall");
}

// Whoever cannot make the directory, or mount its file system, has another error.
bool is_root_removed(const std::string &root, const Error &error) {
    const auto is_there = is_pinned(root);
    return is_there && !*is_there && error.code != ErrorCode::plugin_not_available &&
           error.code != ErrorCode::try_again_later;
}

} // namespace

Result<void> prepare_node(const cni::Config &config) {
    const Step step(STEP_LOAD);
    const std::uint32_t own_netns = TRY(net::own_netns());
    TRY(refuse_other_netns(config.bpffs, own_netns)); // before anything is attached there
    LoadSettings settings{.endpoints = config.max_endpoints, .paths = config.max_paths, .mark = config.mark};
    settings.slow_mark = config.slow_path_mark;
    settings.slow_mark_mask = config.slow_path_mask;
    settings.confirm_ms = config.confirm_interval_ms;
    if (auto loaded = ensure_loaded(config.bpffs, settings); !loaded)
        return is_root_removed(config.bpffs, loaded.error())
                   ? removed_meanwhile(config.bpffs, std::move(loaded).error())
                   : std::move(loaded);
    TRY(refuse_other_netns(config.bpffs, own_netns)); // it may have loaded them meanwhile
    TRY(restore_netns(config.bpffs, config.state_dir));
    if (config.bandwidth)
        static_cast<void>(restore_pacing(config.bpffs)); // an option, which must not fail an ADD
    return let_conntrack_follow(config);
}

Error with_removal(const cni::Config &config, Error error) {
    const auto is_loaded = is_pinned(live_directory(config.bpffs));
    // By now another ADD may have loaded them again.
    const bool is_gone = is_of_missing_root(config.bpffs, error) ||
                         (is_loaded && !*is_loaded && error.code != ErrorCode::try_again_later);
    return is_gone ? removed_meanwhile(config.bpffs, std::move(error)) : std::move(error);
}

Error with_missing_root(const cni::Config &config, Error error) {
    if (!is_of_missing_root(config.bpffs, error))
        return error;
    Error removed = removed_meanwhile(config.bpffs, std::move(error));
    removed.hint = "repeat the call";
    return removed;
}

bool has_restored_pins(const cni::Config &config, const Error &error) {
    if (check_pins(config.bpffs) || !complete_pins(config.bpffs))
        return false;
    log(cni::Log::Level::warning, error.message + "; pins that were missing are restored");
    return true;
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
                         ": a foreign qdisc `ingress` is in its place",
                     "set \"attach\" to \"auto\" or \"tcx\""};
    return usable;
}

void log_replaced(const NodeSettings &settings, Change change) {
    if (change == Change::replaced)
        log(cni::Log::Level::warning, settings.path() + " could not be read, and is replaced: the former values of "
                                                        "settings that were changed before are lost");
}

// Pods need them, whichever program switched them off.
Result<void> write_node_settings(const cni::Config &config, net::Netlink &host, const std::vector<Setting> &settings) {
    const net::SysctlPath ipv6_forwarding = {"net", "ipv6", "conf", "all", "forwarding"};
    for (const Setting &one : settings) {
        if (TRY(net::read_sysctl(one.path)) == one.value)
            continue;
        if (one.path == ipv6_forwarding)
            TRY(keep_router_advertisements(host, config.state_dir));
        TRY(enforce(config.state_dir, one.path, one.value));
    }
    return {};
}

Result<void> check_node(const std::string &root, const endpoint &record) {
    if (record.mode != ENDPOINT_AFTER_MAIN)
        for (const Setting &one : node_settings_of(addresses_in(record)))
            if (const auto now = TRY(net::read_sysctl(one.path)); now && *now == "0")
                return Error{ErrorCode::check_failed,
                             join(one.path, ".") + " is 0: the node does not forward the container's packets",
                             "`podlanectl repair` sets it to 1; find the program that writes this setting"};
    return check_tracking(root, record);
}

Result<std::uint32_t> uplink_mtu(net::Netlink &host) {
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6})
        if (const auto route = TRY(net::default_route(host, family)))
            if (const auto link = TRY(net::find_link(host, route->ifindex)))
                return link->mtu;
    return 0U;
}

} // namespace podlane
