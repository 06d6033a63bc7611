// SPDX-License-Identifier: MIT
// The map entries by which the programs isolate an endpoint: names of groups become keyed hashes. The key is random,
// and in the same map, so that nobody can choose a name with the hash of another.
#pragma once

#include "maps/tables.hpp"
#include "plugin/entries.hpp"

#include <cstdint>
#include <optional>

namespace podlane {

inline bool is_isolated(const endpoint &record) {
    return (record.flags & (INTERFACE_ISOLATED_GROUP | INTERFACE_ISOLATED_NETWORK)) != 0;
}

// Connections that the addresses' earlier owners opened, or anybody in their names: what belongs to them would pass as
// answers to the new one. Behind its addresses' entries, by which nobody opens more. Only for an isolated endpoint.
Result<void> forget_connections_of(const Tables &tables, const endpoint &record);
// Before the host-side veth's entry says that the endpoint is isolated; and of an endpoint that packets reach: what is
// missing or another one. Flows cached before it do not count any more.
Result<void> update_isolation(const Tables &tables, std::uint32_t ifindex, const IsolationEntry &entry);
// False if there is none.
Result<bool> remove_isolation(const Tables &tables, std::uint32_t ifindex);
// Of an endpoint that may be in groups no longer: updates the entries, or removes the one that is left.
Result<void> follow_isolation(const Tables &tables, std::uint32_t ifindex, const std::optional<IsolationEntry> &entry);
// ErrorCode::check_failed if an entry is missing or wrong, or there is one of an endpoint that is to have none.
[[nodiscard]] Result<void> check_isolation(const Tables &tables, std::uint32_t ifindex,
                                           const std::optional<IsolationEntry> &entry);

} // namespace podlane
