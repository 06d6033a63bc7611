// SPDX-License-Identifier: MIT
#include "plugin/isolation.hpp"

#include "loader/net/conntrack.hpp"
#include "maps/clock.hpp"
#include "maps/entries.hpp"
#include "maps/siphash.hpp"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>

namespace podlane {
namespace {

constexpr std::uint32_t kKeyEntry = 0; // no interface has this number

// Two calls may make it at once: the first one's counts.
Result<SipKey> key_of(const Isolations &isolations) {
    isolation made{};
    if (getrandom(made.groups, sizeof(SipKey), 0) != static_cast<ssize_t>(sizeof(SipKey)))
        return system_error(ErrorCode::bpf, "getrandom", errno);
    auto known = TRY(isolations.find(kKeyEntry));
    if (!known) {
        if (auto put = isolations.insert(kKeyEntry, made); !put && put.error().code != ErrorCode::already_exists)
            return std::move(put).error();
        known = TRY(isolations.find(kKeyEntry));
    }
    return known ? SipKey{known->groups[0], known->groups[1]} : SipKey{made.groups[0], made.groups[1]};
}

Result<isolation> value_of(const Tables &tables, const IsolationEntry &entry) {
    const SipKey key = TRY(key_of(tables.isolations));
    const auto hash = [&](const std::string &name) { return std::max<std::uint64_t>(siphash(key, name), 1); };
    isolation value{};
    if (entry.groups.size() > ISOLATION_GROUPS || entry.accepted.size() > ISOLATION_ACCEPTED)
        return Error{ErrorCode::invalid_network_config, "the container is a member of " +
                                                            std::to_string(entry.groups.size()) + " groups, at most " +
                                                            std::to_string(ISOLATION_GROUPS) + " are supported"};
    value.since_ns = monotonic_ns();
    value.flags = entry.flags;
    std::ranges::transform(entry.groups, value.groups, hash);
    std::ranges::transform(entry.accepted, value.accepted, hash);
    return value;
}

std::uint32_t value_of(const Prefix &prefix, bool accepted) {
    return make_prefix_value(prefix, accepted) | (accepted ? 0U : std::uint32_t{PREFIX_REFUSED});
}

bool same(isolation a, const isolation &b) {
    a.since_ns = b.since_ns;
    return same_bytes(a, b);
}

Error map_gone(const char *map) {
    return {ErrorCode::check_failed, std::string("the endpoint's groups in ") + map + " are gone or wrong",
            "podlanectl repair restores them"};
}

} // namespace

Result<void> forget_connections_of(const Tables &tables, const endpoint &record) {
    net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
    TRY(net::forget_connections_from(netfilter, addresses_in(record)));
    auto entry = TRY(tables.isolations.find(record.ifindex));
    if (!entry)
        return {};
    entry->since_ns = monotonic_ns(); // flows that were cached meanwhile do not count either
    TRY(tables.isolations.update(record.ifindex, *entry));
    return count_isolation_change(tables.watches);
}

Result<bool> remove_isolation(const Tables &tables, std::uint32_t ifindex) {
    const bool removed = TRY(tables.isolations.remove(ifindex));
    if (removed)
        TRY(count_isolation_change(tables.watches));
    return removed;
}

Result<void> update_isolation(const Tables &tables, std::uint32_t ifindex, const IsolationEntry &entry) {
    const isolation wanted = TRY(value_of(tables, entry));
    for (const auto &[prefix, accepted] : entry.remotes)
        TRY(tables.group_cidrs.update(make_allowed_source_key(ifindex, prefix), value_of(prefix, accepted)));
    const auto known = TRY(tables.isolations.find(ifindex));
    if (!known || !same(*known, wanted))
        TRY(tables.isolations.update(ifindex, wanted));
    return count_isolation_change(tables.watches); // a call that was killed may have changed it without counting
}

Result<void> follow_isolation(const Tables &tables, std::uint32_t ifindex, const std::optional<IsolationEntry> &entry) {
    if (entry)
        return update_isolation(tables, ifindex, *entry);
    TRY(tables.isolations.remove(ifindex));
    return count_isolation_change(tables.watches); // also what a killed call has removed
}

Result<void> check_isolation(const Tables &tables, std::uint32_t ifindex, const std::optional<IsolationEntry> &entry) {
    const auto known = TRY(tables.isolations.find(ifindex));
    if (known.has_value() != entry.has_value() || (entry && !same(*known, TRY(value_of(tables, *entry)))))
        return map_gone(PODLANE_MAP_ISOLATION);
    if (!entry)
        return {};
    for (const auto &[prefix, accepted] : entry->remotes)
        if (TRY(tables.group_cidrs.find(make_allowed_source_key(ifindex, prefix))) != value_of(prefix, accepted))
            return map_gone(PODLANE_MAP_GROUP_CIDRS);
    return {};
}

} // namespace podlane
