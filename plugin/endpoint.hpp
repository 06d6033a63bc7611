// SPDX-License-Identifier: MIT
// An endpoint's entries in the maps: inserted in an order that makes its packets take the fast path last, and deleted
// in the reverse order.
#pragma once

#include "maps/entries.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/entries.hpp"
#include "plugin/rollback.hpp"

#include <cerrno>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace podlane {

// Prints it in the log, at level debug.
[[nodiscard]] Result<void> log_plan(const cni::Request &request, const Plan &plan, const endpoint &record,
                                    const SourceEntries &sources);

// Inserts everything but the addresses: the programs know the endpoint, and no packet is sent to it yet.
Result<void> put_endpoint(const Tables &tables, const cni::Config &config, const endpoint &record);
// The same for an endpoint that is known: only what is missing or wrong. Limits that were changed since stay.
Result<void> insert_missing_entries(const Tables &tables, const cni::Config &config, const endpoint &record);
// From here on packets take the fast path. ErrorCode::already_exists names the endpoint that owns an address.
Result<void> put_addresses(const Tables &tables, const endpoint &record);
// Whose sockets are whose, once the addresses are its own: the last entries that ADD inserts, and among the first that
// DEL removes.
Result<void> put_senders(const Tables &tables, const endpoint &record, Rollback &rollback);
// Whether those of the container's namespace are there: an ADD has finished the endpoint, and no DEL has begun.
Result<bool> owns_its_sockets(const Tables &tables, const endpoint &record);

// Of an entry that a DEL may have removed by now: it stays removed.
template <typename Key, typename Value>
Result<void> replace_if_there(const Map<Key, Value> &table, const std::type_identity_t<Key> &key, const Value &value) {
    auto replaced = table.replace(key, value);
    return !replaced && replaced.error().system_errno == ENOENT ? Result<void>{} : std::move(replaced);
}

constexpr const char *kRecreateSandbox = "delete the pod's sandbox; the runtime creates a new one";

// ErrorCode::check_failed, and how to restore what is gone.
Error gone(std::string sentence);
// ErrorCode::check_failed names the first of those entries that is missing or wrong.
[[nodiscard]] Result<void> check_entries(const Tables &tables, const cni::Config &config, const endpoint &record);
// The same of those that say of which groups it is a member, and which it accepts.
[[nodiscard]] Result<void> check_groups(const Tables &tables, const cni::Config &config, const endpoint &record);

// Deletes whatever the maps hold of the endpoint but its entry in endpoints_v1, which says what is to be removed and so
// is deleted last. Anything already gone counts as deleted. Collects errors.
// Without the configuration of the ADD, all entries of maps of prefixes are read to find its own, if it has any.
bool has_prefixes(const endpoint &record);
Result<void> erase_endpoint(const Tables &tables, const endpoint &record, const cni::Config *of_add = nullptr);
// The same by the host-side veth alone, if the record is lost.
Result<void> erase_interface(const Tables &tables, std::uint32_t ifindex);

} // namespace podlane
