// SPDX-License-Identifier: MIT
// The output of the node's own programs, such as nft(8) and iptables-save(8).
#pragma once

#include "maps/result.hpp"

#include <string>
#include <vector>

namespace podlane::ctl {

// ErrorCode::missing if the program, or what it is to print, is not there.
Result<std::string> output_of(const std::string &program, const std::vector<std::string> &arguments);
Error not_installed(const std::string &program);

} // namespace podlane::ctl
