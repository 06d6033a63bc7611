// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/pod_checks.hpp"

#include "loader/net/address.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/route.hpp"
#include "maps/abi/config.h"
#include "maps/entries.hpp"
#include "plugin/plan.hpp"
#include "plugin/pod_routes.hpp"
#include "plugin/peer_interfaces.hpp"
#include "plugin/reinstate.hpp"
#include "tools/podlanectl/doctor/host_veth_checks.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace podlane::ctl::doctor {
namespace {

constexpr Mac kHostMac = PODLANE_HOST_MAC;

std::string pod_place(const EndpointView &e) { return e.ifname() + " in the container"; }
bool has_family(const EndpointView &e, bool ipv4) {
    return std::ranges::any_of(addresses_in(e.record), [&](const ip_addr &addr) { return is_ipv4(addr) == ipv4; });
}

// The container's interface is accessible, and was created by Podlane.
bool has_own_pod(const EndpointView &e) { return e.is_ours() && e.link && e.pod && e.pod_link; }
// A finding of look_at_addresses(): the kernel has removed all else of the family.
bool has_small_mtu(const EndpointView &e) {
    return e.is_ours() && !has_mtu_for(addresses_in(e.record), e.pod_link->mtu);
}
bool has_ipv6_off(const EndpointView &e) { return has_small_mtu(e) || (e.pod_link->ipv6_off && has_family(e, false)); }

// Opens its own socket, as on_host() does.
std::function<Result<void>()> in_pod(const EndpointView &e, std::function<Result<void>(net::Netlink &)> change) {
    return [path = e.namespace_path, change = std::move(change)]() -> Result<void> {
        net::Netlink pod = TRY(net::Netlink::open_in(TRY(net::Namespace::open(path))));
        return change(pod);
    };
}
// The kernel detects duplicates of a link-local address that it has restored, and another plugin's of its.
bool may_be_tentative(const EndpointView &e, const net::Address &one) {
    return !e.is_ours() || one.prefix.addr == e.record.link_local;
}

// Routes need the record.
std::function<Result<void>()> restoring_ipv6(const EndpointView &e, std::vector<net::Address> addresses) {
    return [path = e.namespace_path, name = e.ifname(), ifindex = e.pod_link->ifindex,
            addresses = std::move(addresses)]() -> Result<void> {
        const net::Namespace pod = TRY(net::Namespace::open(path));
        TRY(switch_ipv6_on(pod, name));
        net::Netlink inside = TRY(net::Netlink::open_in(pod));
        for (const net::Address &one : addresses)
            TRY(put_usable_address(inside, ifindex, one));
        return net::put_neighbour(inside, ifindex, own_gateway(false), kHostMac);
    };
}

} // namespace

Result<void> look_at_pod_link(const EndpointView &e, Findings &findings) {
    if (!e.link || !e.pod)
        return e.unseen_pod;
    if (!e.pod_link) {
        report(findings, "interface " + e.ifname() + " is gone from the container, or was replaced");
        return {};
    }
    if (!e.pod_link->up)
        report(findings, pod_place(e) + " is down", in_pod(e, set_up(e.pod_link->ifindex)));
    if (std::ranges::equal(e.pod_link->mac, e.record.pod_mac))
        return {};
    const std::string has = pod_place(e) + " has MAC " + to_string(e.pod_link->mac);
    if ((e.record.flags & INTERFACE_ROUTED) != 0)
        report_by_record(findings, has + ", which it has not announced: packets to it are sent to another");
    else if ((e.record.flags & INTERFACE_ANTI_SPOOF) != 0)
        findings.push_back(
            {.what = has + ", which anti-spoofing drops",
             .remedy = "put the plugin that sets it (tuning) in front of podlane in the list, and delete the sandbox"});
    return {};
}

