// SPDX-License-Identifier: MIT
// The effect of other agents' NAT rules on a range of pods.
#pragma once

#include "maps/ip.hpp"
#include "maps/result.hpp"

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// The addresses of Services that kube-proxy translates, in nftables or iptables mode; none without kube-proxy.
Result<std::vector<ip_addr>> cluster_ips();
// The same of what `nft list ruleset` or `iptables-save -t nat` prints.
std::vector<ip_addr> cluster_ips_of(std::string_view listing);

// Whether a rule of another agent masquerades the range; kube-proxy's and portmap's, which go by a mark, do not count.
Result<bool> is_masqueraded_by_others(const Prefix &range);
bool masquerades_in(std::string_view listing, const Prefix &range);

} // namespace podlane::ctl
