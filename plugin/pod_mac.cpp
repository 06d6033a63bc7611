// SPDX-License-Identifier: MIT
#include "plugin/pod_mac.hpp"

#include "loader/net/neighbour.hpp"
#include "maps/entries.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/log.hpp"
#include "plugin/plan.hpp"

#include <algorithm>
#include <limits>

namespace podlane {
namespace {

// As the other interfaces of the container, and the programs of all of them, know the MTU.
template <typename Table> Result<void> store_mtu(const Table &table, const endpoint &record) {
    const auto is_behind = [&](const source_route &route) {
        return route.ifindex == record.ifindex && route.mtu != record.mtu;
    };
    for (const auto &[key, route] : TRY(table.entries())) {
        auto now = is_behind(route) ? TRY(table.find(key)) : std::nullopt; // a DEL may renumber slots meanwhile
        if (!now || !is_behind(*now))
            continue;
        now->mtu = record.mtu;
        TRY(replace_if_there(table, key, *now));
    }
    return {};
}

// The entries first: what dies in between is found again by the record.
Result<void> store(const Tables &tables, net::Netlink &host, const endpoint_key &key, const endpoint &record) {
    const Mac mac = to_mac(record.pod_mac);
    TRY(tables.interfaces.replace(record.ifindex, make_interface(record)));
    for (const ip_addr &addr : addresses_in(record)) {
        if (const auto owner = TRY(tables.addresses.find({record.network, addr}));
            owner && owner->ifindex == record.ifindex)
            TRY(tables.addresses.replace({record.network, addr}, make_address(record)));
        if ((record.flags & INTERFACE_GATEWAY) != 0)
            TRY(net::put_neighbour(host, record.ifindex, addr, mac));
    }
    if ((record.flags & (INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE)) != 0) {
        TRY(store_mtu(tables.source_routes, record));
        TRY(store_mtu(tables.source_slots, record));
    }
    TRY(tables.endpoints.replace(key, record));
    log(cni::Log::Level::info, "the interface behind " + std::string(field_text(record.host_ifname)) + " has MAC " +
                                   to_string(mac) + " and MTU " + std::to_string(record.mtu) + " now");
    return {};
}

// The container may raise its MTU, but not what leaves by its network's own uplink.
Result<std::uint32_t> largest_mtu(const Tables &tables, net::Netlink &host, const endpoint &record) {
    if ((record.flags & INTERFACE_EGRESS_ROUTE) == 0)
        return std::numeric_limits<std::uint32_t>::max();
    const auto route = TRY(tables.source_routes.find({record.ifindex, record.addresses[0]}));
    const auto uplink = route ? TRY(net::find_link(host, route->uplink)) : std::nullopt;
    return std::max(record.mtu, uplink ? uplink->mtu : 0);
}

// Packets that are too large for the container's interface would be lost in the veth pair.
Result<bool> follow_mtu(const Tables &tables, net::Netlink &host, const net::Link &pod, endpoint &record) {
    const std::uint32_t mtu = std::min(pod.mtu, TRY(largest_mtu(tables, host, record)));
    const bool is_own = (record.flags & INTERFACE_GATEWAY) != 0;
    if (mtu == record.mtu || (is_own && !has_mtu_for(addresses_in(record), mtu)))
        return false;
    if (is_own)
        TRY(net::set_link(host, record.ifindex, {.mtu = mtu}));
    record.mtu = mtu;
    return true;
}

} // namespace

Result<void> follow_announced_mac(const Tables &tables, net::Netlink &host, const endpoint_key &key) {
    auto record = TRY(tables.endpoints.find(key));
    if (!record || record->ifindex == 0)
        return {};
    const auto entry = TRY(tables.interfaces.find(record->ifindex));
    return entry && take_learned_mac(*entry, *record) ? store(tables, host, key, *record) : Result<void>{};
}

Result<void> follow_pod_link(const Tables &tables, net::Netlink &host, const endpoint_key &key, endpoint &record,
                             net::Netlink &pod, const std::string &ifname) {
    if (const auto entry = TRY(tables.interfaces.find(record.ifindex)))
        take_learned_mac(*entry, record);
    const auto link = TRY(net::find_link(pod, ifname));
    if (!link || (record.flags & INTERFACE_ROUTED) == 0 || record.ifindex == 0 || record.pod_ifindex != link->ifindex)
        return {};
    bool is_changed = TRY(follow_mtu(tables, host, *link, record));
    if (!std::ranges::equal(link->mac, record.pod_mac)) {
        record.flags |= INTERFACE_MAC_LEARNED;
        std::ranges::copy(link->mac, record.pod_mac);
        is_changed = true;
    }
    return is_changed ? store(tables, host, key, record) : Result<void>{};
}

} // namespace podlane
