// Files that "podlanectl install" wrote, and only those: a list beside them says which, and what was in them.
#pragma once

#include "maps/result.hpp"

#include <string>
#include <string_view>

namespace podlane::ctl {

inline constexpr std::string_view kBinDir = "/opt/cni/bin";
inline constexpr std::string_view kConfDir = "/etc/cni/net.d";
inline constexpr std::string_view kConflist = "10-podlane.conflist";

enum class Written { written, unchanged };

// Puts `content` at directory/name in one step: at each moment there is the old file or the new one, whole. A file that
// is there, and that this function did not write or somebody changed since, is left alone:
// ErrorCode::already_exists.
Result<Written> install_file(const std::string &directory, std::string_view name, std::string_view content,
                             unsigned mode);
// ErrorCode::already_exists where install_file() would refuse.
Result<void> check_file(const std::string &directory, std::string_view name, std::string_view content);

enum class Removed { removed, missing, foreign };
// Only what install_file() wrote and nobody changed; the list goes with the last file.
Result<Removed> remove_file(const std::string &directory, std::string_view name);

Result<std::string> read_file(const std::string &path);

} // namespace podlane::ctl
