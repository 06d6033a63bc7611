// SPDX-License-Identifier: MIT
// source list, source show, and path show with a source and a destination: the egress route of what a container sends.
#include "tools/podlanectl/views/source.hpp"

#include "maps/entries.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace podlane::ctl {
namespace {

using RouteEntries = std::vector<std::pair<source_route_key, source_route>>;

const source_route *find(const RouteEntries &routes, std::uint32_t ifindex, const ip_addr &source) {
    const source_route_key wanted{ifindex, source};
    const auto found = std::ranges::find_if(routes, [&](const auto &one) { return same_bytes(one.first, wanted); });
    return found == routes.end() ? nullptr : &found->second;
}

struct SourceRow {
    std::string pod;
    std::string container_id;
    ip_addr addr;
    std::string interface; // in the container
    std::string network;
    std::string uplink;
    std::string next_hop;
    std::vector<std::string> accepted_from; // other interfaces of the container
};

constexpr std::array<Column<SourceRow>, 8> kSourceColumns = {{
    {{"POD", "pod", "pod"}, [](const SourceRow &r) { return text_cell(r.pod, Tone::strong); }},
    {{"", "container", "container_id"}, [](const SourceRow &r) { return text_cell(r.container_id); }},
    {{"ADDRESS", "address", "address"}, [](const SourceRow &r) { return text_cell(to_string(r.addr)); }},
    {{"INTERFACE", "interface", "interface"}, [](const SourceRow &r) { return text_cell(r.interface); }},
    {{"NETWORK", "network", "network"}, [](const SourceRow &r) { return text_cell(r.network); }},
    {{"UPLINK", "uplink", "uplink"}, [](const SourceRow &r) { return text_cell(r.uplink); }},
    {{"NEXT HOP", "next hop", "next_hop"}, [](const SourceRow &r) { return text_cell(r.next_hop); }},
    {{"ALSO FROM", "also from", "also_from"}, [](const SourceRow &r) { return list_cell(r.accepted_from); }},
}};

constexpr const char *kByRoutes = "by route";
constexpr const char *kByRules = "by rule in the container"; // without a host-side veth

SourceRow make_row(const EndpointEntry &entry, const ip_addr &addr, const RouteEntries &routes,
                   const std::vector<EndpointEntry> &all) {
    const auto &[key, record] = entry;
    SourceRow row{pod_words(key, record),
                  std::string(field_text(key.container_id)),
                  addr,
                  std::string(field_text(key.ifname)),
                  std::string(field_text(record.network_name)),
                  kByRoutes,
                  kByRoutes,
                  {}};
    if (record.ifindex == 0)
        row.uplink = row.next_hop = kByRules;
    if (const source_route *route = find(routes, record.ifindex, addr); route != nullptr && route->uplink != 0) {
        row.uplink = interface_name(route->uplink);
        row.next_hop = is_none(route->gateway) ? kByRoutes : to_string(route->gateway);
    }
    for (const auto &[other, peer] : all)
        if (peer.ifindex != record.ifindex && find(routes, peer.ifindex, addr) != nullptr)
            row.accepted_from.emplace_back(field_text(other.ifname));
    return row;
}

Result<output::Table> source_table(const Call &call, const World &world) {
    const auto routes = TRY((read_map<source_route_key, source_route>(world.bpffs, PODLANE_MAP_SOURCE_ROUTES)));
    const auto all = TRY(selected_endpoints({}, world));
    std::vector<SourceRow> rows;
    for (const EndpointEntry &entry : TRY(selected_endpoints(TRY(Selection::of(call)), world)))
        for (const ip_addr &addr : addresses_in(entry.second))
            rows.push_back(make_row(entry, addr, routes, all));
    return output::make_table(kSourceColumns, rows);
}

// One result of path show.
struct EgressRow {
    std::string pod;
    std::string leaves_by; // the container's interface it is sent by
    std::string source;
    std::string destination;
    std::string as_from; // the interface whose network it belongs to
    std::string network;
    std::string path;
    std::string uplink;
    std::string next_hop;
    std::string why;
};

constexpr std::array<Column<EgressRow>, 10> kEgressColumns = {{
    {{"POD", "pod", "pod"}, [](const EgressRow &r) { return text_cell(r.pod, Tone::strong); }},
    {{"SENT BY", "sent by", "sent_by"}, [](const EgressRow &r) { return text_cell(r.leaves_by); }},
    {{"SOURCE", "source", "source"}, [](const EgressRow &r) { return text_cell(r.source); }},
    {{"DESTINATION", "destination", "destination"}, [](const EgressRow &r) { return text_cell(r.destination); }},
    {{"AS FROM", "as from", "as_from"}, [](const EgressRow &r) { return text_cell(r.as_from); }},
    {{"NETWORK", "network", "network"}, [](const EgressRow &r) { return text_cell(r.network); }},
    {{"WAY", "way", "way"}, [](const EgressRow &r) { return text_cell(r.path); }},
    {{"UPLINK", "uplink", "uplink"}, [](const EgressRow &r) { return text_cell(r.uplink); }},
    {{"NEXT HOP", "next hop", "next_hop"}, [](const EgressRow &r) { return text_cell(r.next_hop); }},
    {{"WHY", "why", "why"}, [](const EgressRow &r) { return text_cell(r.why); }},
}};

bool owns(const endpoint &record, const ip_addr &addr) {
    return std::ranges::find(addresses_in(record), addr) != addresses_in(record).end();
}

// The decisions of the programs, in their order.
struct SourceQuestion {
    const ip_addr &source;
    const ip_addr &destination;
    const RouteEntries &routes;
    const std::vector<EndpointEntry> &all;
};

const EndpointEntry *owner_at(std::uint32_t ifindex, const std::vector<EndpointEntry> &all) {
    const auto found = std::ranges::find(all, ifindex, [](const EndpointEntry &one) { return one.second.ifindex; });
    return found == all.end() ? nullptr : &*found;
}

void choose_egress(const SourceQuestion &q, const EndpointEntry &owner, EgressRow &row) {
    const endpoint &record = owner.second;
    row.as_from = field_text(owner.first.ifname);
    row.network = field_text(record.network_name);
    for (const auto &[key, other] : q.all)
        if (other.network == record.network && owns(other, q.destination)) {
            row.path = "direct";
            row.why += "; the destination is " + pod_words(key, other) + " of this node and network";
            return;
        }
    const source_route *route = find(q.routes, record.ifindex, q.source);
    if (route == nullptr || route->uplink == 0) {
        row.path = "route";
        row.why += "; the network has no uplink of its own: the flow cache decides, else the node's routes";
        return;
    }
    const std::uint32_t bits = route->prefix_bits - (is_ipv4(q.source) && route->prefix_bits != 0 ? 96 : 0);
    const bool near = route->prefix_bits != 0 && is_ipv4(q.source) == is_ipv4(q.destination) &&
                      contains(masked({q.source, static_cast<std::uint8_t>(bits)}), q.destination);
    row.path = "uplink";
    row.uplink = interface_name(route->uplink);
    row.next_hop = near ? to_string(q.destination) : is_none(route->gateway) ? kByRoutes : to_string(route->gateway);
    row.why += near ? "; the destination is on the uplink's link" : "; the network has an uplink of its own";
}

EgressRow make_egress_row(const SourceQuestion &q, const EndpointEntry &sender) {
    const auto &[key, record] = sender;
    EgressRow row{pod_words(key, record),
                  std::string(field_text(key.ifname)),
                  to_string(q.source),
                  to_string(q.destination),
                  {},
                  {},
                  "dropped",
                  {},
                  {},
                  "the source is not an address of the container"};
    if (record.ifindex == 0) {
        row.path = "container";
        row.why = "the interface has no host-side veth: the container's own rules and routes decide";
        return row;
    }
    const source_route *peer = find(q.routes, record.ifindex, q.source);
    const EndpointEntry *owner = owns(record, q.source) ? &sender
                                 : peer != nullptr      ? owner_at(peer->ifindex, q.all)
                                                        : nullptr;
    if (owner == nullptr)
        return row;
    row.why = owner == &sender ? "the source is the interface's own"
                               : "the source is of " + std::string(field_text(owner->first.ifname));
    choose_egress(q, *owner, row);
    return row;
}

Result<ip_addr> address_in(const Call &call, Opt option, const char *name) {
    const auto addr = call.has(option) ? parse_ip(*call.value(option)) : Result<ip_addr>(usage_error(""));
    if (!addr)
        return usage_error(std::string("path show needs --") + name + " with an IP address",
                           "as in \"podlanectl path show web-0 --source 192.0.2.9 --destination 198.51.100.1\"",
                           addr.error());
    return *addr;
}

} // namespace

