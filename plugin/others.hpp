// SPDX-License-Identifier: MIT
// The node's other attachments, as the records on disk say: for what they share.
#pragma once

#include "loader/record.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

#include <functional>
#include <string>
#include <vector>

namespace podlane {

using IsGone = std::function<bool(const AttachmentRecord &)>;

// Those of this network namespace and boot, of every root, whose host-side veth is there: the newest first.
Result<std::vector<AttachmentRecord>> others_on_disk(const std::string &state_directory, const IsGone &is_gone);
// The same, of all, and for what is restored: a record that cannot be read is logged, and counts as none.
Result<std::vector<AttachmentRecord>> living_on_disk(const std::string &state_directory);
// All of one root, alike; `are_all`: each could be read.
Result<std::vector<AttachmentRecord>> readable_records(const AttachmentRecords &records, bool &are_all);

// The request's own attachment.
IsGone is_request_of(const cni::Request &request);
Result<std::vector<AttachmentRecord>> others_than(const cni::Request &request);
// The same but for those of the request's root that are among the endpoints for which this is true: their records are
// not read.
Result<std::vector<AttachmentRecord>> others_than(const cni::Request &request, const Endpoints &endpoints,
                                                  const std::function<bool(const endpoint &)> &is_known);

// Whether there is another pod's interface, by its alias or its programs, that neither `endpoints` nor one of the
// records `others` knows; null: no map exists. It may be of any network.
Result<bool> has_unknown_others(const cni::Request &request, const Endpoints *endpoints,
                                const std::vector<AttachmentRecord> &others);

// Pods that live, of other roots than this one: `bpffs` was edited. They share the uplinks, and networks by their
// names.
Result<std::vector<AttachmentRecord>> others_elsewhere(const std::string &state_directory, const std::string &root);

// Removes the rules of loader/own_addresses.hpp, unless one of them is of a network with an egress route.
Result<void> drop_own_address_rules(const std::string &state_directory, const IsGone &is_gone);

} // namespace podlane
