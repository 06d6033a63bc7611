// SPDX-License-Identifier: MIT
// Calls that would get in each other's way run one after the other: the ADDs of a container, ADD and DEL of an
// attachment, and the IPAM plugin's GC and ADDs. Its runtime may have given up on an ADD that goes on.
//
// All locks are on one file in the state directory, which nobody but root can open: a lock on the container's network
// namespace could be the container's own, or any user's. The kernel drops those of a killed call. None is waited for
// longer than 10 s.
#pragma once

#include "loader/record.hpp"
#include "maps/fd.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane {

// An ADD's, which lasts until the descriptor is closed. ErrorCode::try_again_later if a DEL or another ADD of the
// attachment does not end: it would remove what this ADD makes.
Result<Fd> take_turn_of_add(const cni::Request &request);

// A DEL's, which lasts until the descriptors are closed: one for each state directory in which its ADD may be. One that
// cannot be had is logged: the DEL goes on, as it does beside an ADD that does not end.
std::vector<Fd> take_turn_of_del(const cni::Request &request);
// `is_beside_add`: an ADD of the attachment has its turn, for which the DEL does not wait any longer.
std::vector<Fd> take_turn_of_del(const cni::Request &request, bool &is_beside_add);

// A GC's, while it has the IPAM plugin release leases, until the descriptor is closed. None without a state directory.
Result<Fd> take_turn_of_gc(const cni::Config &config);

// For an ADD whose record is on disk, before it requests a lease: a GC that has its turn may not have seen the record.
// ErrorCode::try_again_later if the GC does not end.
Result<void> wait_for_gc(const cni::Config &config);

// Whether an ADD of the container has its turn.
Result<bool> is_add_under_way(const AttachmentRecord &record);

// Whether one of the attachment itself has.
Result<bool> is_own_add_under_way(const AttachmentRecord &record);

// Unless a call is under way: the next one would create another file.
Result<void> forget_turns(const std::string &state_directory);

// Whether an ADD or a DEL of the attachment has its turn.
Result<bool> is_call_under_way(const AttachmentRecord &record);

// Whether an ADD may be under way at that time of CLOCK_BOOTTIME. One that has no endpoint yet may be waiting for its
// IPAM plugin, as long as it has its turn. One that was killed there is collected by a later GC, and so is one that
// hangs.
Result<bool> may_be_under_way(const AttachmentRecord &record, std::uint64_t at_ns);

// Whether an ADD has left this record of the same boot without an endpoint, and no call is or may be under way: it was
// killed, or could not be rolled back. False of a torn record, which may have lost the endpoint.
Result<bool> is_unfinished(const AttachmentRecord &record);

} // namespace podlane
