// SPDX-License-Identifier: MIT
#include "loader/changed_setting.hpp"

#include <algorithm>
#include <sstream>

namespace podlane {
namespace {

bool is_below_root(const net::SysctlPath &path) {
    return path.size() > 1 &&
           std::ranges::none_of(path, [](const auto &part) { return part.empty() || part == "." || part == ".."; });
}

bool is_boot_id(std::string_view text) {
    constexpr std::size_t kLength = 36;
    return text.size() == kLength && text.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
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
std::optional<std::vector<ChangedSetting>> settings_in(const std::string &text, std::string_view boot) {
    std::istringstream lines(text);
    std::string line;
    std::vector<ChangedSetting> all;
    if (!text.ends_with('\n') || !std::getline(lines, line) || (line != boot && !is_boot_id(line)))
        return std::nullopt;
    if (line != boot)
        return all;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        ChangedSetting one;
        if (!std::getline(fields, one.name, '\t') || !std::getline(fields, one.before, '\t') ||
            !std::getline(fields, one.set, '\t') || one.set.empty() || !is_below_root(one.path()))
            return std::nullopt;
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
