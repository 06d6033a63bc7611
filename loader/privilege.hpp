// SPDX-License-Identifier: MIT
// The capabilities that a process of root keeps.
#pragma once

#include "maps/result.hpp"

#include <span>

namespace podlane {

// Of its capabilities (capabilities(7)) the process keeps `kept`, and gains none by executing a program: no_new_privs
// is set (prctl(2)). Both hold for all that it starts. A capability that it does not have is not given to it.
Result<void> keep_capabilities(std::span<const int> kept);

// From now on the process reads: bpf(2) to read only, no file opened for writing, made, renamed or removed, no memory
// shared with a map to be written, no program executed, no connection opened, nothing sent to an address, no signal to
// another process, and no process's priority or another one's limits changed (EPERM, by seccomp(2)). Call it after
// keep_capabilities(). It holds for ever.
Result<void> only_read();

} // namespace podlane
