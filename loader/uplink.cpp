// SPDX-License-Identifier: MIT
#include "loader/uplink.hpp"

#include "loader/net/link.hpp"
#include "loader/object.hpp"
#include "maps/text.hpp"

#include <algorithm>
#include <cerrno>

namespace podlane {
namespace {

Error too_many_networks(std::uint32_t ifindex) {
    const auto name = net::link_name(ifindex);
    return {
        ErrorCode::map_full,
        (name && !name->empty() ? *name : "interface " + std::to_string(ifindex)) + " is already the uplink of " +
            std::to_string(UPLINK_NETWORKS) + " networks, the most there can be",
        "set \"fastPath\" to \"off\" for some that have no \"isolation\", or name another interface in \"uplinks\""};
}

bool lists(const uplink &entry, std::uint32_t network) {
    return std::ranges::find(entry.networks, network) != std::end(entry.networks);
}

Result<bool> has_only(std::uint32_t ifindex, Hook hook, const Fd &program) {
    const auto ours = TRY(attached(ifindex, hook));
    return ours.size() == 1 && ours.front().program_id == TRY(program_facts(program.get())).id;
}

// Interfaces whose entry lists the network.
Result<std::vector<std::uint32_t>> carriers_of(const UplinkTables &tables, std::uint32_t network) {
    std::vector<std::uint32_t> all;
    for (const auto &[ifindex, entry] : TRY(tables.uplinks.entries()))
        if (lists(entry, network))
            all.push_back(ifindex);
    return all;
}

Result<void> put_uplink(const UplinkTables &tables, std::uint32_t ifindex, const uplink &entry, HookKind kind) {
    if (!TRY(tables.counters.find(ifindex)))
        TRY(tables.counters.update(ifindex, counter_shares{}));
    TRY(attach(ifindex, Hook::egress, kind, tables.to_uplink.get()));
    TRY(attach(ifindex, Hook::ingress, kind, tables.from_uplink.get()));
    return tables.uplinks.update(ifindex, entry);
}

// Entries without networks, which calls have left that were killed.
Result<void> remove_unused_uplinks(const UplinkTables &tables) {
    for (const auto &[ifindex, entry] : TRY(tables.uplinks.entries()))
        if (entry.networks[0] == 0)
            TRY(remove_uplink(tables, ifindex));
    return {};
}

} // namespace

Result<UplinkTables> UplinkTables::open(const std::string &root, Access access) {
    const auto program = [&](const char *name) {
        auto fd = open_program(root, name);
        const bool may_lack = access == Access::if_present && !fd &&
                              (fd.error().code == ErrorCode::missing || fd.error().system_errno == EACCES);
        return may_lack ? Result<Fd>(Fd()) : std::move(fd);
    };
    return UplinkTables{TRY(open_uplinks(root, access)), TRY(open_counters(root, access)),
                        TRY(program(PODLANE_PROGRAM_FROM_UPLINK)), TRY(program(PODLANE_PROGRAM_TO_UPLINK))};
}

Result<bool> has_programs(const UplinkTables &tables, std::uint32_t ifindex) {
    return TRY(has_only(ifindex, Hook::ingress, tables.from_uplink)) &&
           TRY(has_only(ifindex, Hook::egress, tables.to_uplink));
}

Result<bool> carries(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network) {
    const auto entry = TRY(tables.uplinks.find(ifindex));
    return entry && lists(*entry, network) && TRY(has_programs(tables, ifindex));
}

Result<void> add_uplink(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network, HookKind kind) {
    const auto there = TRY(tables.uplinks.find(ifindex));
    uplink entry = there.value_or(uplink{});
    if (!lists(entry, network)) {
        auto *const slot = std::ranges::find(entry.networks, 0U);
        if (slot == std::end(entry.networks))
            return too_many_networks(ifindex);
        *slot = network;
    }
    kind = TRY(usable_kind(ifindex, kind));
    // An entry without networks says what has to be removed again, should this call be killed.
    if (!there)
        TRY(tables.uplinks.update(ifindex, uplink{}));
    auto put = put_uplink(tables, ifindex, entry, kind);
    // An entry without networks leads to nothing: roll back.
    if (!put && (!there || there->networks[0] == 0))
        if (auto erased = remove_uplink(tables, ifindex); !erased)
            put.error().message += "; and rolling back: " + erased.error().message;
    return put;
}

Result<void> remove_uplink(const UplinkTables &tables, std::uint32_t ifindex) {
    // Without networks no packet leaves by it; the entry stays until all the rest is removed.
    TRY(tables.uplinks.update(ifindex, uplink{}));
    const bool has_pins = tables.from_uplink && tables.to_uplink;
    if (!tables.is_shared || (has_pins && TRY(has_programs(tables, ifindex)))) {
        TRY(detach(ifindex, Hook::ingress));
        TRY(detach(ifindex, Hook::egress));
    }
    TRY(tables.counters.remove(ifindex));
    TRY(tables.uplinks.remove(ifindex));
    return {};
}

Result<void> remove_network_from_uplink(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network) {
    auto entry = TRY(tables.uplinks.find(ifindex));
    if (!entry || !lists(*entry, network))
        return {};
    // The list has no holes: 0 ends it.
    const auto rest = std::remove(std::begin(entry->networks), std::end(entry->networks), network);
    std::fill(rest, std::end(entry->networks), 0U);
    return entry->networks[0] == 0 ? remove_uplink(tables, ifindex) : tables.uplinks.update(ifindex, *entry);
}

Result<void> remove_network_from_uplinks(const UplinkTables &tables, std::uint32_t network) {
    for (const std::uint32_t ifindex : TRY(carriers_of(tables, network)))
        TRY(remove_network_from_uplink(tables, ifindex, network));
    return remove_unused_uplinks(tables);
}

Result<std::uint32_t> uplink_without(const std::string &root, std::uint32_t network, const Tables &tables) {
    const auto entry = TRY(tables.networks.find(network));
    if (!entry || entry->has_uplinks == 0)
        return 0U;
    const UplinkTables uplinks = TRY(UplinkTables::open(root));
    const auto patterns = split<std::string>(field_text(entry->uplinks), " ");
    for (const std::uint32_t ifindex : TRY(find_uplinks(patterns, tables.interfaces)).ifindexes)
        if (!TRY(carries(uplinks, ifindex, network)))
            return ifindex;
    return 0U;
}

Result<std::vector<std::uint32_t>> vanished_uplinks(const UplinkTables &tables) {
    std::vector<std::uint32_t> vanished;
    for (const auto &[ifindex, entry] : TRY(tables.uplinks.entries()))
        if (TRY(net::link_name(ifindex)).empty())
            vanished.push_back(ifindex);
    return vanished;
}

Result<void> remove_vanished_uplinks(const UplinkTables &tables) {
    for (const std::uint32_t ifindex : TRY(vanished_uplinks(tables))) {
        TRY(tables.counters.remove(ifindex));
        TRY(tables.uplinks.remove(ifindex));
    }
    return {};
}

Result<void> sync_uplinks(const UplinkTables &tables, std::uint32_t network, std::span<const std::uint32_t> wanted,
                          HookKind kind, bool only_those) {
    TRY(remove_vanished_uplinks(tables));
    TRY(remove_unused_uplinks(tables));
    for (const std::uint32_t ifindex : wanted)
        TRY(add_uplink(tables, ifindex, network, kind));
    if (only_those)
        for (const std::uint32_t ifindex : TRY(carriers_of(tables, network)))
            if (std::ranges::find(wanted, ifindex) == wanted.end())
                TRY(remove_network_from_uplink(tables, ifindex, network));
    return {};
}

} // namespace podlane
