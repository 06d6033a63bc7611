// SPDX-License-Identifier: MIT
// Pacing: pl_pace sets the pacing rate of TCP senders, on the root of the cgroup v2 hierarchy. Its pin and that of its
// link belong together: the link keeps it at work, and by the other one limits that change reach its connections.
#pragma once

#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <optional>
#include <string>

namespace podlane {

// Attaches the program beside those of others, by a link pinned in `directory`: it ends with the pin. Needs no mounted
// cgroup v2, only a kernel that has it.
Result<void> start_pacing(int program_fd, const std::string &directory);

// Attaches the program that `root` has pinned if that failed when it was loaded. Does nothing on a kernel without
// cgroup v2, or if the program could not be loaded.
Result<void> resume_pacing(const std::string &root);

// The same, and loads or pins the program if its pin is gone. The caller must not hold the lock.
Result<void> restore_pacing(const std::string &root);

// Whether pl_pace is attached.
Result<bool> is_pacing(const std::string &root);

// The program that is attached; an error if there is none.
Result<Fd> pacing_program(const std::string &root);

// A sentence if it is not, or has no pin, although the kernel can pace and Podlane's other pins are there. If both are
// gone, the program is loaded for the moment to find that out.
Result<std::optional<std::string>> pacing_fault(const std::string &root);

} // namespace podlane
