// SPDX-License-Identifier: MIT
// Files of the state directory. A write is a rename of a whole file, so a killed process leaves the old or the new one,
// also among several that write the same file at once.
#pragma once

#include "maps/result.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace podlane {

// None if there is no regular file.
Result<std::optional<std::string>> read_state_file(const std::string &path);

// An error if others than this process' user can have written it.
Result<std::optional<std::string>> read_own_state_file(const std::string &path);

enum class Hidden { not_listed, too };
// The entries of a directory, sorted; nothing if there is no such directory.
Result<std::vector<std::string>> names_in(const std::string &directory, Hidden hidden = Hidden::not_listed);

// With its parents, mode 0700. One that exists is no error.
Result<void> make_directory(const std::string &path);
// Of a link in the place of a directory.
Error leads_to_nothing(const std::string &path);
// Whether files can be created in it.
Result<void> check_writable(const std::string &directory);
// Whether a directory is in the place of a file that replace_file() would write, which it never removes.
Result<void> check_replaceable(const std::string &directory, const std::string &name);

// When the kernel begins to write: later is half a minute, and costs half.
enum class Begin { at_once, later };
// Creates the directory if it is missing. Nothing waits for the disk.
Result<void> replace_file(const std::string &directory, const std::string &name, const std::string &text,
                          Begin begin = Begin::at_once);

// Adds to a file that is there: no inode, no block and no rename, a tenth of the cost. false: there is none, or it was
// replaced or removed meanwhile. Whoever reads it meanwhile, or after this call was killed, may find a part of what is
// added; an error leaves none. Nobody else may write to it at the same time. The kernel begins to write later.
Result<bool> append_to_file(const std::string &path, const std::string &text);

// Cuts off the end of a file that is `from` bytes long, which takes no room on the disk. false: it has another length,
// or there is none.
Result<bool> cut_file(const std::string &path, std::size_t from, std::size_t to);

// The file that a killed replace_file() was writing to; one that is being written to stays.
Result<void> remove_unfinished(const std::string &path);

} // namespace podlane
