// SPDX-License-Identifier: MIT
// Replaces the programs and maps of a running node, of whatever build or version, by those of this binary.
#pragma once

#include "maps/result.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane {

struct UpgradedMap {
    std::string name;          // as it is now
    std::string was{};         // the name it had; empty: it is new
    std::uint64_t carried = 0; // entries that were carried over into a new layout
};
struct UpgradedProgram {
    std::string name;
    std::uint32_t old_id = 0; // 0: it is new
    std::uint32_t new_id = 0;
    std::string old_tag{};
    std::string new_tag{};
};
struct Upgraded {
    bool needed = true; // false: the node's programs are this binary's, and nothing was done
    std::vector<UpgradedMap> maps{};
    std::vector<UpgradedProgram> programs{};
    std::uint64_t hooks = 0;         // on which a program was replaced
    std::vector<std::string> pins{}; // that were missing, and are there again (loader/pin_again.hpp)
};

// Whether the pinned programs are all of this build.
Result<bool> is_current(const std::string &root);

// Maps of the same version go on being used by the new programs, the entries of others are carried over; each hook gets
// its new program by one replacement, and the pins change together. Until then the old version is in charge, and
// if a step fails it is again. ADDs wait meanwhile. With `always` also if is_current(). Pins that are not Podlane's
// (loader/wrong_pins.hpp) are replaced, and pins that are missing restored, first of all from what programs still have
// (loader/pin_again.hpp). If all is current then but the pins of pacing (loader/pace.hpp), only those are restored.
// Endpoints of which the maps have no entry for the programs keep those that they have: a repair restores the entries
// first.
Result<Upgraded> upgrade(const std::string &root, bool always);

// Restores pins that are missing, as an upgrade does. If there are maps of another version, it does nothing, and the
// error is that of check_pins(): whether to bring the node to this version is an administrator's decision.
Result<void> complete_pins(const std::string &root);

} // namespace podlane
