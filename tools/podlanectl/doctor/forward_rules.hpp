// SPDX-License-Identifier: MIT
// Chains of netfilter at the hook "forward" that may drop a packet: the fast path bypasses them.
#pragma once

#include "maps/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace podlane::ctl {

// As "chain filter FORWARD (ip)". Reads nft and, if the kernel has rules of legacy iptables, those. Chains of
// kube-proxy and of Podlane itself do not count. Empty if neither program is installed.
Result<std::vector<std::string>> chains_that_drop_forwarded();

// The same of what `nft list ruleset` and `iptables-legacy-save -t filter` print.
std::vector<std::string> dropping_chains_of_nft(std::string_view listing);
std::vector<std::string> dropping_chains_of_iptables(std::string_view listing, std::string_view family);

} // namespace podlane::ctl
