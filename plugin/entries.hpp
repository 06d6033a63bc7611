// SPDX-License-Identifier: MIT
// The entries that one attachment has in the maps, as a value: ADD and repair insert them, CHECK compares the maps with
// them, DEL deletes them.
#pragma once

#include "maps/abi/bandwidth.h"
#include "maps/abi/endpoint.h"
#include "maps/abi/limit.h"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

struct Plan;

// The entry in endpoints_v1. Identity, pod names and configuration come from the request.
Result<endpoint> make_endpoint(const cni::Request &request, const Plan &plan);

// Of an endpoint that is isolated, or in groups.
struct IsolationEntry {
    std::uint32_t flags = 0; // enum isolation_flags
    std::vector<std::string> groups{}, accepted{};
    std::vector<std::pair<Prefix, bool>> remotes{}; // pods of other nodes, accepted or not
};

// All others but those of source routing, which depend on the container's other interfaces.
struct EndpointEntries {
    std::vector<std::pair<exempt_key, std::uint32_t>> exempts{};
    std::optional<bandwidth> limits{}; // with a state for each direction
    bool keeps_paths = false;          // an entry in kept_paths_v1
    std::uint32_t limit_group = 0;     // whose guarantees they are
    std::vector<Prefix> allowed_sources{};
    std::optional<IsolationEntry> isolation{};
    interface interface_entry {};
    std::vector<std::pair<address_key, address>> addresses{};
    std::vector<sender_key> senders{}; // by the pod's own sockets, and by the node's that send to it
};

// `node_netns` is the inode of the node's network namespace.
EndpointEntries entries_of(const cni::Config &config, const endpoint &record, std::uint32_t node_netns);

struct SourceEntries {
    std::vector<std::pair<source_route_key, source_route>> routes{};
    std::vector<std::pair<source_slot_key, source_route>> slots{};
};
// Adds the entries of one of a container's host-side veths for the addresses (`all` of the container) of the others.
void add_entries_at(std::uint32_t ifindex, const std::vector<source_route> &all, SourceEntries &entries);
bool has_slot(const SourceEntries &entries, const source_slot_key &key);

} // namespace podlane
