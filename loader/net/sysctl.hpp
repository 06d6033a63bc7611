// SPDX-License-Identifier: MIT
// Kernel settings below /proc/sys; those below net/ are the ones of the calling thread's namespace.
#pragma once

#include "maps/result.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane::net {

// {"net", "ipv4", "conf", "eth0.100", "forwarding"}: in components, because an interface's name may hold dots.
using SysctlPath = std::vector<std::string>;

// Without the newline at its end; nullopt if this kernel or this interface has no such setting.
Result<std::optional<std::string>> read_sysctl(const SysctlPath &path);
// true: written; false: had the value already. ErrorCode::missing if there is no such setting.
Result<bool> write_sysctl_if_different(const SysctlPath &path, std::string_view value);

} // namespace podlane::net
