// The functions behind the table of commands, and the tables several of them print.
#pragma once

#include "cli.hpp"
#include "selection.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace podlane {
class History;
}

namespace podlane::ctl {

Result<int> endpoint_list(const Call &call, World &world);
Result<int> endpoint_show(const Call &call, World &world);
Result<int> bandwidth_list(const Call &call, World &world);
Result<int> bandwidth_show(const Call &call, World &world);
Result<int> bandwidth_set(const Call &call, World &world);
Result<int> bandwidth_clear(const Call &call, World &world);
Result<int> counter_list(const Call &call, World &world);
Result<int> map_list(const Call &call, World &world);
Result<int> map_dump(const Call &call, World &world);
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
// All that is remembered, the newest first.
Result<output::Table> history_table(const World &world);

// All flows in `paths`, with the pods they belong to where those are known.
Result<output::Table> path_table(const World &world);
Result<output::Table> network_table(const World &world);

// One interface in the map of uplinks.
struct UplinkReport {
    std::uint32_t ifindex = 0;
    std::string name{}; // empty: the interface is gone
    std::vector<std::string> networks{};
    bool has_programs = false;
};
Result<std::vector<UplinkReport>> read_uplinks(const World &world);
output::Table uplink_table(const std::vector<UplinkReport> &all);
// As the networks' last ADDs asked for. Takes the exclusive lock; the answer is what was left out, in sentences.
Result<std::vector<std::string>> sync_all_uplinks(const std::string &root);

// Every limit with what it counted.
Result<output::Table> bandwidth_table(const World &world);
// What this kernel can hold limits by, as "pace, edt, bucket".
std::string limiters_words(const World &world);

// A map of this version of Podlane.
struct KnownMap {
    std::string_view name; // as pinned
    std::string_view holds;
    Result<output::Table> (*dump)(const World &world);
    bool as_records = false; // too wide for a table
};
std::span<const KnownMap> known_maps();

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
