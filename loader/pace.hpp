// SPDX-License-Identifier: MIT
// Pacing: the program that sets the pacing rate of TCP senders, on the root of the cgroup v2 hierarchy.
#pragma once

#include "maps/result.hpp"

#include <cstdint>
#include <string>

namespace podlane {

// Inode of the caller's network namespace.
Result<std::uint32_t> own_netns();

// Attaches the program beside those of others, by a link pinned in `directory`: it ends with the pin. Needs no mounted
// cgroup v2, only a kernel that has it.
Result<void> start_pacing(int program_fd, const std::string &directory);

// Attaches the program that `root` has pinned if that failed when it was loaded. Does nothing on a kernel without
// cgroup v2, or if the program could not be loaded.
Result<void> resume_pacing(const std::string &root);

// Whether pl_pace is attached.
Result<bool> is_pacing(const std::string &root);

// Whether pl_pace is loaded and not attached.
Result<bool> is_pacing_lost(const std::string &root);

} // namespace podlane
