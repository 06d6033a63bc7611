// SPDX-License-Identifier: MIT
#include "plugin/peer_interfaces.hpp"

#include "maps/entries.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/history.hpp"
#include "plugin/plan.hpp"
#include "loader/net/link.hpp"

#include <algorithm>

namespace podlane {
namespace {

source_route make_source_route(const endpoint &record) {
    source_route route{};
    route.ifindex = record.ifindex;
    route.mtu = record.mtu;
    std::ranges::copy(record.host_mac, route.host_mac);
    std::ranges::copy(record.pod_mac, route.pod_mac);
    return route;
}

// By the uplink to neighbours of the lease's subnet, and past them to the gateway.
Result<void> add_egress_route(source_route &route, const EgressRoute &egress, const cni::Address &own,
                              net::Netlink &host) {
    const bool alone = is_host_prefix(own.prefix);
    route.uplink = egress.uplink.ifindex;
    route.gateway = TRY(gateway_for(egress, own, host)).value_or(ip_addr{});
    route.prefix_bits = alone ? 0 : mapped_length(own.prefix);
    std::ranges::copy(egress.uplink.mac, route.uplink_mac);
    return {};
}

// As they are known already if its network has an egress route.
Result<void> add_routes_of(const endpoint &peer, const Tables &tables, std::vector<source_route> &into) {
    source_route route = make_source_route(peer);
    for (const ip_addr &addr : addresses_in(peer)) {
        route.source = addr;
        into.push_back(TRY(tables.source_routes.find({peer.ifindex, addr})).value_or(route));
    }
    return {};
}

// The MAC may be one that the interface had before: a packet that is handed over is not judged by it.
bool is_same(source_route a, const source_route &b) {
    std::ranges::copy(b.pod_mac, a.pod_mac);
    return same_bytes(a, b);
}

// prevResult has no subnets: what ADD knew of them is taken as it is.
source_route without_unknown(source_route there, const source_route &wanted) {
    if (wanted.uplink != 0 && wanted.prefix_bits == 0)
        there.prefix_bits = 0;
    return there;
}

// Slots behind the entries of the endpoint: of an interface that is gone, or one that they have already. One that an
// ADD or DEL has not finished may have slots there, too.
Result<std::vector<source_slot_key>> stale_slots(const endpoint &record, const SourceEntries &entries,
                                                 const Tables &tables) {
    std::vector<source_slot_key> stale;
    if ((record.flags & INTERFACE_PEERS) == 0) // no program looks there
        return stale;
    for (const std::uint32_t is_ipv4 : {0U, 1U})
        for (std::uint32_t number = 1; number <= SOURCE_SLOTS; ++number) {
            const source_slot_key key{record.ifindex, is_ipv4, number};
            const auto there = has_slot(entries, key) ? std::nullopt : TRY(tables.source_slots.find(key));
            const auto is_same = [&](const auto &entry) {
                return entry.first.ifindex == record.ifindex && entry.second.source == there->source;
            };
            if (there && (std::ranges::any_of(entries.slots, is_same) || !TRY(tables.interfaces.find(there->ifindex))))
                stale.push_back(key);
        }
    return stale;
}

bool takes_part(const endpoint &record, std::uint64_t netns_inode) {
    return record.netns_inode == netns_inode && record.ifindex != 0 && (record.flags & INTERFACE_APART) == 0;
}

} // namespace

Result<void> change_flag(const Tables &tables, const endpoint_key &key, interface_flags flag, bool on) {
    auto record = TRY(tables.endpoints.find(key));
    if (!record)
        return {};
    if (const auto entry = TRY(tables.interfaces.find(record->ifindex)))
        take_learned_mac(*entry, *record);
    record->flags = on ? record->flags | flag : record->flags & ~std::uint32_t{flag};
    TRY(replace_if_there(tables.endpoints, key, *record));
    TRY(replace_if_there(tables.interfaces, record->ifindex, make_interface(*record)));
    for (const ip_addr &addr : addresses_in(*record))
        TRY(replace_if_there(tables.addresses, {record->network, addr}, make_address(*record)));
    return {};
}

Result<std::vector<PeerInterface>> find_peer_interfaces(const cni::Request &request, const Tables &tables,
                                                        net::Netlink &pod, std::uint64_t netns_inode,
                                                        std::vector<net::Link> *foreign_links) {
    const auto find = [&](const endpoint_key &key) { return tables.endpoints.find(key); };
    return find_peer_interfaces(request, find, pod, netns_inode, foreign_links);
}

Result<std::vector<PeerInterface>> find_peer_interfaces(const cni::Request &request, const FindEndpoint &find,
                                                        net::Netlink &pod, std::uint64_t netns_inode,
                                                        std::vector<net::Link> *foreign_links) {
    const Step step(STEP_SIBLINGS);
    std::vector<PeerInterface> peers;
    if (!request.config.source_routing)
        return peers;
    for (const net::Link &link : TRY(net::list_links(pod))) {
        if (link.name == request.ifname || link.name == "lo")
            continue;
        const endpoint_key key = TRY(make_endpoint_key(request.container_id, link.name));
        const auto record = TRY(find(key));
        if (record && takes_part(*record, netns_inode))
            peers.emplace_back(key, *record);
        if ((!record || record->ifindex == 0) && link.up && foreign_links != nullptr)
            foreign_links->push_back(link);
    }
    return peers;
}

Result<std::vector<PeerInterface>> find_whole_peers(const cni::Request &request, const Tables &tables,
                                                    net::Netlink &pod, std::uint64_t netns_inode) {
    std::vector<PeerInterface> whole;
    for (const PeerInterface &peer : TRY(find_peer_interfaces(request, tables, pod, netns_inode)))
        if (TRY(owns_its_sockets(tables, peer.second)))
            whole.push_back(peer);
    return whole;
}

Result<ContainerLinks> find_container_links(const cni::Request &request, const Tables &tables, net::Netlink &pod,
                                            std::uint64_t netns_inode, const std::optional<EgressRoute> &egress_route) {
    ContainerLinks others;
    others.peers = TRY(find_peer_interfaces(request, tables, pod, netns_inode, &others.foreign_links));
    others.flags = source_flags(request.config, others.peers, egress_route);
    if (!others.foreign_links.empty())
        others.flags |= INTERFACE_POD_RULES;
    return others;
}

std::uint32_t source_flags(const cni::Config &config, const std::vector<PeerInterface> &peers,
                           const std::optional<EgressRoute> &egress) {
    return (peers.empty() ? 0U : std::uint32_t{INTERFACE_PEERS}) |
           (egress ? std::uint32_t{INTERFACE_EGRESS_ROUTE} : 0U) |
           (config.source_routing ? 0U : std::uint32_t{INTERFACE_APART});
}

Result<SourceEntries> wanted_source_routes(const endpoint &record, const std::vector<cni::Address> &leased,
                                           const std::vector<PeerInterface> &peers,
                                           const std::optional<EgressRoute> &egress, const Tables &tables,
                                           net::Netlink &host) {
    const Step step(STEP_SIBLINGS);
    SourceEntries entries;
    if (peers.empty() && !egress)
        return entries;
    std::vector<source_route> all;
    source_route route = make_source_route(record);
    for (const cni::Address &own : leased) {
        route.source = own.prefix.addr;
        if (egress) {
            TRY(add_egress_route(route, *egress, own, host));
            entries.routes.push_back({{record.ifindex, own.prefix.addr}, route});
        }
        all.push_back(route);
    }
    if (peers.empty())
        return entries;
    for (const auto &[key, peer] : peers)
        TRY(add_routes_of(peer, tables, all));
    add_entries_at(record.ifindex, all, entries);
    for (const auto &[key, peer] : peers)
        add_entries_at(peer.ifindex, all, entries);
    return entries;
}

Result<void> put_source_routes(const SourceEntries &entries, const std::vector<PeerInterface> &peers,
                               const Tables &tables, Rollback &rollback) {
    const Step step(STEP_ENTRIES);
    for (const auto &[key, route] : entries.routes)
        TRY(put_over(rollback, "source route of " + to_string(route.source), tables.source_routes, key, route));
    for (const auto &[key, route] : entries.slots)
        TRY(put_over(rollback, "source slot of " + to_string(route.source), tables.source_slots, key, route));
    // The peer interfaces' programs look the address up only if this flag is set.
    for (const PeerInterface &peer : peers) {
        if ((peer.second.flags & INTERFACE_PEERS) != 0)
            continue;
        rollback.add("flags of " + std::string(field_text(peer.first.ifname)),
                     [&tables, key = peer.first] { return change_flag(tables, key, INTERFACE_PEERS, false); });
        TRY(change_flag(tables, peer.first, INTERFACE_PEERS, true));
    }
    return {};
}

Result<std::optional<Prefix>> subnet_on_other_link(net::Netlink &pod, const net::RouteSpec &route) {
    const ip_addr &addr = route.destination.addr;
    if (route.gateway || !is_host_prefix(route.destination) || addr == own_gateway(is_ipv4(addr)))
        return std::optional<Prefix>{};
    const auto used = TRY(net::route_to(pod, addr));
    const bool is_subnet = used && used->ifindex != route.ifindex && !used->gateway && used->type == net::kUnicast &&
                           used->destination.length != 0 && !is_host_prefix(used->destination);
    return is_subnet ? std::optional(used->destination) : std::nullopt;
}

Result<void> step_behind_other_link(net::Netlink &pod, net::RouteSpec &route) {
    if (const auto subnet = TRY(subnet_on_other_link(pod, route))) {
        route.destination = *subnet;
        route.priority = kLaterRoutes + route.ifindex;
    }
    return {};
}

Result<void> add_pod_route(net::Netlink &pod, net::RouteSpec route) {
    if (TRY(net::add_route(pod, route)) || route.priority)
        return {};
    route.priority = kLaterRoutes + route.ifindex;
    TRY(net::add_route(pod, route));
    return {};
}

Result<void> remove_stale_slots(const endpoint &record, const SourceEntries &entries, const Tables &tables) {
    for (const source_slot_key &key : TRY(stale_slots(record, entries, tables)))
        TRY(tables.source_slots.remove(key));
    return {};
}

Result<void> check_source_routes(const endpoint &record, const SourceEntries &entries,
                                 const std::vector<PeerInterface> &peers, const Tables &tables) {
    for (const auto &[key, wanted] : entries.routes) {
        const auto there = TRY(tables.source_routes.find(key));
        if (!there || !is_same(without_unknown(*there, wanted), wanted))
            return gone("the source route of " + to_string(wanted.source) + " from interface " +
                        std::to_string(key.ifindex) + " is gone from " PODLANE_MAP_SOURCE_ROUTES " or wrong");
    }
    for (const auto &[key, wanted] : entries.slots) {
        const auto there = TRY(tables.source_slots.find(key));
        if (!there || !is_same(without_unknown(*there, wanted), wanted))
            return gone("slot " + std::to_string(key.number) + " of interface " + std::to_string(key.ifindex) +
                        " is missing from " PODLANE_MAP_SOURCE_SLOTS " or wrong");
    }
    if (const auto stale = TRY(stale_slots(record, entries, tables)); !stale.empty())
        return gone("slot " + std::to_string(stale.front().number) + " of interface " + std::to_string(record.ifindex) +
                    " is left in " PODLANE_MAP_SOURCE_SLOTS);
    for (const auto &[key, peer] : peers)
        if ((peer.flags & INTERFACE_PEERS) == 0)
            return gone("interface " + std::string(field_text(key.ifname)) +
                        " of the container does not know of the others");
    return {};
}

} // namespace podlane
