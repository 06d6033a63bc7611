// SPDX-License-Identifier: MIT
#include "plugin/cni/list.hpp"

#include "plugin/cni/json.hpp"
#include "plugin/cni/version.hpp"

#include <algorithm>

namespace podlane::cni {
namespace {

bool is_podlane(const json::Value &plugin) {
    return plugin.is_object() && plugin.contains("type") && plugin.at("type") == "podlane";
}

} // namespace

Result<std::optional<std::string>> status_input(std::string_view file) {
    json::Value found = TRY(json::parse_object(file, "the network's configuration"));
    const json::Value name = found.value("name", json::Value());
    const json::Node plugins = json::Node(&found, "").at("plugins");
    if (plugins.present() && plugins.value().is_array()) {
        const auto own = std::ranges::find_if(plugins.value(), is_podlane);
        found = own == plugins.value().end() ? json::Value() : json::Value(*own);
    }
    if (!is_podlane(found))
        return std::optional<std::string>{};
    found["name"] = name;
    found["cniVersion"] = to_string(kNewestVersion);
    return std::optional(json::print(found));
}

} // namespace podlane::cni
