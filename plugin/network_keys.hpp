// SPDX-License-Identifier: MIT
// Keys of the configuration that hold for a whole network: clusterCIDRs, noMasquerade, uplinks, the rates of a limit
// group. The newest ADD's apply, whichever of the network's pods is restored or checked.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/result.hpp"
#include "plugin/cni/types.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

// The configuration of the network's newest pod. `living` is as others_on_disk() has it.
std::optional<cni::Config> newest_config(const std::vector<AttachmentRecord> &living, const std::string &network);

// Replaces those keys in the configuration of a pod by those of the network's newest ones. Its uplinks include the
// egress route's.
void take_network_keys(const std::vector<AttachmentRecord> &living, net::Netlink &host, cni::Config &config);

} // namespace podlane
