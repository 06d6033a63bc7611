// SPDX-License-Identifier: MIT
// Chains of netfilter at the hook "forward" that may drop a packet: the fast path bypasses them.
#pragma once

#include "maps/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// As "chain filter FORWARD (ip)". Chains of kube-proxy and of Podlane itself do not count. If it fails, `found` has
// those of the programs that are installed: without nft(8) only iptables' rules are read.
Result<void> find_chains_that_drop_forwarded(std::vector<std::string> &found);

// The same of what `nft list ruleset` and `iptables-save -t filter` print.
std::vector<std::string> dropping_chains_of_nft(std::string_view listing);
std::vector<std::string> dropping_chains_of_iptables(std::string_view listing, std::string_view family);

} // namespace podlane::ctl
