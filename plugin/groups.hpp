// SPDX-License-Identifier: MIT
// Groups belong to a container: all its interfaces are members. The records on disk say which; the maps follow them.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"
#include "plugin/rollback.hpp"

#include <set>
#include <string>
#include <vector>

namespace podlane {

// Those of the container's other attachments, and its own.
Result<std::vector<std::string>> groups_with_others(const cni::Request &request, net::Netlink &pod);

// An ADD gives its groups to the container's other interfaces.
Result<void> share_groups(const cni::Request &request, const Tables &tables, net::Netlink &pod, Rollback &rollback);

// For a DEL: as the records of the container's other interfaces say, whatever an ADD has left that was killed or could
// not be rolled back whole. Nothing while an ADD of the container is under way.
Result<void> restore_groups_of_others(const cni::Request &request, const Tables &tables);

// Of all interfaces of these containers, from the next packet on. The caller holds the lock of the root exclusively.
// Nothing is changed if an endpoint of one has no whole record (ErrorCode::missing), or is being deleted.
Result<void> change_membership(const AttachmentRecords &records, const Tables &tables,
                               const std::set<std::string> &container_ids, const std::string &group, bool is_member);

} // namespace podlane
