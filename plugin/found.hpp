// SPDX-License-Identifier: MIT
// An attachment that was found dead, and may live by the time it is to be removed: its runtime may start the container
// again under the same ID, whose ADD clears the remains away. For GC, and for the release of leases.
#pragma once

#include "loader/record.hpp"
#include "maps/fd.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/remove.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

// As it was before anything said that it is dead.
struct Found {
    std::set<std::pair<std::string, std::uint64_t>> records{}; // the boot of each, and when in it it was written
    std::set<std::uint32_t> ifindexes{};                       // host-side veths, by records and endpoints_v1
    bool has_hanging_add = false;                              // which nothing waits for any more

    void add(const AttachmentRecord &record);
};

// A DEL's turn. None if the attachment is another one by then, or an ADD of its container is still under way: it is
// left alone.
Result<std::optional<std::vector<Fd>>> take_turn_of_found(const cni::Request &request, const Found &found);

// Why it is left alone.
std::string has_come_since(const cni::Request &request);

// Removes in that turn the attachment of a record. An error if it is left alone.
Result<void> remove_found(const AttachmentRecord &record, const std::string &state_directory,
                          Lease lease = Lease::released);

} // namespace podlane
