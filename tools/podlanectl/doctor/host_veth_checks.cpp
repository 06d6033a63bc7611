// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/host_veth_checks.hpp"

#include "loader/foreign_rule.hpp"
#include "loader/host_route.hpp"
#include "loader/host_veth.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/route.hpp"
#include "maps/entries.hpp"

#include <utility>

namespace podlane::ctl::doctor {

std::function<Result<void>()> on_host(std::function<Result<void>(net::Netlink &)> change) {
    return [change = std::move(change)]() -> Result<void> {
        net::Netlink host = TRY(net::Netlink::open());
        return change(host);
    };
}

std::function<Result<void>(net::Netlink &)> set_up(std::uint32_t ifindex) {
    return [ifindex](net::Netlink &netlink) { return net::set_link(netlink, ifindex, {.up = true}); };
}

void report_by_record(Findings &findings, std::string what) {
    report(findings, std::move(what));
    findings.back().by_record = true;
}

// The record restores all of the family, which is lost with the setting.
Result<void> look_at_host_ipv6(const EndpointView &e, Findings &findings) {
    if (!e.is_ours() || !e.link)
        return {};
    if (auto fault = TRY(find_ipv6_fault(e.host, e.record))) {
        report(findings, *std::move(fault),
               on_host([record = e.record](net::Netlink &host) { return restore_ipv6(host, record); }));
        findings.back().by_record = true;
    }
    return {};
}

Result<void> look_at_host_neighbours(const EndpointView &e, Findings &findings) {
    if (!e.is_ours() || !e.link)
        return {};
    const Mac mac = to_mac(e.record.pod_mac);
    const bool is_off = TRY(is_ipv6_off(e.record)); // a finding of look_at_host_ipv6()
    for (const ip_addr &addr : addresses_in(e.record)) {
        if (is_off && !is_ipv4(addr))
            continue;
        const auto found = TRY(net::find_neighbour(e.host, e.record.ifindex, addr));
        const bool is_right = found && (found->mac == mac || (e.record.flags & INTERFACE_MAC_LEARNED) != 0);
        if (!is_right || !found->permanent)
            report(findings,
                   "the host's permanent neighbour " + to_string(addr) + " on " + e.host_ifname() +
                       (found ? " has MAC " + to_string(found->mac) : " is gone"),
                   on_host([addr, mac, ifindex = e.record.ifindex](net::Netlink &host) {
                       return net::put_neighbour(host, ifindex, addr, mac);
                   }));
    }
    return {};
}

Result<void> look_at_host_routes(const EndpointView &e, Findings &findings) {
    if (!e.is_ours() || !e.link)
        return {};
    const bool is_off = TRY(is_ipv6_off(e.record));
    for (const ip_addr &addr : addresses_in(e.record)) {
        if (is_off && !is_ipv4(addr))
            continue;
        const net::RouteSpec route{.destination = {addr, address_bits(addr)}, .ifindex = e.record.ifindex};
        if (TRY(e.routes.follow(route)))
            continue;
        if (TRY(net::find_route(e.host, route))) {
            if (const auto hiding = TRY(e.routes.find_hiding(route)))
                report(findings, hiding->message, {}, hiding->hint);
            continue;
        }
        if (TRY(leads_elsewhere(e.host, route))) {
            const Error error = elsewhere(route);
            report(findings, error.message, {}, error.hint);
        } else
            report(findings, "the host's route to " + to_string(addr) + " by " + e.host_ifname() + " is gone",
                   on_host([route](net::Netlink &host) { return restore_host_route(host, route); }));
    }
    return {};
}

Result<void> look_at_host_rules(const EndpointView &e, Findings &findings) {
    if (!e.is_ours() || !e.link)
        return {};
    NodeRules rules(e.host);
    for (const ip_addr &addr : addresses_in(e.record))
        if (const auto error = TRY(rules.find_foreign(addr, e.record.ifindex)))
            report(findings, error->message, {}, error->hint);
    return {};
}

} // namespace podlane::ctl::doctor
