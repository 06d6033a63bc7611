// SPDX-License-Identifier: MIT
// Programs beside the plugin, found where runtimes say that plugins are.
#pragma once

#include "loader/process.hpp"
#include "maps/result.hpp"

#include <string>
#include <vector>

namespace podlane {

// In the directories of CNI_PATH. `what` it is, and what to correct if it is not there, are for the error, code 50.
Result<std::string> find_program(const std::vector<std::string> &path, const std::string &name, const std::string &what,
                                 const std::string &correct);

// "exited with code 1: what it wrote on standard error".
std::string how_it_ended(const Finished &finished);
// The remedy if a signal has killed it.
std::string remedy_of_signal(const std::string &program, const Finished &finished);

} // namespace podlane
