// SPDX-License-Identifier: MIT
// Uplinks: finds the interfaces by which the node reaches others, and keeps the programs and the map entry on them.
#pragma once

#include "loader/attach.hpp"
#include "maps/tables.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace podlane {

// has_uplinks of networks_v1: the programs there carry the network's packets, or only judge whose they are.
inline constexpr std::uint8_t kFastUplinks = 1, kJudgedUplinks = 2;

struct FoundUplinks {
    std::vector<std::uint32_t> ifindexes; // sorted
    std::vector<std::string> notes;       // sentences: what was requested and left out
    std::optional<Error> refused;         // one is named that can never be an uplink; its packets take the slow path
};

// Interfaces of the caller's network namespace by name or shell pattern; without a pattern, those of the default
// routes. Never an endpoint's host-side veth.
Result<FoundUplinks> find_uplinks(std::span<const std::string> patterns, const Interfaces &host_veths);

// Whether find_uplinks() would return it if it was named.
Result<bool> can_be_uplink(std::uint32_t ifindex, const Interfaces &host_veths);

// The maps of uplinks, and their programs.
struct UplinkTables {
    Uplinks uplinks;
    Counters counters;
    Fd from_uplink;
    Fd to_uplink;
    bool is_shared = false; // programs of another root may be on the uplinks: they stay there

    static Result<UplinkTables> open(const std::string &root, Access access = Access::read_write);
};

// Whether both programs, and no others of Podlane's, are on the interface and it carries the network.
Result<bool> carries(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network);
// Whether both programs, and no others of Podlane's, are on the interface.
Result<bool> has_programs(const UplinkTables &tables, std::uint32_t ifindex);

// One that is to carry the network, and does not; 0: none.
Result<std::uint32_t> uplink_without(const std::string &root, std::uint32_t network, const Tables &tables);

// Entries whose interfaces are gone.
Result<std::vector<std::uint32_t>> vanished_uplinks(const UplinkTables &tables);

// All of these need the exclusive lock of the root. Repeating them changes nothing.

// Programs first, entry last: from that write on packets leave by the uplink on the fast path.
Result<void> add_uplink(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network, HookKind kind);
// Entry first; an uplink that no longer carries a network loses its programs.
Result<void> remove_network_from_uplink(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network);
Result<void> remove_network_from_uplinks(const UplinkTables &tables, std::uint32_t network);
// Whatever networks it carries.
Result<void> remove_uplink(const UplinkTables &tables, std::uint32_t ifindex);
Result<void> remove_vanished_uplinks(const UplinkTables &tables);

// Adds a network to its current uplinks, and removes those without networks. Its other uplinks stay until its last
// endpoint is removed, unless `only_those`: a connection that came in by one still leaves by it.
Result<void> sync_uplinks(const UplinkTables &tables, std::uint32_t network, std::span<const std::uint32_t> wanted,
                          HookKind kind, bool only_those);

} // namespace podlane
