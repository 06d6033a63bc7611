// SPDX-License-Identifier: MIT
// Work on many attachments, as a runtime would do it: one attachment of a container after the other, and other
// containers meanwhile.
#pragma once

#include "maps/result.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace podlane::ctl {

// Each has the maps open, and runs an IPAM plugin.
inline constexpr std::size_t kContainersAtATime = 8;

// To remove them. Under the locks of the maps the last pod of a network takes its rules along: without maps, it is one.
Result<std::size_t> containers_at_a_time(const std::string &root);

// Calls `act` with each index of `container_ids`, which name the attachments' containers, on as many threads at most.
void do_by_container(const std::vector<std::string> &container_ids, std::size_t at_a_time,
                     const std::function<void(std::size_t)> &act);

} // namespace podlane::ctl
