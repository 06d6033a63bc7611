// SPDX-License-Identifier: MIT
#include "plugin/endpoint.hpp"

#include "loader/pace.hpp"
#include "plugin/history.hpp"
#include "loader/net/link.hpp"
#include "maps/clock.hpp"
#include "maps/errors.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace podlane {
namespace {

// An entry of the table goes again when the ADD fails.
template <typename Table, typename Key>
void undo_put(Rollback &rollback, const std::string &what, const Table &table, Key key) {
    rollback.add(what, [&table, key]() -> Result<void> {
        TRY(table.remove(key));
        return {};
    });
}

// What a sandbox that died without a DEL left is cleared away; a living owner keeps its address.
Result<void> take_from(const Tables &tables, const ip_addr &addr, std::uint32_t owner) {
    net::Netlink host = TRY(net::Netlink::open());
    const auto link = TRY(net::find_link(host, owner));
    std::string who = "the endpoint of interface " + std::to_string(owner);
    for (const auto &[key, record] : TRY(tables.endpoints.entries())) {
        if (record.ifindex != owner)
            continue;
        if (!link || link->name != field_text(record.host_ifname)) {
            TRY(erase_endpoint(tables, record));
            TRY(tables.endpoints.remove(key)); // its lease stays on record
            return {};
        }
        who = "container " + std::string(field_text(key.container_id)) + ", " + std::string(field_text(key.ifname));
    }
    if (!link)
        return erase_interface(tables, owner);
    return Error{ErrorCode::already_exists, "address " + to_string(addr) + " belongs to " + who,
                 "see `podlanectl endpoint list`; the IPAM plugin gave one address to two containers"};
}

Result<void> put_address(const Tables &tables, const address_key &key, const address &value) {
    auto put = tables.addresses.insert(key, value);
    if (put || put.error().code != ErrorCode::already_exists)
        return put;
    const auto owner = TRY(tables.addresses.find(key));
    if (owner && owner->ifindex != value.ifindex && TRY(tables.interfaces.find(owner->ifindex)))
        TRY(take_from(tables, key.addr, owner->ifindex));
    return tables.addresses.update(key, value);
}

template <typename Table> void erase_all_of(const Table &table, std::uint32_t ifindex, auto belongs, Errors &errors) {
    auto all = table.entries();
    if (!all)
        return errors.add(std::move(all).error());
    for (const auto &[key, value] : *all)
        if (belongs(key, value, ifindex))
            errors.add(table.remove(key));
}

std::vector<std::pair<exempt_key, std::uint32_t>> exempts_of(const cni::Config &config, std::uint32_t ifindex) {
    std::vector<std::pair<exempt_key, std::uint32_t>> all;
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        const cni::LimitedPrefixes &of = config.limited_prefixes[direction];
        const auto add = [&](const Prefix &prefix, bool shaped) {
            all.emplace_back(make_exempt_key(ifindex, direction, prefix), make_prefix_value(prefix, shaped));
        };
        for (const Prefix &prefix : of.unshaped)
            add(prefix, false);
        if (!of.shaped.empty())
            for (const Prefix &everything : {Prefix{ipv4_from_host_order(0), 0}, Prefix{}})
                add(everything, false);
        for (const Prefix &prefix : of.shaped)
            add(prefix, true);
    }
    return all;
}

// Before the host-side veth's flags say that there are any.
Result<void> put_limits(const Tables &tables, const cni::Config &config, std::uint32_t ifindex, Rollback &rollback) {
    for (const auto &[key, shaped] : exempts_of(config, ifindex)) {
        TRY(tables.exempts.update(key, shaped));
        undo_put(rollback, "exempting from limits", tables.exempts, key);
    }
    const auto &limits = config.bandwidth;
    if (!limits)
        return {};
    TRY(tables.bandwidths.update(
        ifindex, {limits->ingress_rate, limits->ingress_burst, limits->egress_rate, limits->egress_burst}));
    undo_put(rollback, "storing its bandwidth", tables.bandwidths, ifindex);
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        const limit_key key{ifindex, direction};
        TRY(tables.limit_states.update(key, limit_state{}));
        undo_put(rollback, "starting its limits", tables.limit_states, key);
    }
    return {};
}

