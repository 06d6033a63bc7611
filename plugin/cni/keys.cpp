#include "plugin/cni/keys.hpp"

#include <algorithm>
#include <array>
#include <numeric>

namespace podlane::cni {
namespace {

constexpr std::array<std::string_view, 31> kOurs{
    "uplink",      "gateway",         "table",        "sourceRouting",
    "mtu",         "routes",          "defaultRoute", "hostInterfacePrefix",
    "fastPath",    "attach",          "antiSpoof",    "allowedSources",
    "bpffs",       "maxEndpoints",    "maxPaths",     "log",
    "bandwidth",   "ingressRate",     "ingressBurst", "egressRate",
    "egressBurst", "uplinks",         "clusterCIDRs", "mark",
    "limiter",     "unshapedSubnets", "shapedSubnets", "firstPacket",
    "slowPathMark", "confirmIntervalMs", "conntrackLiberal"};

// Written by runtimes and libraries of Go, so read in any case.
constexpr std::array<std::string_view, 10> kSpecified{
    "cniVersion", "name", "type", "ipam", "ipMasq", "dns", "capabilities", "args", "runtimeConfig", "prevResult"};

constexpr std::array<std::string_view, 9> kForeign{"disableCheck", "disableGC",   "loadOnlyInlinedPlugins",
                                                   "plugins",      "cniVersions", "delegates",
                                                   "deviceID",     "pciBusID",    "resourceName"};

constexpr std::size_t kLongestGuess = 32;

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0U);
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0]++;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
        }
    }
    return row[b.size()];
}

// Empty where nothing is near: more than a third of the letters wrong is another word.
std::string_view nearest(std::string_view key, std::span<const std::string_view> known) {
    if (key.size() > kLongestGuess)
        return {};
    std::string_view best;
    std::size_t best_distance = std::max<std::size_t>(2, key.size() / 3) + 1;
    for (const std::string_view candidate : known) {
        if (json::equal_any_case(key, candidate))
            return candidate;
        const std::size_t distance = edit_distance(key, candidate);
        if (distance < best_distance && distance < candidate.size()) {
            best = candidate;
            best_distance = distance;
        }
    }
    return best;
}

Error unknown_key(std::string_view path, std::string_view key, std::span<const std::string_view> known) {
    const std::string where = path.empty() ? "" : " in " + std::string(path);
    Error error{ErrorCode::invalid_network_config, "unknown key " + json::quote(key) + where};
    if (const std::string_view near = nearest(key, known); !near.empty())
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
