// SPDX-License-Identifier: MIT
// Addresses that nftables masquerades for a network although no pod of it needs that: rules were saved while other pods
// ran and restored since, or another program added them.
#pragma once

#include "loader/record.hpp"
#include "maps/result.hpp"
#include "maps/tables.hpp"

#include <string>
#include <vector>

namespace podlane {

// Those that neither an endpoint nor one of `records`, of this boot and of whichever root, has. An ADD or DEL that is
// under way may just be adding or removing one.
Result<std::vector<ip_addr>> stale_masqueraded(const std::string &network, const Tables &tables,
                                               const std::vector<AttachmentRecord> &records);
// The same under the exclusive lock of the root, which the caller holds, so that no call is halfway. None while a pod
// lives that neither maps nor records know.
Result<std::vector<ip_addr>> settled_stale_masqueraded(const std::string &network, const std::string &root,
                                                       const std::string &state_directory);
// Takes that lock and removes them, and the network's chain of iptables if no pod needs it.
Result<void> forget_stale_masquerade(const std::string &network, const std::string &root,
                                     const std::string &state_directory);

} // namespace podlane
