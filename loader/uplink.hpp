// Uplinks: finds the interfaces by which the node reaches others, and keeps the programs and the map entry on them.
#pragma once

#include "loader/attach.hpp"
#include "maps/tables.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace podlane {

struct FoundUplinks {
    std::vector<std::uint32_t> ifindexes; // sorted
    std::vector<std::string> notes;       // sentences: what was asked for and left out
};

// Interfaces of the caller's network namespace by name or shell pattern; no pattern: those of the default routes. Never
// an endpoint's host end. An interface without an Ethernet header is an error where it is named, else a note.
Result<FoundUplinks> find_uplinks(std::span<const std::string> patterns, const Interfaces &host_veths);

// Whether find_uplinks() would take it, were it asked for.
Result<bool> can_be_uplink(std::uint32_t ifindex, const Interfaces &host_veths);

// The patterns as struct network keeps them, and the other way round.
std::string join_patterns(std::span<const std::string> patterns);
std::vector<std::string> split_patterns(std::string_view text);

// What the programs know of uplinks, and the programs themselves.
struct UplinkTables {
    Uplinks uplinks;
    Counters counters;
    Fd from_uplink;
    Fd to_uplink;

    static Result<UplinkTables> open(const std::string &root, Access access = Access::read_write);
};

// Whether both programs, and no others of ours, are on the interface and it carries the network.
Result<bool> carries(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network);
// Whether both programs, and no others of ours, are on the interface.
Result<bool> has_programs(const UplinkTables &tables, std::uint32_t ifindex);

// Entries of interfaces that are gone.
Result<std::vector<std::uint32_t>> vanished_uplinks(const UplinkTables &tables);

// All of these need the exclusive lock of the root. Repeating them changes nothing.

// The programs first, the entry last: from that write on packets leave by the uplink past the host stack.
Result<void> put_uplink(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network, HookKind kind);
// The entry first; an uplink that carries no network any more loses its programs.
Result<void> take_network(const UplinkTables &tables, std::uint32_t ifindex, std::uint32_t network);
Result<void> take_network_everywhere(const UplinkTables &tables, std::uint32_t network);
// Whatever it carries.
Result<void> erase_uplink(const UplinkTables &tables, std::uint32_t ifindex);
Result<void> erase_vanished_uplinks(const UplinkTables &tables);

// Puts a network on its uplinks as they are now. Those it carries besides stay until its last endpoint goes, unless
// `only_those`: a connection that came in by one still leaves by it.
Result<void> sync_uplinks(const UplinkTables &tables, std::uint32_t network, std::span<const std::uint32_t> wanted,
                          HookKind kind, bool only_those);

} // namespace podlane