// By the pod's own sockets, and by the node's that speak to it.
Result<std::vector<sender_key>> sender_keys(const endpoint &record) {
    const std::uint32_t node = TRY(own_netns());
    std::vector<sender_key> keys;
    for (const ip_addr &addr : addresses_in(record)) {
        keys.push_back({static_cast<std::uint32_t>(record.netns_inode), addr});
        keys.push_back({node, addr});
    }
    return keys;
}

Result<void> put_senders(const Tables &tables, const endpoint &record, Rollback &rollback) {
    for (const sender_key &key : TRY(sender_keys(record))) {
        TRY(put_over(rollback, "recording whose sockets are whose", tables.senders, key, record.ifindex));
    }
    return {};
}

// Addresses may have a new owner already.
Result<void> erase_senders(const Tables &tables, const endpoint &record) {
    for (const sender_key &key : TRY(sender_keys(record)))
        if (const auto owner = TRY(tables.senders.find(key)); owner && *owner == record.ifindex)
            TRY(tables.senders.remove(key));
    return {};
}

// What there is by the ifindex alone.
std::array<Result<bool>, 5> erase_by_ifindex(const Tables &tables, std::uint32_t ifindex) {
    return {tables.interfaces.remove(ifindex), tables.bandwidths.remove(ifindex),
            tables.limit_states.remove({ifindex, LIMIT_INGRESS}), tables.limit_states.remove({ifindex, LIMIT_EGRESS}),
            tables.counters.remove(ifindex)};
}

// Erases the slots of a family from number `first` on.
Result<void> erase_slots(const Tables &tables, std::uint32_t ifindex, std::uint32_t is_ipv4, std::uint32_t first) {
    for (std::uint32_t number = first; number <= SOURCE_SLOTS; ++number)
        if (!TRY(tables.source_slots.remove({ifindex, is_ipv4, number})))
            break;
    return {};
}

// What another host-side veth of the container holds from now on; `others` are the addresses that remain.
Result<void> forget_at(const Tables &tables, const endpoint &record, std::uint32_t end,
                       const std::vector<source_route> &others) {
    SourceEntries kept;
    add_entries_at(end, others, kept);
    for (const auto &[key, route] : kept.routes)
        TRY(tables.source_routes.update(key, route));
    for (const auto &[key, route] : kept.slots)
        TRY(tables.source_slots.update(key, route));
    for (const ip_addr &addr : addresses_in(record))
        TRY(tables.source_routes.remove({end, addr}));
    for (const std::uint32_t is_ipv4 : {0U, 1U}) {
        const auto used =
            std::ranges::count_if(kept.slots, [&](const auto &entry) { return entry.first.is_ipv4 == is_ipv4; });
        TRY(erase_slots(tables, end, is_ipv4, static_cast<std::uint32_t>(used) + 1));
    }
    return {};
}

// Its own addresses and those of its siblings at its host-side veth, and its own at theirs.
Result<void> erase_source_routes(const Tables &tables, const endpoint &record) {
    std::vector<source_route> others;
    std::vector<source_route_key> own;
    for (const source_route_key &key : TRY(tables.source_routes.keys())) {
        if (key.ifindex != record.ifindex)
            continue;
        const auto route = TRY(tables.source_routes.find(key));
        if (route && route->ifindex != record.ifindex)
            others.push_back(*route);
        own.push_back(key);
    }
    for (const std::uint32_t is_ipv4 : {0U, 1U})
        TRY(erase_slots(tables, record.ifindex, is_ipv4, 1));
    std::vector<std::uint32_t> ends;
    for (const source_route &route : others)
        if (std::ranges::find(ends, route.ifindex) == ends.end())
            ends.push_back(route.ifindex);
    for (const std::uint32_t end : ends)
        TRY(forget_at(tables, record, end, others));
    for (const source_route_key &key : own) // last: they name the others, should this have to be repeated
        TRY(tables.source_routes.remove(key));
    return {};
}

} // namespace

