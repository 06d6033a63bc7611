// SPDX-License-Identifier: MIT
// The files of host-local's leases, and those that name nobody, which its DEL therefore does not find.
#pragma once

#include "loader/record.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace podlane {

// host-local creates a lease's file, and then writes into it whose it is. If it dies between the two, or the power is
// cut before the text is on the disk, an empty file keeps the address for ever.
//
// Removes the empty files that the recorded ADD can have left: younger than the record if it did not get as far as
// the lease, else those of its addresses, which another program may have emptied too. host-local's own lock is held
// meanwhile, so that none of them is about to be written; it is waited for that long. Does nothing for other IPAM
// plugins.
[[nodiscard]] Result<void> remove_empty_leases(const AttachmentRecord &record, std::uint64_t most_seconds);

// An error if the lease is still the attachment's: host-local ignores a file that it cannot remove, and succeeds. Does
// nothing for other IPAM plugins.
[[nodiscard]] Result<void> check_released(const AttachmentRecord &record);

// Where the leases of the record's network are, a file each; none if another IPAM plugin keeps them.
[[nodiscard]] std::optional<std::string> lease_directory(const AttachmentRecord &record);

} // namespace podlane
