// The functions behind the table of commands, and the tables several of them print.
#pragma once

#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/cli/selection.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace podlane {
class History;
}

namespace podlane::ctl {

// What their tables are made of.
using output::Align;
using output::Cell;
using output::Column;
using output::list_cell;
using output::number_cell;
using output::text_cell;
using output::Tone;

Result<int> endpoint_list(const Call &call, World &world);
Result<int> endpoint_show(const Call &call, World &world);
Result<int> bandwidth_list(const Call &call, World &world);
Result<int> bandwidth_show(const Call &call, World &world);
Result<int> bandwidth_set(const Call &call, World &world);
Result<int> bandwidth_clear(const Call &call, World &world);
Result<int> counter_list(const Call &call, World &world);
Result<int> map_list(const Call &call, World &world);
Result<int> map_dump(const Call &call, World &world);
Result<int> map_get(const Call &call, World &world);
Result<int> network_list(const Call &call, World &world);
Result<int> path_list(const Call &call, World &world);
Result<int> path_show(const Call &call, World &world);
Result<int> source_list(const Call &call, World &world);
Result<int> source_show(const Call &call, World &world);
// path show with a source and a destination.
Result<int> which_way(const Call &call, World &world);
Result<int> path_flush(const Call &call, World &world);
Result<int> uplink_list(const Call &call, World &world);
Result<int> uplink_sync(const Call &call, World &world);
Result<int> uplink_detach(const Call &call, World &world);
Result<int> status(const Call &call, World &world);
Result<int> upgrade_node(const Call &call, World &world);
Result<int> explain(const Call &call, World &world);
Result<int> monitor(const Call &call, World &world);
Result<int> top(const Call &call, World &world);
Result<int> doctor_command(const Call &call, World &world);
Result<int> history_list(const Call &call, World &world);
Result<int> metrics(const Call &call, World &world);
Result<int> program_list(const Call &call, World &world);
Result<int> gc(const Call &call, World &world);
Result<int> install(const Call &call, World &world);
Result<int> uninstall(const Call &call, World &world);
Result<int> version(const Call &call, World &world);
Result<int> completion_bash(const Call &call, World &world);
Result<int> completion_zsh(const Call &call, World &world);
Result<int> completion_fish(const Call &call, World &world);
Result<int> man(const Call &call, World &world);

output::Table endpoint_table(const std::vector<EndpointEntry> &entries, const World &world);

// Counters of one endpoint, summed over the CPUs.
struct EndpointCounters {
    std::uint32_t ifindex = 0;
    std::string pod{}; // empty: no endpoint is known for it
    std::string container_id{};
    counters total{};
};
// In the order of `entries`; where `orphans`, then those without an endpoint.
Result<std::vector<EndpointCounters>> read_counters(const std::vector<EndpointEntry> &entries, bool orphans,
                                                    const World &world);
// With `before`, also what came each second since then.
output::Table counter_table(const std::vector<EndpointCounters> &all, bool zeros, const Before *before = nullptr,
                            std::uint64_t now_ns = 0);

// Names of the networks by their numbers; empty where the map is not there.
std::map<std::uint32_t, std::string> network_names(const World &world);
// The name, or the number in hexadecimal digits.
std::string network_words(const std::map<std::uint32_t, std::string> &names, std::uint32_t network);

std::string_view verb_name(std::uint8_t operation_verb); // "ADD"
Result<History> open_history(const World &world);
// What is remembered of the endpoints chosen, the newest first, at most so many.
Result<output::Table> history_table(const Selection &selection, std::size_t most, const World &world);

// The flows in `paths` of the endpoints chosen; of all, also of those that are gone.
Result<output::Table> path_table(const Selection &selection, const World &world);
Result<output::Table> network_table(const Selection &selection, const World &world);

// One interface in the map of uplinks.
struct UplinkReport {
    std::uint32_t ifindex = 0;
    std::string name{}; // empty: the interface is gone
    std::vector<std::string> networks{};
    bool has_programs = false;
};
Result<std::vector<UplinkReport>> read_uplinks(const World &world);
// Those of this name, and those of the networks of the endpoints chosen.
Result<std::vector<UplinkReport>> selected_uplinks(const Selection &selection, const World &world);
output::Table uplink_table(const std::vector<UplinkReport> &all);
// As the networks' last ADDs asked for. Takes the exclusive lock; the answer is what was left out, in sentences.
Result<std::vector<std::string>> sync_all_uplinks(const std::string &root);

// The buckets of the endpoints chosen; of all, also of those that are gone.
Result<output::Table> limit_state_table(const Selection &selection, const World &world);
// What this kernel can hold limits by, as "pace, edt, bucket".
std::string limiters_words(const World &world);

// Part of a map's key, as a column of its dump.
struct KeyPart {
    enum class Kind { word, endpoint, address, prefix };
    std::string_view column; // title, or field where it has none
    Kind kind = Kind::word;
};

// A map of this version of Podlane.
struct KnownMap {
    std::string_view name; // as pinned
    std::string_view holds;
    Result<output::Table> (*dump)(const Selection &selection, const World &world);
    std::array<KeyPart, 4> key{};
    bool as_records = false; // too wide for a table
    // As dump, with what dump leaves out of an entry.
    Result<output::Table> (*get)(const Selection &selection, const World &world) = nullptr;
};
std::span<const KnownMap> known_maps();
// By full name, name without version, or the beginning of one.
Result<const KnownMap *> find_map(std::string_view word);
void print_entries(const KnownMap &map, const output::Table &entries, World &world);
// How many entries of the map are of the endpoints chosen, or of their networks.
Result<std::uint64_t> count_selected(const KnownMap &map, const Selection &selection, const World &world);

// One map lying below the root, or one that should.
struct MapReport {
    std::string name;
    unsigned version = 0;
    bool there = false;
    bool known = false;
    std::string note{}; // what is unusual about it
    std::string path{};
    MapFacts facts{};
    std::uint64_t entries = 0;
    std::uint64_t memory = 0;
};
Result<std::vector<MapReport>> read_maps(const World &world);
output::Table map_table(const std::vector<MapReport> &maps);

} // namespace podlane::ctl
