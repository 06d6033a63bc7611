// SPDX-License-Identifier: MIT
#include "plugin/cni/list.hpp"

#include "plugin/cni/json.hpp"
#include "plugin/cni/version.hpp"

#include <algorithm>

namespace podlane::cni {
namespace {

constexpr std::string_view kExample = R"([{"type": "podlane"}])";

bool is_podlane(const json::Node &plugin) {
    const json::Node type = plugin.at("type");
    return type.present() && type.value() == "podlane";
}

} // namespace

Result<std::optional<std::string>> status_input(std::string_view file) {
    json::Value found = TRY(json::parse_object(file, "the network's configuration"));
    const json::Value name = found.value("name", json::Value());
    if (const json::Node plugins = json::Node(&found, "").at("plugins"); plugins.present()) {
        const auto all = TRY(plugins.elements(kExample));
        for (const json::Node &one : all)
            TRY(one.must_be_object(kExample));
        const auto own = std::ranges::find_if(all, is_podlane);
        found = own == all.end() ? json::Value() : json::Value(own->value());
    }
    if (!is_podlane(json::Node(&found, "")))
        return std::optional<std::string>{};
    found["name"] = name;
    found["cniVersion"] = to_string(kNewestVersion);
    return std::optional(json::print(found));
}

} // namespace podlane::cni