void add_entries_at(std::uint32_t ifindex, const std::vector<source_route> &all, SourceEntries &entries) {
    std::array<std::uint32_t, 2> numbers{};
    // Whoever asks finds the same order.
    std::vector<source_route> sorted = all;
    std::ranges::sort(sorted, [](const source_route &a, const source_route &b) {
        return a.ifindex != b.ifindex ? a.ifindex < b.ifindex : std::memcmp(&a.source, &b.source, sizeof a.source) < 0;
    });
    const bool alone = std::ranges::all_of(all, [&](const source_route &one) { return one.ifindex == ifindex; });
    const auto has_more = [&](bool ipv4) {
        return std::ranges::count_if(all, [&](const source_route &one) {
                   return one.ifindex == ifindex && is_ipv4(one.source) == ipv4;
               }) > 1;
    };
    for (const source_route &route : sorted) {
        const bool ipv4 = is_ipv4(route.source);
        if (route.ifindex != ifindex)
            entries.routes.push_back({{ifindex, route.source}, route});
        else if (alone || !has_more(ipv4))
            continue;
        std::uint32_t &number = numbers[ipv4 ? 1 : 0];
        if (++number <= SOURCE_SLOTS)
            entries.slots.push_back({{ifindex, ipv4 ? 1U : 0U, number}, route});
    }
}

Result<endpoint> make_endpoint(const cni::Request &request, const EndpointFacts &facts) {
    endpoint record{};
    record.created_ns = realtime_ns();
    record.netns_inode = facts.netns_inode;
    record.ifindex = facts.ifindex;
    record.pod_ifindex = facts.pod_ifindex;
    record.network = network_id(request.config.name);
    record.mtu = facts.mtu;
    record.flags = facts.flags;
    record.mode = static_cast<std::uint8_t>(facts.mode);
    record.attach = facts.hook_kind == HookKind::tcx ? ENDPOINT_TCX : ENDPOINT_CLSACT;
    record.masquerade = static_cast<std::uint8_t>(facts.masquerade);
    record.address_count = static_cast<std::uint8_t>(facts.addresses.size());
    record.allowed_source_count = static_cast<std::uint8_t>(request.config.allowed_sources.size());
    std::ranges::copy(facts.pod_mac, record.pod_mac);
    std::ranges::copy(facts.host_mac, record.host_mac);
    record.link_local = facts.link_local;
    std::ranges::copy(facts.addresses, record.addresses);
    const bool fits = set_field(record.host_ifname, facts.host_ifname) &&
                      set_field(record.network_name, request.config.name) &&
                      set_field(record.pod_name, request.pod.name) && set_field(record.pod_namespace, request.pod.ns) &&
                      set_field(record.pod_uid, request.pod.uid);
    if (!fits)
        return Error{ErrorCode::invalid_environment, "a name of the pod or the network is too long"};
    return record;
}

Result<void> put_endpoint(const Tables &tables, const cni::Request &request, const endpoint &record,
                          Rollback &rollback) {
    const Step step(STEP_ENTRIES);
    const endpoint_key key = TRY(make_endpoint_key(request.container_id, request.ifname));
    TRY(tables.endpoints.insert(key, record));
    undo_put(rollback, "recording the endpoint", tables.endpoints, key);
    TRY(tables.counters.insert_zero(record.ifindex));
    undo_put(rollback, "making its counters", tables.counters, record.ifindex);
    TRY(put_limits(tables, request.config, record.ifindex, rollback));
    for (const Prefix &prefix : request.config.allowed_sources) {
        const allowed_source_key source = make_allowed_source_key(record.ifindex, prefix);
        TRY(tables.allowed_sources.update(source, make_prefix_value(prefix)));
        undo_put(rollback, "allowing source " + to_string(prefix), tables.allowed_sources, source);
    }
    TRY(tables.interfaces.update(record.ifindex, make_interface(record)));
    undo_put(rollback, "telling the programs of the host-side veth", tables.interfaces, record.ifindex);
    return {};
}

