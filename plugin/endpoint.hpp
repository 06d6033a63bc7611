// SPDX-License-Identifier: MIT
// An endpoint's entries in the maps, put in the order that makes its packets take the fast path last, and erased in the
// reverse one.
#pragma once

#include "loader/attach.hpp"
#include "maps/entries.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/rollback.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

// What the maps are told of a new endpoint. Identity, pod names and configuration come from the request.
struct EndpointFacts {
    endpoint_mode mode = ENDPOINT_MAIN;
    HookKind hook_kind = HookKind::tcx;
    std::uint64_t netns_inode = 0;
    std::uint32_t ifindex = 0;
    std::uint32_t pod_ifindex = 0;
    std::string host_ifname{};
    Mac pod_mac{};
    Mac host_mac{};
    std::uint32_t mtu = 0;
    std::uint32_t flags = 0;
    std::vector<ip_addr> addresses{};
    ip_addr link_local{};
    endpoint_masquerade masquerade = ENDPOINT_MASQUERADE_NONE;
};

Result<endpoint> make_endpoint(const cni::Request &request, const EndpointFacts &facts);

struct SourceEntries {
    std::vector<std::pair<source_route_key, source_route>> routes{};
    std::vector<std::pair<source_slot_key, source_route>> slots{};
};
// Adds the entries of one of a container's host-side veths for the addresses (`all` of the container) of the others.
void add_entries_at(std::uint32_t ifindex, const std::vector<source_route> &all, SourceEntries &entries);

// Puts everything but the addresses: the programs know the endpoint, and nobody is led to it yet.
Result<void> put_endpoint(const Tables &tables, const cni::Request &request, const endpoint &record,
                          Rollback &rollback);
// The same for an endpoint that is known: only what is missing or wrong. Limits that were changed since stay.
Result<void> put_missing_entries(const Tables &tables, const cni::Config &config, const endpoint &record);
// From here on packets take the fast path. ErrorCode::already_exists names the endpoint that owns an address.
Result<void> put_addresses(const Tables &tables, const endpoint &record, Rollback &rollback);

// Those of put_endpoint() and put_addresses() that only the programs of limits read.
[[nodiscard]] Result<bool> has_limit_entries(const Tables &tables, const cni::Config &config, const endpoint &record);

// Erases whatever the maps hold of the endpoint but its entry in endpoints_v1, which says what is to be removed and so
// goes last. Anything already gone counts as erased. Collects errors.
Result<void> erase_endpoint(const Tables &tables, const endpoint &record);
// The same by the host-side veth alone, where the record is lost.
Result<void> erase_interface(const Tables &tables, std::uint32_t ifindex);

} // namespace podlane
