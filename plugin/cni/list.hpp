// SPDX-License-Identifier: MIT
// A network's file as runtimes keep it in /etc/cni/net.d.
#pragma once

#include "maps/result.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace podlane::cni {

// Standard input of podlane for STATUS: its part of a list of plugins with the list's name, or the
// configuration of a single plugin. In the newest version, older ones have no STATUS. None if the file has no plugin
// podlane.
Result<std::optional<std::string>> status_input(std::string_view file);

} // namespace podlane::cni
