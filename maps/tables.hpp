// SPDX-License-Identifier: MIT
// The pinned maps by name: where they are, their types, and the conversions between words and wire structs.
#pragma once

#include "abi/address.h"
#include "abi/allowed_source.h"
#include "abi/bandwidth.h"
#include "abi/cluster_cidr.h"
#include "abi/counter.h"
#include "abi/endpoint.h"
#include "abi/event.h"
#include "abi/flow.h"
#include "abi/interface.h"
#include "abi/isolation.h"
#include "abi/limit.h"
#include "abi/names.h"
#include "abi/network.h"
#include "abi/path.h"
#include "abi/sender.h"
#include "abi/source_route.h"
#include "abi/uplink.h"
#include "errors.hpp"
#include "ip.hpp"
#include "map.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

using Endpoints = Map<endpoint_key, endpoint>;
using Interfaces = Map<std::uint32_t, interface>;
using Addresses = Map<address_key, address>;
using Networks = Map<std::uint32_t, network>;
using Flows = Map<flow_key, flow>;
using Paths = Map<path_key, flow_path>;
using KeptPaths = Map<std::uint32_t, kept_paths>;
using AllowedSources = Map<allowed_source_key, std::uint32_t>;
using Bandwidths = Map<std::uint32_t, bandwidth>;
using Uplinks = Map<std::uint32_t, uplink>;
using ClusterCidrs = Map<cluster_cidr_key, std::uint32_t>;
using SourceRoutes = Map<source_route_key, source_route>;
using SourceSlots = Map<source_slot_key, source_route>;
using LimitStates = Map<limit_key, limit_state>;
using LimitGroups = Map<std::uint32_t, limit_group>;
using Exempts = Map<exempt_key, std::uint32_t>;
using Senders = Map<sender_key, std::uint32_t>;
using Isolations = Map<std::uint32_t, isolation>;
using GroupCidrs = Map<allowed_source_key, std::uint32_t>;
using Watches = Map<std::uint32_t, watch>; // one entry, 0
using Counters = Map<std::uint32_t, counter_shares>;

// Every pin there is, maps and programs.
#define X(name) std::string_view(name),
inline constexpr std::array kMapNames = {PODLANE_MAPS(X)};
inline constexpr std::array kProgramNames = {PODLANE_PROGRAMS(X)};
#undef X

// Directory of the live pins below a root ("/sys/fs/bpf/podlane"); it appears whole, by one rename, or not at all.
std::string live_directory(std::string_view root);
// Path of one pinned map or program below a root.
std::string pin_path(std::string_view root, std::string_view name);

// Error code `missing` if the pin is not there.
Result<Endpoints> open_endpoints(std::string_view root, Access access);
Result<Interfaces> open_interfaces(std::string_view root, Access access);
Result<Addresses> open_addresses(std::string_view root, Access access);
Result<Networks> open_networks(std::string_view root, Access access);
Result<Flows> open_flows(std::string_view root, Access access);
Result<Paths> open_paths(std::string_view root, Access access);
Result<KeptPaths> open_kept_paths(std::string_view root, Access access);
Result<AllowedSources> open_allowed_sources(std::string_view root, Access access);
Result<Bandwidths> open_bandwidths(std::string_view root, Access access);
Result<Uplinks> open_uplinks(std::string_view root, Access access);
Result<ClusterCidrs> open_cluster_cidrs(std::string_view root, Access access);
Result<SourceRoutes> open_source_routes(std::string_view root, Access access);
Result<SourceSlots> open_source_slots(std::string_view root, Access access);
Result<LimitStates> open_limit_states(std::string_view root, Access access);
Result<LimitGroups> open_limit_groups(std::string_view root, Access access);
Result<Exempts> open_exempts(std::string_view root, Access access);
Result<Senders> open_senders(std::string_view root, Access access);
Result<Isolations> open_isolations(std::string_view root, Access access);
Result<GroupCidrs> open_group_cidrs(std::string_view root, Access access);
Result<Watches> open_watches(std::string_view root, Access access);
Result<Counters> open_counters(std::string_view root, Access access);

[[nodiscard]] counters sum_of(const counter_shares &all);
// Zero if the interface has no counters.
Result<counters> sum_of(const Counters &all, std::uint32_t ifindex);

// Of the live pins below a root: an upgrade and a new load change it. ErrorCode::missing if there are none.
Result<std::uint64_t> generation_of(const std::string &root);

// Ends the decisions about isolation that the programs have cached: after each change of what they decide by.
Result<void> count_isolation_change(const Watches &watches);

// A map that cannot be opened; without a name: nor can any be looked for.
struct Unread {
    std::string_view map;
    Error error;

    // Something else is in its place, which the next attempt finds as well.
    [[nodiscard]] bool is_replaced() const;
};

// Descriptors of the maps of one root that an endpoint has entries in.
struct Tables {
    Endpoints endpoints;
    Interfaces interfaces;
    Addresses addresses;
    Networks networks;
    KeptPaths kept_paths;
    AllowedSources allowed_sources;
    Bandwidths bandwidths;
    ClusterCidrs cluster_cidrs;
    SourceRoutes source_routes;
    SourceSlots source_slots;
    LimitStates limit_states;
    LimitGroups limit_groups;
    Exempts exempts;
    Senders senders;
    Isolations isolations;
    GroupCidrs group_cidrs;
    Watches watches;
    Counters counters;
    std::uint64_t generation; // of the pins; an upgrade changes it

    // ErrorCode::missing if nothing was loaded yet.
    static Result<Tables> open(const std::string &root, Access access = Access::read_write);
    // For removals, to write: a map that is missing or cannot be opened is empty, and `unread` gets those that cannot.
    // None if there are no pins, or none can be looked for.
    static std::optional<Tables> open_readable(const std::string &root, std::vector<Unread> &unread);
    // An error if an upgrade replaced maps since they were opened. The caller holds the lock of the root.
    [[nodiscard]] Result<void> check_generation(const std::string &root) const;
};

// The number a network's name stands for in keys (FNV-1a, 32 bits; two names with one number are refused by ADD).
std::uint32_t network_id(std::string_view name);

// The number of a limit that pods of the network share: an interface never has it.
std::uint32_t limit_group_number(std::uint32_t network, std::string_view name);

// Error if container ID or interface name do not fit.
Result<endpoint_key> make_endpoint_key(std::string_view container_id, std::string_view ifname);

// A NUL-padded field as text, and the other way round (false if it does not fit with its NUL).
std::string_view field_text(std::span<const char> field);
bool set_field(std::span<char> field, std::string_view text);

// The value of a prefix in a trie.
std::uint32_t make_prefix_value(const Prefix &prefix, bool set = true);
// The key of an allowed prefix of the endpoint behind `ifindex`.
allowed_source_key make_allowed_source_key(std::uint32_t ifindex, const Prefix &prefix);
// The key of a prefix that is shaped or not, for the endpoint behind `ifindex`.
exempt_key make_exempt_key(std::uint32_t ifindex, limit_direction direction, const Prefix &prefix);
// The key of one of a network's cluster CIDRs, and the other way round.
cluster_cidr_key make_cluster_cidr_key(std::uint32_t network, const Prefix &prefix);
std::uint32_t network_of(const cluster_cidr_key &key);
Prefix prefix_of(const cluster_cidr_key &key);
Prefix prefix_of(const exempt_key &key);

struct ReasonText {
    std::string_view name; // "sent-direct"
    reason_kind kind;
    std::string_view sentence; // for people
};
// Indexed by enum reason.
extern const std::array<ReasonText, REASON_COUNT> kReasons;

} // namespace podlane
