// SPDX-License-Identifier: MIT
// The node's ranges for pods, which Kubernetes assigns: as the node's object says them, and in a configuration for
// host-local, which requests them by "usePodCidr" and "usePodCidrIPv6", as Calico's does. All of it is untrusted.
#pragma once

#include "plugin/cni/json.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace podlane::cni {

// The texts as prefixes, one of each family at most; each has the name that an error about it has. Neither everything,
// nor what no pod can have: multicast, loopback, link-local. Errors have no hint.
Result<std::vector<std::string>> checked_ranges(const std::vector<std::pair<std::string, std::string>> &named,
                                                const std::string &what);
// spec.podCIDRs, or spec.podCIDR, of a node's object.
Result<std::vector<std::string>> ranges_of_node(const json::Value &node, const std::string &what);

// The answer of podlane-k8s about a node.
Result<std::vector<std::string>> ranges_in(const json::Value &answer, const std::string &what);

// Such an answer as a file of the state directory keeps it, one JSON object.
struct KeptRanges {
    std::string question; // another cluster, or another name of the node, has other ranges
    std::vector<std::string> ranges;
    std::uint64_t queried_ns = 0; // CLOCK_REALTIME, whether or not there was an answer
};
std::string kept_ranges_text(const KeptRanges &kept);
// Error: the file is not whole, as after a power cut, or has no range.
Result<KeptRanges> parse_kept_ranges(std::string_view text, const std::string &what);

// The families (kIpv4, kIpv6) whose range a configuration requests, in `ipam` or a pool.
[[nodiscard]] std::uint32_t families_of_pod_ranges(const json::Value &config);
// The configuration with these ranges. Error: there is none of a family that is requested.
Result<std::string> with_pod_ranges(std::string_view config, const std::vector<std::string> &ranges);
// The same with ranges that nobody has: host-local finds a lease by its container, and wants to read some range.
Result<std::string> with_any_ranges(std::string_view config);

} // namespace podlane::cni
