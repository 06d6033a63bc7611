// SPDX-License-Identifier: MIT
// A setting of the node that Podlane changed, as it is on disk.
#pragma once

#include "loader/net/sysctl.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

struct ChangedSetting {
    std::string name; // "net/netfilter/nf_conntrack_tcp_be_liberal"
    std::string before;
    std::string set;

    [[nodiscard]] net::SysctlPath path() const;
};

// The entries of a file, none if it is of another boot. Nothing if settings_text() has not written it: each line of
// this boot's names a setting below /proc/sys.
std::optional<std::vector<ChangedSetting>> settings_in(const std::string &text, std::string_view boot);
std::string settings_text(const std::vector<ChangedSetting> &all, std::string_view boot);

} // namespace podlane