Result<int> show_egress(const Call &call, World &world) {
    const ip_addr source = TRY(address_in(call, Opt::source, "source"));
    const ip_addr destination = TRY(address_in(call, Opt::destination, "destination"));
    const auto routes = TRY((read_map<source_route_key, source_route>(world.bpffs, PODLANE_MAP_SOURCE_ROUTES)));
    const auto all = TRY(selected_endpoints({}, world));
    std::vector<EgressRow> rows;
    for (const EndpointEntry &sender : TRY(selected_endpoints(TRY(Selection::of(call)), world)))
        rows.push_back(make_egress_row({source, destination, routes, all}, sender));
    const output::Table table = output::make_table(kEgressColumns, rows);
    world.print_records(table);
    return 0;
}

namespace {

Result<int> source_list(const Call &call, World &world) {
    world.print(TRY(source_table(call, world)));
    return 0;
}

Result<int> source_show(const Call &call, World &world) {
    const output::Table table = TRY(source_table(call, world));
    world.print_records(table);
    return 0;
}

constexpr std::array<Command, 2> kSourceCommands = {{
    {"list", "List addresses, their interfaces, networks, uplinks and next hops.", kSelect | kRead, kWhich,
     "\"by route\": as the node's routes say. ALSO FROM: the container's other interfaces the address may be\n"
     "sent from.",
     source_list},
    {"show", "Show the same, one field a line.", kSelect | kRead, kWhich, "", source_show},
}};

} // namespace

const Noun kSourceNoun = {"source", "source routing: the network, uplink and next hop of each container address",
                          kSourceCommands};

} // namespace podlane::ctl
