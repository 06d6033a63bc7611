// SPDX-License-Identifier: MIT
// The runtime's own configuration of the networks that Podlane is a plugin of.
#pragma once

#include "maps/ip.hpp"
#include "maps/result.hpp"
#include "tools/podlanectl/node/node_object.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

struct RuntimeNetwork {
    std::string name{};
    std::vector<Prefix> ranges{};   // that host-local gives the pods addresses of
    std::vector<Prefix> clusters{}; // "clusterCIDRs"
    bool masquerades = false;       // one of its plugins, by "ipMasq"
    bool makes_links = false;       // Podlane is its first plugin
    bool has_uplink = false;        // "uplink": its addresses are those of the network there
    std::string state_dir{};        // "stateDir"
};

// Of one such file. None if Podlane is no plugin of it.
std::optional<RuntimeNetwork> podlane_network(const ForeignNetwork &file, std::string_view text,
                                              const std::string &state_dir);
// In the runtime's order. Files and values that cannot be read are left out: an ADD names what is wrong with them. The
// ranges of "usePodCidr" are those that ADDs have kept in `state_dir`.
Result<std::vector<RuntimeNetwork>> podlane_networks_in(const std::string &conf_dir, const std::string &state_dir);

// "stateDir" if all of these networks have the same, and nothing is in the default one; else the default.
std::string configured_state_directory(const std::string &conf_dir);

} // namespace podlane::ctl
