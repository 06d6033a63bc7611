// SPDX-License-Identifier: MIT
#include "plugin/cni/keys.hpp"
#include "maps/nearest.hpp"

#include <algorithm>
#include <array>

namespace podlane::cni {
namespace {

constexpr std::array<std::string_view, 33> kOurs{"uplink",
                                                 "gateway",
                                                 "table",
                                                 "sourceRouting",
                                                 "mtu",
                                                 "routes",
                                                 "defaultRoute",
                                                 "hostInterfacePrefix",
                                                 "fastPath",
                                                 "attach",
                                                 "antiSpoof",
                                                 "allowedSources",
                                                 "bpffs",
                                                 "maxEndpoints",
                                                 "maxPaths",
                                                 "log",
                                                 "bandwidth",
                                                 "ingressRate",
                                                 "ingressBurst",
                                                 "egressRate",
                                                 "egressBurst",
                                                 "uplinks",
                                                 "clusterCIDRs",
                                                 "mark",
                                                 "limiter",
                                                 "unshapedSubnets",
                                                 "shapedSubnets",
                                                 "allowedEtherTypes",
                                                 "firstPacket",
                                                 "slowPathMark",
                                                 "confirmIntervalMs",
                                                 "conntrackLiberal",
                                                 "stateDir"};

// Written by runtimes and libraries of Go, so read in any case.
constexpr std::array<std::string_view, 10> kSpecified{
    "cniVersion", "name", "type", "ipam", "ipMasq", "dns", "capabilities", "args", "runtimeConfig", "prevResult"};

constexpr std::array<std::string_view, 9> kForeign{"disableCheck", "disableGC",   "loadOnlyInlinedPlugins",
                                                   "plugins",      "cniVersions", "delegates",
                                                   "deviceID",     "pciBusID",    "resourceName"};

// A key in another case is the nearest one, however it is written.
std::string_view nearest_key(std::string_view key, std::span<const std::string_view> known) {
    constexpr std::size_t kTolerated = 2;
    const auto same = std::ranges::find_if(known, [&](std::string_view one) { return json::equal_any_case(key, one); });
    return same != known.end() ? *same : nearest(key, known, kTolerated);
}

Error unknown_key(std::string_view path, std::string_view key, std::span<const std::string_view> known) {
    const std::string where = path.empty() ? "" : " in " + std::string(path);
    Error error{ErrorCode::invalid_network_config, "unknown key " + json::quote(key) + where};
    if (const std::string_view near = nearest_key(key, known); !near.empty())
        error.hint = "did you mean \"" + std::string(near) + "\"?";
    else
        error.hint = "remove " + json::quote(key);
    return error;
}

bool is_foreign(std::string_view key) {
    return key.find_first_of("./") != std::string_view::npos || std::ranges::find(kForeign, key) != kForeign.end();
}

} // namespace

Result<void> check_top_level_keys(const json::Value &document) {
    const auto specified = [](std::string_view key) {
        return std::ranges::any_of(kSpecified,
                                   [key](std::string_view known) { return json::equal_any_case(key, known); });
    };
    for (const auto &[key, value] : document.items()) {
        if (is_foreign(key) || specified(key) || std::ranges::find(kOurs, key) != kOurs.end())
            continue;
        std::vector<std::string_view> known(kOurs.begin(), kOurs.end());
        known.insert(known.end(), kSpecified.begin(), kSpecified.end());
        return unknown_key({}, key, known);
    }
    return {};
}

Result<void> check_keys(const json::Node &object, std::span<const std::string_view> known) {
    TRY(object.must_be_object());
    if (object.present())
        for (const auto &[key, value] : object.value().items())
            if (std::ranges::find(known, key) == known.end())
                return unknown_key(object.path(), key, known);
    return {};
}

} // namespace podlane::cni
