// SPDX-License-Identifier: MIT
#include "plugin/endpoint.hpp"

#include "loader/host_veth.hpp"
#include "loader/net/namespace.hpp"
#include "plugin/history.hpp"
#include "plugin/isolation.hpp"
#include "plugin/log.hpp"
#include "plugin/plan_json.hpp"
#include "loader/net/link.hpp"
#include "maps/errors.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <set>

namespace podlane {

Error gone(std::string sentence) {
    return {ErrorCode::check_failed, std::move(sentence),
            "podlanectl repair restores what it can; otherwise delete the pod's sandbox, and the runtime creates a "
            "new one"};
}

namespace {

// Clears the remains of a sandbox that died without a DEL; a living owner keeps its address.
Result<void> take_from(const Tables &tables, const ip_addr &addr, std::uint32_t owner) {
    net::Netlink host = TRY(net::Netlink::open());
    const auto link = TRY(net::find_link(host, owner));
    std::string who = "the endpoint of interface " + std::to_string(owner);
    for (const auto &[key, record] : TRY(tables.endpoints.entries())) {
        if (record.ifindex != owner)
            continue;
        if (!TRY(find_host_veth(host, record))) {
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

limit_state state_of(const EndpointEntries &entries) {
    limit_state state{};
    state.group = entries.limit_group;
    return state;
}

// Before the host-side veth's flags say that there are any.
Result<void> put_limits(const Tables &tables, const EndpointEntries &entries, std::uint32_t ifindex) {
    for (const auto &[key, shaped] : entries.exempts)
        TRY(tables.exempts.update(key, shaped));
    if (!entries.limits)
        return {};
    TRY(tables.bandwidths.update(ifindex, *entries.limits));
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
        TRY(tables.limit_states.update({ifindex, direction}, state_of(entries)));
    return {};
}

// Removes the entries that have the ifindex alone as their key.
std::array<Result<bool>, 7> erase_by_ifindex(const Tables &tables, std::uint32_t ifindex) {
    return {tables.interfaces.remove(ifindex),
            remove_isolation(tables, ifindex),
            tables.kept_paths.remove(ifindex),
            tables.bandwidths.remove(ifindex),
            tables.limit_states.remove({ifindex, LIMIT_INGRESS}),
            tables.limit_states.remove({ifindex, LIMIT_EGRESS}),
            tables.counters.remove(ifindex)};
}

// The addresses of a container at one of its host-side veths: of its other interfaces but the one that goes, and its
// own.
std::vector<source_route> remaining_at(const SourceEntries &there, std::uint32_t end, std::uint32_t gone) {
    std::vector<source_route> all;
    for (const auto &[key, route] : there.routes) {
        const bool is_own = route.ifindex == end;
        if (route.ifindex == gone || (key.ifindex != end && !is_own))
            continue;
        if (std::ranges::none_of(all, [&addr = route.source](const auto &one) { return one.source == addr; }))
            all.push_back(route);
    }
    return all;
}

// At the host-side veth of another interface of the container. The slots are numbered by the routes there, which no
// call removes but for an interface that goes: those of the others stay, however far an earlier call has come.
Result<void> forget_at(const Tables &tables, const SourceEntries &there, std::uint32_t end, std::uint32_t gone) {
    SourceEntries kept;
    add_entries_at(end, remaining_at(there, end, gone), kept);
    for (const auto &[key, route] : kept.slots)
        TRY(tables.source_slots.update(key, route));
    for (const auto &[key, route] : there.slots)
        if (key.ifindex == end && !has_slot(kept, key))
            TRY(tables.source_slots.remove(key));
    for (const auto &[key, route] : there.routes)
        if (key.ifindex == end && route.ifindex == gone)
            TRY(tables.source_routes.remove(key));
    return {};
}

// The interface's own entries and its peer interfaces' at its host-side veth, and its own at theirs.
Result<void> erase_source_routes(const Tables &tables, std::uint32_t gone) {
    if (!tables.source_routes.exists())
        return {}; // nothing says which slots remain
    const SourceEntries there{TRY(tables.source_routes.entries()), TRY(tables.source_slots.entries())};
    std::set<std::uint32_t> ends;
    const auto add_ends_of = [&](const auto &entries) {
        for (const auto &[key, route] : entries)
            if (key.ifindex == gone || route.ifindex == gone)
                ends.insert({key.ifindex, route.ifindex});
    };
    add_ends_of(there.routes);
    add_ends_of(there.slots);
    ends.erase(gone);
    for (const std::uint32_t end : ends)
        TRY(forget_at(tables, there, end, gone));
    for (const auto &[key, route] : there.slots)
        if (key.ifindex == gone)
            TRY(tables.source_slots.remove(key));
    for (const auto &[key, route] : there.routes) // last: they name the others, should this have to be repeated
        if (key.ifindex == gone)
            TRY(tables.source_routes.remove(key));
    return {};
}

// Whether this can be the configuration that the endpoint was made by.
bool is_of(const cni::Config *config, const endpoint &record) {
    return config != nullptr && config->allowed_sources.size() == record.allowed_source_count &&
           ((interface_flags_of(*config, 1) ^ record.flags) & (INTERFACE_LIMIT_EXEMPT | INTERFACE_ISOLATED_GROUP)) == 0;
}

// The addresses, and whose sockets are whose, may have a new owner already.
void erase_owned(const Tables &tables, const EndpointEntries &entries, std::uint32_t ifindex, Errors &errors) {
    for (const auto &[key, value] : entries.addresses) {
        const auto owner = tables.addresses.find(key);
        if (!owner)
            errors.add(owner.error());
        else if (*owner && (*owner)->ifindex == ifindex)
            errors.add(tables.addresses.remove(key));
    }
    for (const sender_key &key : entries.senders) {
        const auto owner = tables.senders.find(key);
        if (!owner)
            errors.add(owner.error());
        else if (*owner && **owner == ifindex)
            errors.add(tables.senders.remove(key));
    }
}

void erase_prefixes(const Tables &tables, const EndpointEntries &entries, std::uint32_t ifindex, Errors &errors) {
    for (const auto &[key, shaped] : entries.exempts)
        errors.add(tables.exempts.remove(key));
    for (const Prefix &prefix : entries.allowed_sources)
        errors.add(tables.allowed_sources.remove(make_allowed_source_key(ifindex, prefix)));
    if (entries.isolation)
        for (const auto &[prefix, accepted] : entries.isolation->remotes)
            errors.add(tables.group_cidrs.remove(make_allowed_source_key(ifindex, prefix)));
}

// The kernel keeps the first of them.
void warn_of_repeated_routes(const std::vector<cni::Route> &routes) {
    const auto is_same = [](const cni::Route &a, const cni::Route &b) {
        return a.destination == b.destination && a.table == b.table && a.priority == b.priority;
    };
    for (auto one = routes.begin(); one != routes.end(); ++one)
        if (std::any_of(routes.begin(), one, [&](const cni::Route &before) { return is_same(before, *one); }))
            log(cni::Log::Level::warning,
                "route " + to_string(one->destination) + " is there twice: the first of them counts");
}

// Another network's endpoint with the same address may rightly have it, and those of the node may have gone with it.
Result<bool> has_right_sender(const Tables &tables, const endpoint &record, const sender_key &key) {
    const auto owner = TRY(tables.senders.find(key));
    if (!owner)
        return key.netns != static_cast<std::uint32_t>(record.netns_inode);
    if (*owner == record.ifindex)
        return true;
    const auto other = TRY(tables.interfaces.find(*owner));
    const auto known = other ? TRY(tables.addresses.find({other->network, key.addr})) : std::nullopt;
    return known && known->ifindex == *owner;
}

// Its rates may have been changed.
Result<void> check_group_of(const Tables &tables, std::uint32_t group) {
    if (group == 0)
        return {};
    const auto entry = TRY(tables.limit_groups.find(group));
    if (!entry)
        return gone("the entry of the limit group in " PODLANE_MAP_LIMIT_GROUPS " is gone");
    if (limit_group_number(entry->network, field_text(entry->name)) != group)
        return gone("the entry of the limit group in " PODLANE_MAP_LIMIT_GROUPS " is wrong");
    if (!TRY(tables.bandwidths.find(group)))
        return gone("the entry of the limit group in " PODLANE_MAP_BANDWIDTHS " is gone");
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
        if (!TRY(tables.limit_states.find({group, direction})))
            return gone("the entry of the limit group in " PODLANE_MAP_LIMITS " is gone");
    return {};
}

} // namespace

bool has_prefixes(const endpoint &record) {
    return record.allowed_source_count != 0 ||
           (record.flags & (INTERFACE_LIMIT_EXEMPT | INTERFACE_ISOLATED_GROUP)) != 0;
}

Result<void> log_plan(const cni::Request &request, const Plan &plan, const endpoint &record,
                      const SourceEntries &sources) {
    warn_of_repeated_routes(plan.result.routes);
    if (is_logged(cni::Log::Level::debug))
        log(cni::Log::Level::debug,
            "plan: " + to_json(plan, entries_of(request.config, record, TRY(net::own_netns())), sources, -1));
    return {};
}

Result<void> put_endpoint(const Tables &tables, const cni::Config &config, const endpoint &record) {
    const Step step(STEP_ENTRIES);
    const EndpointEntries entries = entries_of(config, record, TRY(net::own_netns()));
    TRY(tables.counters.update(record.ifindex, counter_shares{}));
    if (entries.keeps_paths)
        TRY(tables.kept_paths.update(record.ifindex, kept_paths{}));
    TRY(put_limits(tables, entries, record.ifindex));
    for (const Prefix &prefix : entries.allowed_sources)
        TRY(tables.allowed_sources.update(make_allowed_source_key(record.ifindex, prefix), make_prefix_value(prefix)));
    if (entries.isolation)
        TRY(update_isolation(tables, record.ifindex, *entries.isolation));
    return tables.interfaces.update(record.ifindex, entries.interface_entry);
}

Result<void> insert_missing_entries(const Tables &tables, const cni::Config &config, const endpoint &record) {
    const Step step(STEP_ENTRIES);
    const std::uint32_t ifindex = record.ifindex;
    const EndpointEntries entries = entries_of(config, record, TRY(net::own_netns()));
    if (!TRY(tables.counters.find(ifindex)))
        TRY(tables.counters.update(ifindex, counter_shares{}));
    if (entries.keeps_paths && !TRY(tables.kept_paths.find(ifindex)))
        TRY(tables.kept_paths.update(ifindex, kept_paths{}));
    for (const auto &[key, shaped] : entries.exempts)
        TRY(tables.exempts.update(key, shaped));
    if (entries.limits && !TRY(tables.bandwidths.find(ifindex)))
        TRY(tables.bandwidths.update(ifindex, *entries.limits));
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        const limit_key key{ifindex, direction};
        if (entries.limits && !TRY(tables.limit_states.find(key)))
            TRY(tables.limit_states.update(key, state_of(entries)));
    }
    for (const Prefix &prefix : entries.allowed_sources)
        TRY(tables.allowed_sources.update(make_allowed_source_key(ifindex, prefix), make_prefix_value(prefix)));
    TRY(follow_isolation(tables, ifindex, entries.isolation));
    return tables.interfaces.update(ifindex, entries.interface_entry);
}

Result<void> put_addresses(const Tables &tables, const endpoint &record) {
    const Step step(STEP_ENTRIES);
    const EndpointEntries entries = entries_of({}, record, TRY(net::own_netns()));
    for (const auto &[key, value] : entries.addresses)
        TRY(put_address(tables, key, value));
    return {};
}

Result<void> put_senders(const Tables &tables, const endpoint &record, Rollback &rollback) {
    const Step step(STEP_ENTRIES);
    for (const sender_key &key : entries_of({}, record, TRY(net::own_netns())).senders)
        TRY(put_over(rollback, "recording whose sockets are whose", tables.senders, key, record.ifindex));
    return {};
}

Result<bool> owns_its_sockets(const Tables &tables, const endpoint &record) {
    for (const ip_addr &addr : addresses_in(record))
        if (TRY(tables.senders.find({static_cast<std::uint32_t>(record.netns_inode), addr})) != record.ifindex)
            return false;
    return true;
}

Result<void> check_entries(const Tables &tables, const cni::Config &config, const endpoint &record) {
    const std::uint32_t ifindex = record.ifindex;
    const std::string of_veth = "the entry of " + std::string(field_text(record.host_ifname)) + " in ";
    const EndpointEntries entries = entries_of(config, record, TRY(net::own_netns()));
    const auto known = TRY(tables.interfaces.find(ifindex));
    if (!known || !same_bytes(*known, entries.interface_entry))
        return gone(of_veth + PODLANE_MAP_INTERFACES " is gone or wrong");
    for (const auto &[key, expected] : entries.addresses) {
        const auto owner = TRY(tables.addresses.find(key));
        if (!owner || !is_entry_of(record, *owner))
            return gone("the entry of " + to_string(key.addr) + " in " PODLANE_MAP_ADDRESSES " is gone or wrong");
    }
    if (!TRY(tables.counters.find(ifindex)))
        return gone(of_veth + PODLANE_MAP_COUNTERS " is gone");
    if (entries.keeps_paths && !TRY(tables.kept_paths.find(ifindex)))
        return gone(of_veth + PODLANE_MAP_KEPT_PATHS " is gone");
    for (const Prefix &prefix : entries.allowed_sources)
        if (TRY(tables.allowed_sources.find(make_allowed_source_key(ifindex, prefix))) != make_prefix_value(prefix))
            return gone("the entry of allowed source " + to_string(prefix) +
                        " in " PODLANE_MAP_SOURCES " is gone or wrong");
    if (entries.limits && !TRY(tables.bandwidths.find(ifindex)))
        return gone(of_veth + PODLANE_MAP_BANDWIDTHS " is gone");
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
        if (entries.limits) {
            const auto state = TRY(tables.limit_states.find({ifindex, direction}));
            if (!state)
                return gone(of_veth + PODLANE_MAP_LIMITS " is gone");
            if (state->group != entries.limit_group)
                return gone(of_veth + PODLANE_MAP_LIMITS " is of another limit group");
        }
    for (const auto &[key, shaped] : entries.exempts)
        if (TRY(tables.exempts.find(key)) != shaped)
            return gone("an " + of_veth.substr(4) + PODLANE_MAP_EXEMPT " is gone or wrong");
    for (const sender_key &key : entries.senders)
        if (!TRY(has_right_sender(tables, record, key)))
            return gone("an " + of_veth.substr(4) + PODLANE_MAP_SENDERS " is gone or wrong");
    return entries.limits ? check_group_of(tables, entries.limit_group) : Result<void>{};
}

Result<void> check_groups(const Tables &tables, const cni::Config &config, const endpoint &record) {
    return check_isolation(tables, record.ifindex, entries_of(config, record, TRY(net::own_netns())).isolation);
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
    errors.add(erase_source_routes(tables, ifindex));
    erase_all_of(tables.addresses, ifindex, by_value, errors);
    erase_all_of(tables.allowed_sources, ifindex, by_key, errors);
    erase_all_of(tables.group_cidrs, ifindex, by_key, errors);
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

Result<void> erase_endpoint(const Tables &tables, const endpoint &record, const cni::Config *of_add) {
    const Step step(STEP_ENTRIES);
    Errors errors;
    const bool is_known = is_of(of_add, record);
    auto netns = net::own_netns();
    const EndpointEntries entries = entries_of(is_known ? *of_add : cni::Config{}, record, netns ? *netns : 0);
    errors.add(std::move(netns));
    erase_owned(tables, entries, record.ifindex, errors);
    if (record.ifindex == 0) {
        // Without a host-side veth there is nothing by its number.
    } else if (!has_prefixes(record) || is_known) {
        if ((record.flags & (INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE)) != 0)
            errors.add(erase_source_routes(tables, record.ifindex));
        erase_prefixes(tables, entries, record.ifindex, errors);
        for (Result<bool> &erased : erase_by_ifindex(tables, record.ifindex))
            errors.add(std::move(erased));
    } else {
        errors.add(erase_interface(tables, record.ifindex));
    }
    return std::move(errors).result();
}

} // namespace podlane
