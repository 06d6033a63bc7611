// SPDX-License-Identifier: MIT
#include "plugin/cni/keys.hpp"
#include "maps/nearest.hpp"

#include <algorithm>

namespace podlane::cni {
namespace {

constexpr std::string_view kLogPrefix = "log.";

bool is_at_top(Key::Place place) { return place != Key::Place::log; }

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

// Keys with a '.' or a '/' belong to runtimes and other plugins.
bool is_known(std::string_view key) {
    if (key.find_first_of("./") != std::string_view::npos)
        return true;
    return std::ranges::any_of(keys(), [key](const Key &known) {
        const bool any_case = known.place == Key::Place::specification;
        return is_at_top(known.place) && (any_case ? json::equal_any_case(key, known.name) : key == known.name);
    });
}

} // namespace

std::vector<std::string_view> keys_of(Key::Place place) {
    std::vector<std::string_view> names;
    for (const Key &key : keys())
        if (key.place == place)
            names.push_back(place == Key::Place::log ? key.name.substr(kLogPrefix.size()) : key.name);
    return names;
}

Result<void> check_top_level_keys(const json::Value &document) {
    for (const auto &[key, value] : document.items()) {
        if (is_known(key))
            continue;
        std::vector<std::string_view> known;
        for (const Key &one : keys())
            if (is_at_top(one.place) && one.place != Key::Place::unread && one.place != Key::Place::foreign)
                known.push_back(one.name);
        return unknown_key({}, key, known);
    }
    return {};
}

std::vector<std::string> foreign_keys(const json::Value &document) {
    std::vector<std::string> sentences;
    for (const Key &key : keys())
        if (key.place == Key::Place::foreign && document.contains(key.name))
            sentences.push_back(json::quote(key.name) +
                                " is a key of other plugins and has no effect: " + std::string(key.meaning));
    return sentences;
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
