// SPDX-License-Identifier: MIT
#include "loader/changed_setting.hpp"

#include <algorithm>
#include <sstream>

namespace podlane {
namespace {

bool is_below_root(const net::SysctlPath &path) {
    return !path.empty() &&
           std::ranges::none_of(path, [](const auto &part) { return part.empty() || part == "." || part == ".."; });
}

} // namespace

net::SysctlPath ChangedSetting::path() const {
    net::SysctlPath components;
    std::istringstream parts(name);
    for (std::string part; std::getline(parts, part, '/');)
        components.push_back(part);
    return components;
}

// Lines "NAME<tab>BEFORE<tab>SET" behind one with the boot.
std::vector<ChangedSetting> settings_in(const std::string &text, std::string_view boot) {
    std::istringstream lines(text);
    std::string line;
    std::vector<ChangedSetting> all;
    if (!std::getline(lines, line) || line != boot)
        return all;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        ChangedSetting one;
        if (std::getline(fields, one.name, '\t') && std::getline(fields, one.before, '\t') &&
            std::getline(fields, one.set, '\t') && !one.set.empty() && is_below_root(one.path()))
            all.push_back(std::move(one));
    }
    return all;
}

std::string settings_text(const std::vector<ChangedSetting> &all, std::string_view boot) {
    std::string text = std::string(boot) + "\n";
    for (const ChangedSetting &one : all)
        text.append(one.name).append("\t").append(one.before).append("\t").append(one.set).append("\n");
    return text;
}

} // namespace podlane
