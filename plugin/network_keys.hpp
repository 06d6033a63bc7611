// SPDX-License-Identifier: MIT
// Keys of the configuration that hold for a whole network: clusterCIDRs, noMasquerade, uplinks, the rates of a limit
// group. The newest ADD's apply, whichever of the network's pods is restored or checked.
#pragma once

#include "loader/net/netlink.hpp"
#include "loader/record.hpp"
#include "maps/result.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/types.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace podlane {

// The node's living pods, as living_on_disk() has them, for one call that restores many: read once, and again if others
// were made or deleted meanwhile, which may have changed a network's keys.
class LivingPods {
  public:
    // Valid until the next call.
    Result<const std::vector<AttachmentRecord> *> of(const std::string &state_directory, const Tables &tables);

  private:
    struct Read {
        std::pair<std::size_t, std::uint64_t> seen{}; // endpoints in the maps, and when the newest was made
        std::vector<AttachmentRecord> records{};
    };
    std::map<std::string, Read> read_{}; // by state directory
};

// The configuration of the network's newest pod. `living` is as living_on_disk() has it.
std::optional<cni::Config> newest_config(const std::vector<AttachmentRecord> &living, const std::string &network);

// Replaces those keys in the configuration of a pod by those of the network's newest ones. Its uplinks include the
// egress route's.
Result<void> take_network_keys(const std::vector<AttachmentRecord> &living, net::Netlink &host, cni::Config &config);

} // namespace podlane
