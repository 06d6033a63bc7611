// SPDX-License-Identifier: MIT
// The tables of iptables-legacy: its rules are not nf_tables', and the kernel lists them elsewhere.
#pragma once

#include "maps/result.hpp"

#include <string_view>

namespace podlane::net {

// Of the calling thread's namespace. false also if the kernel has no iptables-legacy.
Result<bool> has_legacy_table(bool ipv4, std::string_view table);

} // namespace podlane::net
