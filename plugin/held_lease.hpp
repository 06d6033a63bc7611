// SPDX-License-Identifier: MIT
// Leases that outlive their pods for a while, so that pods of the same names get their addresses back. The record of
// the attachment on disk says until when; there is no other place. It stays that of the container that is gone, because
// IPAM plugins know a lease by its container.
#pragma once

#include "loader/record.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/rollback.hpp"

#include <cstdint>
#include <vector>

namespace podlane {

// Now. Not if the clock was set back since.
bool is_held(const AttachmentRecord &record);

// Whether the lease of this call's pod is to be held at its DEL.
bool keeps_address(const cni::Request &request);

// For DEL, whether the lease is to stay; the record then says until when. A lease that is held already stays as it is,
// until its time is over.
Result<bool> hold_lease(AttachmentRecord &record);

struct NewLease {
    cni::Attachment lease;
    std::uint64_t held_until_ns = 0; // CLOCK_REALTIME; not 0: its addresses were held for the pod
};
// For ADD: a lease with the addresses that are held for the pod, if the IPAM plugin gives them again; any other if not.
// Held leases give way if the IPAM plugin has no address left. ErrorCode::try_again_later if it hangs, and for a while
// after. Calls of other networks wait for none of this.
Result<NewLease> request_lease(const cni::Request &request, bool &killed);
// If that ADD fails: the lease is released, but one that was held goes on being held, by this container.
void settle_on_failure(const cni::Request &request, const NewLease &given, Rollback &rollback);

// For ADD, after everything else: the leases that were held for the pod are its own now.
void forget_held_leases(const cni::Request &request);

// Of the configuration's network, below its root of pins. A failure is logged; the first call after ten times the
// lease's "ipamTimeout" tries again, for the IPAM plugin may hang.
void release_expired_leases(const cni::Config &config);
// The same, of all networks of the root.
void release_all_expired_leases(const cni::Config &config);

// The oldest first.
Result<std::vector<AttachmentRecord>> held_leases(const AttachmentRecords &records, Errors &unread);
// Of an attachment that is removed: its IPAM plugin was not installed at the DEL, or failed.
bool waits_for_release(const AttachmentRecord &record);
// A lease that is held, or waits: by a DEL of the IPAM plugin for the container that is gone. An error if it has to
// stay.
Result<void> release_held_lease(const AttachmentRecord &record, const std::string &state_directory);

} // namespace podlane
