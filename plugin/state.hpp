// SPDX-License-Identifier: MIT
// The record of an attachment on disk (loader/record.hpp), as the verbs write and read it.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/result.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

#include <optional>
#include <vector>

namespace podlane {

AttachmentRecords records_of(const cni::Config &config);
// The configured one, and the default one: `stateDir` may have been edited.
std::vector<std::string> state_directories_of(const cni::Config &config);

// The node's name for its administrator: `nodename`, $NODENAME, or the host's name.
std::string node_name(const cni::Config &config);

// Of the call's request; what the call creates is added as it becomes known.
Result<AttachmentRecord> record_of(const cni::Request &request);

// Adds to the record on disk what the ADD knows by now: the entry of endpoints_v1, the lease if it requested one, the
// network's own uplink. ErrorCode::try_again_later if a DEL that did not wait (plugin/turn.hpp) has removed the record.
Result<void> update_record(const cni::Request &request, const endpoint &entry, const cni::Attachment *lease,
                           std::uint32_t uplink);
// The same error, at the end of an ADD: without its records nothing would find what it has made.
Result<void> refuse_removed(const cni::Request &request, const Tables &tables);

// Of the container's other interfaces.
Result<std::vector<AttachmentRecord>> records_of_others(const cni::Request &request, net::Netlink &pod);
// Whether one of the container's attachments lets it forward: that is a setting of the whole namespace.
Result<bool> may_forward(const cni::Request &request, net::Netlink &pod);

// Below the configured root of pins and `stateDir`, or any other one of this node.
Result<std::optional<AttachmentRecord>> find_record(const cni::Request &request);
// For ADD: directories other than the configured one that cannot be read hold none.
Result<bool> is_on_record(const cni::Request &request);

// Nothing of an attachment of an earlier boot is in the kernel.
Result<bool> is_of_this_boot(const AttachmentRecord &record);

// The call of the ADD, as its runtime made it, and the addresses it was to have.
// A name a line, as records have them.
std::string group_lines(const std::vector<std::string> &groups);
// The groups that the container is a member of by now.
std::vector<std::string> groups_in(const AttachmentRecord &record);
Result<cni::Request> recorded_request(const AttachmentRecord &record);
Result<cni::Attachment> recorded_lease(const cni::Request &request, const AttachmentRecord &record);

// Leaves out the addresses of other families (kIpv4, kIpv6) than these; 0: all stay. An error if one has none.
Result<void> keep_families(std::uint32_t families, cni::Attachment &lease);

// Completes what DEL or GC did not get, or can no longer read, from what the ADD got. CNI_ARGS are those of the ADD,
// which its IPAM plugin accepted.
void complete(cni::Request &request, const AttachmentRecord &record);

// A DEL of what is recorded, as of a runtime that no longer has the namespace.
cni::Request request_of(const AttachmentRecord &record, const std::string &state_directory);

// The requests by which the IPAM plugin finds the lease, the most likely one first. None if the attachment has no lease
// that Podlane requested.
Result<std::vector<cni::Request>> requests_with_lease(const cni::Request &request,
                                                      const std::optional<AttachmentRecord> &record);

} // namespace podlane