Result<void> put_missing_entries(const Tables &tables, const cni::Config &config, const endpoint &record) {
    const Step step(STEP_ENTRIES);
    const std::uint32_t ifindex = record.ifindex;
    if (TRY(tables.counters.find(ifindex)).empty())
        TRY(tables.counters.insert_zero(ifindex));
    for (const auto &[key, shaped] : exempts_of(config, ifindex))
        TRY(tables.exempts.update(key, shaped));
    if (const auto &limits = config.bandwidth; limits && !TRY(tables.bandwidths.find(ifindex)))
        TRY(tables.bandwidths.update(
            ifindex, {limits->ingress_rate, limits->ingress_burst, limits->egress_rate, limits->egress_burst}));
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        const limit_key key{ifindex, direction};
        if (config.bandwidth && !TRY(tables.limit_states.find(key)))
            TRY(tables.limit_states.update(key, limit_state{}));
    }
    for (const Prefix &prefix : config.allowed_sources)
        TRY(tables.allowed_sources.update(make_allowed_source_key(ifindex, prefix), make_prefix_value(prefix)));
    return tables.interfaces.update(ifindex, make_interface(record));
}

Result<void> put_addresses(const Tables &tables, const endpoint &record, Rollback &rollback) {
    const Step step(STEP_ENTRIES);
    for (const ip_addr &addr : addresses_in(record)) {
        const address_key key{record.network, addr};
        TRY(put_address(tables, key, make_address(record)));
        undo_put(rollback, "putting address " + to_string(addr), tables.addresses, key);
    }
    return put_senders(tables, record, rollback); // the addresses are its own now
}

Result<bool> has_limit_entries(const Tables &tables, const cni::Config &config, const endpoint &record) {
    for (const auto &[key, shaped] : exempts_of(config, record.ifindex))
        if (!TRY(tables.exempts.find(key)))
            return false;
    // The node's may have become those of another network's endpoint with the same address.
    for (const ip_addr &addr : addresses_in(record))
        if (!TRY(tables.senders.find({static_cast<std::uint32_t>(record.netns_inode), addr})))
            return false;
    return true;
}

Result<void> erase_interface(const Tables &tables, std::uint32_t ifindex) {
    const Step step(STEP_ENTRIES);
    Errors errors;
    const auto by_value = [](const address_key &, const address &value, std::uint32_t wanted) {
        return value.ifindex == wanted;
    };
    const auto by_key = [](const allowed_source_key &key, std::uint32_t, std::uint32_t wanted) {
        return key.ifindex == make_allowed_source_key(wanted, {}).ifindex;
    };
    const auto by_either = [](const auto &key, const source_route &value, std::uint32_t wanted) {
        return key.ifindex == wanted || value.ifindex == wanted;
    };
    erase_all_of(tables.source_routes, ifindex, by_either, errors);
    erase_all_of(tables.source_slots, ifindex, by_either, errors);
    erase_all_of(tables.addresses, ifindex, by_value, errors);
    erase_all_of(tables.allowed_sources, ifindex, by_key, errors);
    erase_all_of(
        tables.exempts, ifindex,
        [](const exempt_key &key, std::uint32_t, std::uint32_t wanted) { return ntohl(key.ifindex) == wanted; },
        errors);
    erase_all_of(
        tables.senders, ifindex,
        [](const sender_key &, std::uint32_t owner, std::uint32_t wanted) { return owner == wanted; }, errors);
    for (Result<bool> &erased : erase_by_ifindex(tables, ifindex))
        errors.add(std::move(erased));
    return std::move(errors).result();
}

Result<void> erase_endpoint(const Tables &tables, const endpoint &record) {
    const Step step(STEP_ENTRIES);
    Errors errors;
    for (const ip_addr &addr : addresses_in(record)) {
        const address_key owned{record.network, addr};
        const auto owner = tables.addresses.find(owned);
        if (!owner)
            errors.add(owner.error());
        else if (*owner && (*owner)->ifindex == record.ifindex)
            errors.add(tables.addresses.remove(owned));
    }
    errors.add(erase_senders(tables, record));
    if ((record.flags & (INTERFACE_SIBLINGS | INTERFACE_WAY)) != 0)
        errors.add(erase_source_routes(tables, record));
    if (record.ifindex == 0) {
        // Without a host-side veth there is nothing by its number.
    } else if (record.allowed_source_count == 0 && (record.flags & INTERFACE_LIMIT_EXEMPT) == 0) {
        for (Result<bool> &erased : erase_by_ifindex(tables, record.ifindex))
            errors.add(std::move(erased));
    } else {
        errors.add(erase_interface(tables, record.ifindex));
    }
    return std::move(errors).result();
}

} // namespace podlane
