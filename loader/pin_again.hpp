// SPDX-License-Identifier: MIT
// Pins that were removed while programs are at work: these and their maps live on without a pin. Whoever made new maps
// instead would attach programs that find no pod's entries, and drop all packets.
#pragma once

#include "maps/result.hpp"

#include <string>
#include <vector>

namespace podlane {

// Pins what is missing below `root` again if a program has it that is pinned there, or that works on a map pinned there
// and is attached in the calling thread's network namespace. Returns the names. Maps that no program works on, and
// programs that are nowhere attached, are gone with their pins. Needs the lock of the root; the shared one is enough.
Result<std::vector<std::string>> pin_again(const std::string &root);

} // namespace podlane
