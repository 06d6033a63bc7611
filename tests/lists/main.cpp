// SPDX-License-Identifier: MIT
// Prints a list of the code as Markdown ("lists reasons"), or the names of all lists ("lists names"). tests/check/lists
// compares the docs.
#include "loader/map_plan.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/key.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {
namespace {

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text)
        out += c == '|' ? std::string("\\|") : std::string(1, c);
    return out;
}

std::string reasons() {
    std::string text = "| reason | kind | meaning |\n|---|---|---|\n";
    for (std::size_t i = REASON_NONE + 1; i < kReasons.size(); ++i)
        text += "| `" + ctl::reason_name(i) + "` | " + std::string(ctl::reason_kind_name(i)) + " | " +
                escaped(ctl::reason_sentence(i)) + " |\n";
    return text;
}

std::string commands() {
    std::string text = "| command | what it does |\n|---|---|\n";
    for (const ctl::Noun &noun : ctl::nouns())
        for (const ctl::Command &command : noun.commands)
            text += "| `" + escaped(ctl::synopsis(noun, command)) + "`" + (command.writes ? " !" : "") + " | " +
                    escaped(command.summary) + " |\n";
    return text;
}

// A JSON text as code, a number or words as they are.
std::string fallback_of(const cni::Key &key) {
    const std::string text(key.fallback);
    return text.starts_with('"') ? "`" + text + "`" : text;
}

std::string keys(const std::vector<cni::Key::Place> &places) {
    std::string text = "| key | type | default | meaning |\n|---|---|---|---|\n";
    for (const cni::Key &key : cni::keys())
        if (std::ranges::find(places, key.place) != places.end())
            text += "| `" + std::string(key.name) + "` | " + escaped(key.values) + " | " + fallback_of(key) + " | " +
                    escaped(key.meaning) + " |\n";
    return text;
}

std::string own_keys() { return keys({cni::Key::Place::top, cni::Key::Place::limits, cni::Key::Place::log}); }

std::string specification_keys() { return keys({cni::Key::Place::specification}); }

std::string unread_keys() {
    std::string text = "Also accepted, and not read:";
    for (const cni::Key &key : cni::keys())
        if (key.place == cni::Key::Place::unread)
            text += " `" + std::string(key.name) + "`";
    return text + "; and every key with a `.` or a `/` in its name.\n";
}

// A node with the 110 pods that Kubernetes allows, each limited and with an address of each family.
constexpr std::uint64_t kPods = 110;

std::uint64_t entries_on_a_node(std::string_view map) {
    if (map == PODLANE_MAP_ADDRESSES || map == PODLANE_MAP_LIMITS)
        return 2 * kPods;
    if (map == PODLANE_MAP_SENDERS)
        return 4 * kPods;
    if (map == PODLANE_MAP_NETWORKS || map == PODLANE_MAP_UPLINKS)
        return 1;
    if (map == PODLANE_MAP_COUNTERS)
        return kPods + 2; // an uplink, and what is no endpoint's
    return map == PODLANE_MAP_ISOLATION || map == PODLANE_MAP_GROUP_CIDRS || map == PODLANE_MAP_SOURCE_ROUTES ||
                   map == PODLANE_MAP_SOURCE_SLOTS
               ? 0
               : kPods;
}

std::string mebibytes(std::uint64_t bytes) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f", static_cast<double>(bytes) / (1 << 20));
    return text.data();
}

std::uint64_t node_bytes(const LoadSettings &settings, std::string_view only = {}) {
    std::uint64_t bytes = 0;
    const auto maps = planned_maps(settings);
    for (const PlannedMap &map : maps ? *maps : std::vector<PlannedMap>{})
        if (only.empty() || map.name == only)
            bytes += map_bytes(map.facts, entries_on_a_node(map.name));
    return bytes;
}

std::uint64_t node_reserve(unsigned cpus) {
    std::uint64_t bytes = 0;
    const auto maps = planned_maps({});
    for (const PlannedMap &map : maps ? *maps : std::vector<PlannedMap>{})
        bytes += reserve_bytes(map.facts, cpus);
    return bytes;
}

