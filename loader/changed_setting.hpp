// SPDX-License-Identifier: MIT
// A setting of the node that Podlane changed, as it is on disk.
#pragma once

#include "loader/net/sysctl.hpp"

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

// The entries of a file; none of another boot. A line that names nothing below /proc/sys is passed over.
std::vector<ChangedSetting> settings_in(const std::string &text, std::string_view boot);
std::string settings_text(const std::vector<ChangedSetting> &all, std::string_view boot);

} // namespace podlane
