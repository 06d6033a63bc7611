// SPDX-License-Identifier: MIT
// Files of a node that describe its pods: objects of Kubernetes' nodes, flannel's subnet.env, conflists of others.
// All of them are parsed as hostile input.
#pragma once

#include "maps/ip.hpp"
#include "maps/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// spec.podCIDRs (or spec.podCIDR) of `kubectl get node NAME -o json`: one prefix of each family at most.
// An error names `what`, the key, and the way out.
Result<std::vector<std::string>> pod_ranges_of_node(std::string_view json, const std::string &what);

// A node of the cluster, as its object says.
struct ClusterNode {
    std::string name{}; // can be printed
    std::vector<ip_addr> addresses{};
    std::vector<Prefix> ranges{}; // of its pods; none if no range is assigned
};
// `kubectl get nodes -o json`.
Result<std::vector<ClusterNode>> read_cluster_nodes(std::string_view json, const std::string &what);

// The file of flannel's daemon for its plugin.
struct FlannelSubnet {
    std::vector<std::string> subnets{};  // of this node's pods
    std::vector<std::string> networks{}; // of all pods
    std::optional<std::uint64_t> mtu{};
    bool masquerades = false;
};
Result<FlannelSubnet> read_flannel_subnet(std::string_view text, const std::string &what);

// A configuration of the runtime: a list, or a single plugin.
struct ForeignNetwork {
    std::string file{};
    std::string name{};               // it and the types can be printed
    std::vector<std::string> types{}; // of its plugins, in their order
    std::string unread{};             // why a runtime passes over it; empty if it does not

    // multus calls the networks that its file names, so it stays in front of them.
    [[nodiscard]] bool is_multus() const { return !types.empty() && types.front().starts_with("multus"); }
};
// Waits for nothing and ends, whatever is in its place there: a pipe, a device.
Result<std::string> read_network_file(const std::string &path);
// A file that cannot be read has no types.
ForeignNetwork foreign_network(const std::string &file, const Result<std::string> &text);
// Of the directory, in the runtime's order.
Result<std::vector<ForeignNetwork>> networks_in(const std::string &conf_dir);

// The list with Podlane behind its first plugin. A list that has it there is returned as it is.
Result<std::string> with_podlane_behind(std::string_view json, const std::string &what, const std::string &podlane);

// The list with the keys of a JSON object in its plugin podlane, in place of those of the same names.
Result<std::string> with_keys(std::string_view list, std::string_view keys);

} // namespace podlane::ctl
