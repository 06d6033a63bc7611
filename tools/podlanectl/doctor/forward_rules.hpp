// SPDX-License-Identifier: MIT
// Chains of netfilter at the hook "forward" that may drop a packet: the fast path bypasses them.
#pragma once

#include "maps/result.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// Chains, as "chain filter FORWARD (ip)", of what `nft list ruleset` and `iptables-save -t filter` print.
using OfNft = std::function<std::vector<std::string>(std::string_view listing)>;
using OfIptables = std::function<std::vector<std::string>(std::string_view listing, std::string_view family)>;

// Of the node's rules. If it fails, `found` has those of the programs that are installed: without nft(8) only iptables'
// rules are read.
Result<void> find_chains(const OfNft &of_nft, const OfIptables &of_iptables, std::vector<std::string> &found);

bool is_chain_of_kube_proxy(std::string_view name);

// Chains with a rule or a policy that drops. Those of kube-proxy and of Podlane itself do not count.
std::vector<std::string> dropping_chains_of_nft(std::string_view listing);
std::vector<std::string> dropping_chains_of_iptables(std::string_view listing, std::string_view family);

} // namespace podlane::ctl
