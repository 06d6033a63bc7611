// SPDX-License-Identifier: MIT
// Files of the state directory. A write is a rename of a whole file, so a killed process leaves the old or the new one.
#pragma once

#include "maps/result.hpp"

#include <optional>
#include <string>
#include <vector>

namespace podlane {

// None where there is no file.
Result<std::optional<std::string>> read_state_file(const std::string &path);

// What a directory holds, sorted, without hidden files; nothing if there is no such directory.
Result<std::vector<std::string>> names_in(const std::string &directory);

// With its parents, mode 0700. One that exists is no error.
Result<void> make_directory(const std::string &path);

// Creates the directory if it is missing. Nothing waits for the disk: the kernel begins to write at once.
Result<void> replace_file(const std::string &directory, const std::string &name, const std::string &text);

} // namespace podlane
