// SPDX-License-Identifier: MIT
#include "plugin/cni/version.hpp"

#include <algorithm>
#include <charconv>

namespace podlane::cni {

std::optional<Version> parse_version(std::string_view text) {
    Version version;
    const char *at = text.data();
    const char *const end = text.data() + text.size();
    for (unsigned *part : {&version.major, &version.minor, &version.patch}) {
        if (part != &version.major && (at == end || *at++ != '.'))
            return std::nullopt;
        const auto [next, failed] = std::from_chars(at, end, *part);
        if (failed != std::errc{} || (*at == '0' && next != at + 1)) // "01" is no number of a version
            return std::nullopt;
        at = next;
    }
    return at == end ? std::optional(version) : std::nullopt;
}

bool is_supported(Version version) {
    return std::ranges::find(kSupportedVersions, version) != kSupportedVersions.end();
}

std::string to_string(Version version) {
    return std::to_string(version.major) + "." + std::to_string(version.minor) + "." + std::to_string(version.patch);
}

std::string supported_versions_text() {
    std::string text;
    for (const Version version : kSupportedVersions)
        text += (text.empty() ? "" : ", ") + to_string(version);
    return text;
}

} // namespace podlane::cni
