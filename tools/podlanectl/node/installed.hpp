// SPDX-License-Identifier: MIT
// Tracks the files that "podlanectl install" wrote: a list beside them has their names and content hashes.
#pragma once

#include "maps/result.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace podlane::ctl {

inline constexpr const char *kBinDir = "/opt/cni/bin";
inline constexpr const char *kConfDir = "/etc/cni/net.d";
// The first that is in front of the other networks in the runtime's order.
inline constexpr std::array<std::string_view, 2> kConflists = {"10-podlane.conflist", "00-podlane.conflist"};

// false: there is no such file. One that cannot be run, or not be looked at, is an error.
Result<bool> is_program(const std::string &path);

// The plugin, with what a build for debugging adds to it.
inline constexpr std::size_t kLargestInstalled = std::size_t{256} << 20U;

enum class Written { written, unchanged };

// Replaces directory/name by `content` atomically. A file that this function did not write, or that was changed since,
// is left alone:
// ErrorCode::already_exists.
Result<Written> install_file(const std::string &directory, std::string_view name, std::string_view content,
                             unsigned mode);
// ErrorCode::already_exists if install_file() would refuse.
Result<void> check_file(const std::string &directory, std::string_view name, std::string_view content);

enum class Removed { removed, missing, foreign };
// Removes only what install_file() wrote and nothing changed since; the list is deleted with the last file.
Result<Removed> remove_file(const std::string &directory, std::string_view name);

} // namespace podlane::ctl
