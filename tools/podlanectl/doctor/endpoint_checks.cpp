// SPDX-License-Identifier: MIT
// doctor: an endpoint's host-side veth, programs and map entries.
#include "loader/attach.hpp"
#include "loader/host_veth.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "maps/entries.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/reinstate.hpp"
#include "plugin/verify.hpp"
#include "tools/podlanectl/doctor/host_veth_checks.hpp"
#include "tools/podlanectl/doctor/pod_checks.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <algorithm>
#include <array>

namespace podlane::ctl::doctor {
namespace {

// The verifier's findings, unless a check before has a name for them; and why there are none.
Result<void> look_at_plan(const EndpointView &e, Findings &findings) {
    TRY(e.unread_record);
    const bool has_failed = !e.verified && e.verified.error().code != ErrorCode::check_failed;
    if (has_failed && e.verified.error().system_errno != 0)
        return e.verified.error();
    if (e.verified)
        return {};
    report_by_record(findings, e.verified.error().message);
    if (e.verified.error().hint != gone("").hint) // of what others made
        findings.back().remedy = e.verified.error().hint;
    return {};
}

Result<void> look_at_link(const EndpointView &e, Findings &findings) {
    if (!e.has_host_veth())
        return {};
    if (!e.link)
        report(findings, "the host-side veth " + e.host_ifname() + " is gone");
    else if (is_renamed(*e.link, e.record))
        report_by_record(findings, "the host-side veth " + e.host_ifname() + " is called " + e.link->name + " now");
    else if (!e.link->up)
        report(findings, "the host-side veth " + e.host_ifname() + " is down", on_host(set_up(e.record.ifindex)));
    return {};
}

Result<void> look_at_mac(const EndpointView &e, Findings &findings) {
    if (!e.is_ours() || !e.link || std::ranges::equal(e.link->mac, e.record.host_mac))
        return {};
    const Mac mac = to_mac(e.record.host_mac);
    report(findings,
           "the host-side veth " + e.host_ifname() + " has MAC " + to_string(e.link->mac) + ", expected " +
               to_string(mac),
           on_host([mac, ifindex = e.record.ifindex](net::Netlink &host) {
               return net::set_link(host, ifindex, {.mac = mac});
           }));
    return {};
}

Result<void> look_at_programs(const EndpointView &e, Findings &findings) {
    if (!e.link)
        return {};
    const std::string &root = e.node.world.bpffs;
    for (const HookProgram &planned : kPodPrograms) {
        const std::uint32_t id = planned.hook == Hook::ingress ? e.node.live->from_pod_id : e.node.live->to_pod_id;
        auto checked = check_hook(e.record, planned, id, TRY(e.hooks.attached(e.record.ifindex, planned.hook)));
        if (checked)
            continue;
        const HookKind kind = hook_kind_of(e.record.attach);
        const auto slot = check_slot(e.record.ifindex, kind);
        report(
            findings, std::move(checked).error().message,
            [root, planned, kind, ifindex = e.record.ifindex]() -> Result<void> {
                const Fd program = TRY(open_program(root, planned.name));
                return attach(ifindex, planned.hook, kind, program.get());
            },
            slot ? "" : slot.error().hint);
    }
    return {};
}

Result<void> look_at_interface_entry(const EndpointView &e, Findings &findings) {
    if (!e.has_host_veth())
        return {};
    const std::string &root = e.node.world.bpffs;
    const interface expected = make_interface(e.record);
    const auto entry = TRY(e.node.live->interfaces.find(e.record.ifindex));
    if (!entry || !same_bytes(*entry, expected)) {
        report(findings,
               "the entry of " + e.host_ifname() + " in " PODLANE_MAP_INTERFACES " is " + (entry ? "wrong" : "gone"),
               [root, expected, ifindex = e.record.ifindex]() -> Result<void> {
                   return TRY(open_interfaces(root, Access::read_write)).update(ifindex, expected);
               });
        findings.back().by_record = !entry && e.link; // the other maps may be new as well
    }
    if (!TRY(e.node.live->counters.find(e.record.ifindex)))
        report(findings, "the entry of " + e.host_ifname() + " in " PODLANE_MAP_COUNTERS " is gone",
               [root, ifindex = e.record.ifindex]() -> Result<void> {
                   return TRY(open_counters(root, Access::read_write)).update(ifindex, counter_shares{});
               });
    return {};
}

// Whether the IPAM plugin has given the address to the endpoint of that interface too.
Result<bool> has_address(const EndpointView &e, std::uint32_t ifindex, const ip_addr &addr) {
    return std::ranges::any_of(TRY(e.node.tables->endpoints.entries()), [&](const EndpointEntry &one) {
        return one.second.ifindex == ifindex && one.second.network == e.record.network &&
               std::ranges::find(addresses_in(one.second), addr) != addresses_in(one.second).end();
    });
}

// An address that belongs to another endpoint now is not repaired.
Result<void> look_at_address_entries(const EndpointView &e, Findings &findings) {
    if (!e.has_host_veth())
        return {};
    const std::string &root = e.node.world.bpffs;
    const address expected = make_address(e.record);
    for (const ip_addr &addr : addresses_in(e.record)) {
        const address_key key{e.record.network, addr};
        const auto owner = TRY(e.node.live->addresses.find(key));
        if (owner && is_entry_of(e.record, *owner))
            continue;
        Finding &finding = findings.emplace_back();
        finding.what = "the entry of " + to_string(addr) + " in " PODLANE_MAP_ADDRESSES " is " +
                       (!owner                               ? "gone"
                        : owner->ifindex == expected.ifindex ? "wrong"
                                                             : "another interface's");
        const bool is_lost = !owner || owner->ifindex == expected.ifindex ||
                             !TRY(net::find_link(e.host, owner->ifindex)) || !TRY(has_address(e, owner->ifindex, addr));
        if (is_lost && e.link)
            finding.repair = [root, key, expected]() -> Result<void> {
                return TRY(open_addresses(root, Access::read_write)).update(key, expected);
            };
        else
            finding.remedy = "see \"podlanectl endpoint list --address " + to_string(addr) +
                             "\"; the IPAM plugin gave one address to two containers";
    }
    return {};
}

Result<void> look_at_requested_entries(const EndpointView &e, Findings &findings) {
    const LiveState &live = *e.node.live;
    const auto found = live.allowed_sources.find(e.record.ifindex);
    const std::size_t count = found == live.allowed_sources.end() ? 0 : found->second;
    if (std::cmp_less(count, e.record.allowed_source_count))
        report_by_record(findings, std::to_string(count) + " of " + std::to_string(e.record.allowed_source_count) +
                                       " allowed sources of " + e.host_ifname() + " are in " PODLANE_MAP_SOURCES);
    for (const ip_addr &addr : addresses_in(e.record))
        if ((e.record.flags & INTERFACE_EGRESS_ROUTE) != 0 && !TRY(live.source_routes.find({e.record.ifindex, addr})))
            report_by_record(findings,
                             "the egress route of " + to_string(addr) + " is missing in " PODLANE_MAP_SOURCE_ROUTES);
    if (!e.has_host_veth()) // no program needs its network
        return {};
    const auto network = TRY(live.networks.find(e.record.network));
    const std::string name(field_text(e.record.network_name));
    if (!network)
        report_by_record(findings, "the entry of network " + name + " in " PODLANE_MAP_NETWORKS " is gone");
    else if (lacks_uplink_programs(e.record, *network))
        report_by_record(findings, "network " + name + " has no programs on uplinks");
    return {};
}

// Of an endpoint without a record, nothing else compares it.
Result<void> look_at_masquerade(const EndpointView &e, Findings &findings) {
    const auto by = static_cast<endpoint_masquerade>(e.record.masquerade);
    const std::string network(field_text(e.record.network_name));
    if (e.disk || by == ENDPOINT_MASQUERADE_NONE || TRY(is_masqueraded(by, network, addresses_in(e.record))))
        return {};
    if (!e.node.records)
        return e.node.records.error();
    report(findings, masquerade_is_gone(e.record),
           TRY(masquerading_as_others(e.record, e.node.world.bpffs, *e.node.records, e.node.living)));
    return {};
}

Result<void> look_at_record(const EndpointView &e, Findings &findings) {
    if (!e.disk && e.unread_record)
        report(findings,
               "its record in " + e.node.state_directory + (e.is_torn ? " is torn" : " is gone, or cannot be read"));
    return {};
}

constexpr std::string_view kNewSandbox = "delete the pod's sandbox; the runtime creates a new one";
constexpr std::string_view kOtherRecords =
    "if the configuration has another stateDir, name that with --state-dir; else delete the pod's sandbox; the runtime "
    "creates a new one";
constexpr std::string_view kFix = "podlanectl doctor --fix";
constexpr std::string_view kRepair = "podlanectl repair; if that fails, delete the pod's sandbox";

constexpr std::array<Check, 17> kEndpointChecks = {{
    {"record", Severity::notice,
     "the file was removed, or another program or a full disk tore it: CHECK and repair compare the endpoint with "
     "less, and if the maps are lost as well, nothing "
     "knows what its ADD made",
     kOtherRecords, nullptr, &look_at_record},
    {"link", Severity::wrong,
     "the container disappeared without a DEL, or the interface was set down, renamed or deleted",
     "podlanectl gc, or the runtime's next GC; if the container is running, delete its sandbox", nullptr,
     &look_at_link},
    {"host-mac", Severity::wrong,
     "udev, systemd or another agent changed it: the pod sends to the old MAC, which the host stack treats as not for "
     "it",
     kFix, nullptr, &look_at_mac},
    {"pod-link", Severity::wrong, "a process in the container changed its interface", kNewSandbox, nullptr,
     &look_at_pod_link},
    {"pod-address", Severity::wrong,
     "a process in the container removed it, switched IPv6 off or made its MTU too small: packets to it are rejected",
     kNewSandbox, nullptr, &look_at_addresses},
    {"pod-neighbour", Severity::wrong,
     "a process in the container flushed its neighbours: the first packet waits for address resolution", kFix, nullptr,
     &look_at_pod_neighbours},
    {"pod-route", Severity::wrong, "a process in the container changed its routes: their destinations are unreachable",
     kNewSandbox, nullptr, &look_at_pod_routes},
    {"host-ipv6", Severity::wrong,
     "another program switched IPv6 off on it, or removed its addresses: the pod does not reach its IPv6 gateway", kFix,
     nullptr, &look_at_host_ipv6},
    {"host-neighbour", Severity::wrong,
     "the host's neighbours were flushed: packets on the slow path wait for the pod to answer", kFix, nullptr,
     &look_at_host_neighbours},
    {"host-route", Severity::wrong,
     "the host's routes were flushed (a routing daemon at its start?): the host stack does not reach the pod", kFix,
     nullptr, &look_at_host_routes},
    {"host-rule", Severity::wrong,
     "an administrator or another agent added the routing rule: what takes the slow path does not reach the pod", "",
     nullptr, &look_at_host_rules},
    {"interface-entry", Severity::wrong, "the programs have no or wrong data for the endpoint", kFix, nullptr,
     &look_at_interface_entry},
    {"address-entry", Severity::wrong, "the address is not reached on the fast path, or its owner is ambiguous", kFix,
     nullptr, &look_at_address_entries},
    {"asked-entry", Severity::wrong, "state that the configuration requested at ADD is missing", kRepair, nullptr,
     &look_at_requested_entries},
    // After the entries: until these are repaired, the programs would drop packets.
    {"program", Severity::wrong, "the hook was cleared, or has another version: fast path and anti-spoofing are lost",
     kFix, nullptr, &look_at_programs},
    {"masquerade", Severity::wrong,
     "another program flushed the node's rules: what the pod sends out of the cluster has the pod's own address",
     kNewSandbox, nullptr, &look_at_masquerade},
    {kPlanCheck, Severity::wrong,
     "another program of the node or in the container removed or changed what the ADD made", kRepair, nullptr,
     &look_at_plan},
}};

} // namespace

std::span<const Check> endpoint_checks() { return kEndpointChecks; }

} // namespace podlane::ctl::doctor