Result<void> look_at_addresses(const EndpointView &e, Findings &findings) {
    if (!e.link || !e.pod || !e.pod_link)
        return {};
    const auto present = TRY(net::list_addresses(*e.pod, e.pod_link->ifindex));
    std::vector<net::Address> expected;
    for (const ip_addr &addr : addresses_in(e.record))
        expected.push_back({{addr, address_bits(addr)}, net::kNoDad, net::kScopeGlobal});
    if (e.is_ours() && !is_none(e.record.link_local))
        expected.push_back({{e.record.link_local, 64}, net::kNoDad, net::kScopeLink});
    if (has_ipv6_off(e)) {
        const auto is_ipv6 = [](const net::Address &one) { return !is_ipv4(one.prefix.addr); };
        std::vector<net::Address> lost;
        std::ranges::copy_if(expected, std::back_inserter(lost), is_ipv6);
        std::erase_if(expected, is_ipv6);
        const bool is_small = has_small_mtu(e);
        report(findings,
               is_small ? mtu_is_too_small(pod_place(e), e.pod_link->mtu) : ipv6_is_off(pod_place(e), e.ifname()),
               e.is_ours() && !is_small ? restoring_ipv6(e, std::move(lost)) : nullptr);
        findings.back().by_record = e.is_ours();
    }
    for (const net::Address &one : expected) {
        const auto same = [&](const net::Address &other) { return other.prefix.addr == one.prefix.addr; };
        const auto found = std::ranges::find_if(present, same);
        const std::string why = found == present.end() ? "" : net::unusable_because(*found, may_be_tentative(e, one));
        const bool is_usable = found != present.end() && why.empty();
        const bool must_deliver = e.is_ours() && one.scope == net::kScopeGlobal;
        if (is_usable && (!must_deliver || TRY(is_delivered(*e.pod, one.prefix.addr))))
            continue;
        Finding &finding = findings.emplace_back();
        finding.what = is_usable ? undelivered({*e.pod, e.namespace_path}, one.prefix.addr).message
                                 : "address " + to_string(one.prefix.addr) +
                                       (why.empty() ? " is gone from " + pod_place(e)
                                                    : " of " + pod_place(e) + " cannot be used: " + why);
        if (is_usable)
            finding.remedy = undelivered({*e.pod, e.namespace_path}, one.prefix.addr).hint;
        if (e.is_ours())
            finding.repair = in_pod(e, [one, ifindex = e.pod_link->ifindex](net::Netlink &pod) {
                return put_usable_address(pod, ifindex, one);
            });
    }
    return {};
}

Result<void> look_at_pod_neighbours(const EndpointView &e, Findings &findings) {
    if (!has_own_pod(e))
        return {};
    for (const bool ipv4 : {true, false}) {
        const ip_addr addr = own_gateway(ipv4);
        if (!has_family(e, ipv4) || (!ipv4 && has_ipv6_off(e)))
            continue;
        const auto found = TRY(net::find_neighbour(*e.pod, e.pod_link->ifindex, addr));
        const bool is_resolved =
            (e.record.flags & INTERFACE_MAC_LEARNED) != 0 && // the kernel forgot it, and resolves it
            (!found || found->mac == Mac{} || found->mac == kHostMac);
        if (!is_resolved && (!found || !found->permanent || found->mac != kHostMac))
            report(findings, "the permanent neighbour " + to_string(addr) + " is gone from " + pod_place(e),
                   in_pod(e, [addr, ifindex = e.pod_link->ifindex](net::Netlink &pod) {
                       return net::put_neighbour(pod, ifindex, addr, kHostMac);
                   }));
    }
    return {};
}

// Only the configuration knows the requested routes (CHECK has it): this is the part they all need.
Result<void> look_at_pod_routes(const EndpointView &e, Findings &findings) {
    if (!has_own_pod(e))
        return {};
    const net::RouteSpec to_gateway{
        .destination = {own_gateway(true), 32}, .ifindex = e.pod_link->ifindex, .scope = net::kScopeLink};
    if (has_family(e, true) && !TRY(net::find_route(*e.pod, to_gateway))) {
        report(findings, "the route to the gateway " + to_string(own_gateway(true)) + " is gone from " + pod_place(e),
               in_pod(e, [to_gateway](net::Netlink &pod) { return add_pod_route(pod, to_gateway); }));
        findings.back().by_record = true; // others went with it
    }
    // multus leaves a default route to one of several interfaces.
    const auto is_other = [&](const net::Link &one) { return one.ifindex != e.pod_link->ifindex && one.name != "lo"; };
    const bool has_other_links = std::ranges::any_of(TRY(net::list_links(*e.pod)), is_other);
    for (const bool ipv4 : {true, false}) {
        if (!has_family(e, ipv4) || (!ipv4 && has_ipv6_off(e)))
            continue;
        const auto routes = TRY(net::list_routes(*e.pod, e.pod_link->ifindex, net::family_of(ipv4), net::kAllTables));
        if (has_other_links || std::ranges::any_of(routes, [](const auto &route) { return route.gateway.has_value(); }))
            continue;
        if (const auto refusing = TRY(find_refusing({*e.pod, e.namespace_path}, {.destination = {any_addr(ipv4), 0}})))
            report(findings, refusing->message, {}, refusing->hint);
        else
            report_by_record(findings, std::string("no ") + (ipv4 ? "IPv4" : "IPv6") + " route leaves " + pod_place(e));
    }
    return {};
}

} // namespace podlane::ctl::doctor
