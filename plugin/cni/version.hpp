// SPDX-License-Identifier: MIT
// The versions of the CNI specification Podlane speaks: all that were published, 0.1.0 to 1.1.0.
#pragma once

#include "plugin/cni/types.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace podlane::cni {

inline constexpr std::array<Version, 7> kSupportedVersions{
    {{0, 1, 0}, {0, 2, 0}, {0, 3, 0}, {0, 3, 1}, {0, 4, 0}, {1, 0, 0}, {1, 1, 0}}};
inline constexpr Version kOldestVersion = kSupportedVersions.front(); // also what a missing cniVersion means
inline constexpr Version kNewestVersion = kSupportedVersions.back();
inline constexpr Version kFirstWithInterfaces{0, 3, 0};
inline constexpr Version kFirstWithCheck{0, 4, 0};
inline constexpr Version kFirstWithoutIpVersion{1, 0, 0};
inline constexpr Version kFirstWithGc{1, 1, 0}; // and STATUS, and the mtu and route details in results

// "1.1.0": three plain decimal numbers; no value for anything else.
std::optional<Version> parse_version(std::string_view text);
[[nodiscard]] bool is_supported(Version version);
using podlane::to_string; // of addresses, which this one would hide
std::string to_string(Version version);
// "0.1.0, 0.2.0, …", for messages.
std::string supported_versions_text();

} // namespace podlane::cni