std::string memory() {
    constexpr std::array<unsigned, 4> kCpus = {2, 16, 64, 256};
    constexpr std::array kLarge = {PODLANE_MAP_COUNTERS, PODLANE_MAP_FLOWS, PODLANE_MAP_FORWARDED, PODLANE_MAP_PATHS};
    LoadSettings small;
    small.endpoints = 256;
    small.paths = 16384;
    std::string text =
        "| MiB on a node with 110 pods | 2 CPUs | 16 CPUs | 64 CPUs | 256 CPUs |\n|---|---|---|---|---|\n";
    const auto add = [&](const std::string &what, auto bytes) {
        text += "| " + what;
        for (const unsigned cpus : kCpus)
            text += " | " + mebibytes(bytes(cpus));
        text += " |\n";
    };
    for (const char *map : kLarge)
        add("`" + std::string(map) + "`", [&](unsigned) { return node_bytes({}, map); });
    add("all other maps", [&](unsigned) {
        std::uint64_t rest = node_bytes({});
        for (const char *map : kLarge)
            rest -= node_bytes({}, map);
        return rest;
    });
    add("in reserve for new entries", node_reserve);
    add("all", [](unsigned cpus) { return node_bytes({}) + node_reserve(cpus); });
    add("all, with `\"maxEndpoints\": 256, \"maxPaths\": 16384`",
        [&](unsigned cpus) { return node_bytes(small) + node_reserve(cpus); });
    return text;
}

std::string foreign_keys() {
    std::string text = "Keys of other main plugins, which have no effect here and are logged with a warning:";
    for (const cni::Key &key : cni::keys())
        if (key.place == cni::Key::Place::foreign)
            text += " `" + std::string(key.name) + "`";
    return text + ".\n";
}

std::string thousands(std::uint64_t number) {
    std::string text = std::to_string(number);
    for (std::size_t at = text.size(); at > 3; at -= 3)
        text.insert(at - 3, 1, ',');
    return text;
}

// Of one more, without the table of a hash.
std::uint64_t entry_bytes(MapFacts facts) {
    if (facts.type == BPF_MAP_TYPE_ARRAY)
        return facts.value_size;
    facts.max_entries = 4; // as many buckets as 3 have
    const std::uint64_t four = map_bytes(facts, 4);
    facts.max_entries = 3;
    return four - map_bytes(facts, 3);
}

std::string entry_words(const MapFacts &facts) {
    if (facts.type == BPF_MAP_TYPE_RINGBUF)
        return "1";
    return thousands(entry_bytes(facts));
}

std::string maps() {
    const auto planned = planned_maps({});
    std::string text = "| map | entries | bytes an entry | full |\n|---|---|---|---|\n";
    for (const PlannedMap &map : planned ? *planned : std::vector<PlannedMap>{}) {
        if (std::ranges::find(kMapNames, map.name) == kMapNames.end()) // not pinned
            continue;
        const std::uint64_t bytes = map_bytes(map.facts, map.facts.max_entries);
        text += "| `" + map.name + "` | " + thousands(map.facts.max_entries) + " | " + entry_words(map.facts) + " | " +
                (bytes < 1 << 20 ? std::to_string((bytes + 512) >> 10U) + " KiB" : mebibytes(bytes) + " MiB") + " |\n";
    }
    return text;
}

struct List {
    std::string_view name;
    std::string (*print)();
};

constexpr std::array<List, 8> kLists = {{
    {"reasons", reasons},
    {"commands", commands},
    {"keys", own_keys},
    {"specification", specification_keys},
    {"unread", unread_keys},
    {"foreign", foreign_keys},
    {"memory", memory},
    {"maps", maps},
}};

std::string list(std::string_view name) {
    std::string names;
    for (const List &one : kLists) {
        if (one.name == name)
            return one.print();
        names += std::string(one.name) + "\n";
    }
    return name == "names" ? names : std::string();
}

} // namespace
} // namespace podlane

int main(int argc, char **argv) {
    const std::string text = podlane::list(argc == 2 ? argv[1] : "");
    std::fputs(text.c_str(), stdout);
    return text.empty() ? 2 : 0;
}
