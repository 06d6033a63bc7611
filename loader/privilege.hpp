// SPDX-License-Identifier: MIT
// The capabilities that a process of root keeps.
#pragma once

#include "maps/result.hpp"

#include <span>

namespace podlane {

// Of its capabilities (capabilities(7)) the process keeps `kept`, and gains none by executing a program: no_new_privs
// is set (prctl(2)). Both hold for all that it starts. A capability that it does not have is not given to it.
Result<void> keep_capabilities(std::span<const int> kept);

// From now on the process makes only the calls that it needs for reading maps and files, and for serving the clients of
// a socket that listens already: bpf(2) to read only, no file opened for writing, no memory shared with a map to be
// written, no address sent to, no signal but to itself. All other calls fail (EPERM, by seccomp(2)), such as those that
// start a process or a thread, name or connect a socket, or make IPC of System V. Call it after keep_capabilities(). It
// holds for ever.
Result<void> only_read();

} // namespace podlane
