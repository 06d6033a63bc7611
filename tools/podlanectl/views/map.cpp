// SPDX-License-Identifier: MIT
// map list: the pinned maps, how full they are, and pins that do not belong there.
#include "tools/podlanectl/views/map.hpp"

#include "loader/pins.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <algorithm>
#include <array>

namespace podlane::ctl {
namespace {

using output::Value;

bool evicts(const MapReport &map) {
    return map.facts.type == BPF_MAP_TYPE_LRU_HASH || map.facts.type == BPF_MAP_TYPE_LRU_PERCPU_HASH ||
           map.facts.type == BPF_MAP_TYPE_ARRAY;
}

// Empty if the map does not exist.
Cell if_there(const MapReport &map, Cell cell) { return map.there ? std::move(cell) : text_cell(""); }

Cell fill_cell(const MapReport &map) {
    if (map.facts.type == BPF_MAP_TYPE_RINGBUF || map.facts.type == BPF_MAP_TYPE_ARRAY)
        return text_cell("");
    const bool nearly_full = !evicts(map) && map.entries * 10 >= std::uint64_t{map.facts.max_entries} * 9;
    return if_there(map, {output::percent_words(map.entries, map.facts.max_entries), Value(),
                          nearly_full ? Tone::warning : Tone::plain});
}

constexpr std::array<Column<MapReport>, 11> kMapColumns = {{
    {{"NAME", "", "name"}, [](const MapReport &m) { return text_cell(m.name, Tone::strong); }},
    {{"VERSION", "", "version", Align::right},
     [](const MapReport &m) { return m.version == 0 ? text_cell("") : number_cell(m.version); }},
    {{"TYPE", "", "type"}, [](const MapReport &m) { return if_there(m, text_cell(map_type_name(m.facts.type))); }},
    {{"ENTRIES", "", "entries", Align::right}, [](const MapReport &m) { return if_there(m, number_cell(m.entries)); }},
    {{"CAPACITY", "", "capacity", Align::right},
     [](const MapReport &m) { return if_there(m, number_cell(m.facts.max_entries)); }},
    {{"FILL", "", "", Align::right}, fill_cell},
    {{"MEMORY", "", "memory_bytes", Align::right},
     [](const MapReport &m) {
         return if_there(m, {output::bytes_words(m.memory), m.memory});
     }},
    {{"ID", "", "id", Align::right}, [](const MapReport &m) { return if_there(m, number_cell(m.facts.id)); }},
    {{"", "", "path"}, [](const MapReport &m) { return text_cell(m.path); }},
    {{"", "", "known"},
     [](const MapReport &m) {
         return Cell{"", m.known};
     }},
    {{"NOTE", "", "note"}, [](const MapReport &m) { return text_cell(m.note, m.there ? Tone::warning : Tone::bad); }},
}};

const KnownMap *known_map(std::string_view name) {
    const auto found = std::ranges::find(known_maps(), name, &KnownMap::name);
    return found == known_maps().end() ? nullptr : &*found;
}

// How `version` of a map compares with this binary's; empty if this binary has no such map.
std::string version_note(std::string_view base, unsigned version) {
    for (const KnownMap &known : known_maps())
        if (const auto [name, ours] = split_version(known.name); name == base && ours != version)
            return std::string(version < ours ? "earlier" : "later") + " version than this podlanectl's " +
                   std::to_string(ours);
    return {};
}

Result<std::optional<MapReport>> read_one(const std::string &directory, const std::string &name) {
    Result<OpenMap> map = open_pinned_map(directory + "/" + name);
    if (!map && is_no_object(map.error()) && map.error().system_errno != EACCES)
        return std::optional<MapReport>{}; // a program, a link, or deleted meanwhile
    if (!map)
        return std::move(map).error();
    MapReport report;
    report.name = name;
    report.version = split_version(name).second;
    report.there = true;
    report.known = known_map(name) != nullptr;
    report.path = map->path;
    report.facts = map->facts;
    if (report.facts.type != BPF_MAP_TYPE_RINGBUF)
        report.entries = TRY(count_entries(*map));
    report.memory = map_memory(*map);
    report.note = version_note(split_version(name).first, report.version);
    return std::optional(std::move(report));
}

} // namespace

Result<std::vector<MapReport>> read_maps(const World &world) {
    TRY(check_live_directory(world.bpffs));
    std::vector<MapReport> maps;
    for (const std::string &name : TRY(pin_names(live_directory(world.bpffs))))
        if (auto map = TRY(read_one(live_directory(world.bpffs), name)))
            maps.push_back(std::move(*map));
    for (const KnownMap &known : known_maps())
        if (std::ranges::find(maps, known.name, &MapReport::name) == maps.end()) {
            MapReport missing;
            missing.name = known.name;
            missing.version = split_version(known.name).second;
            missing.known = true;
            missing.note = "missing";
            missing.path = pin_path(world.bpffs, known.name);
            maps.push_back(std::move(missing));
        }
    // Left by an upgrade or a crash beside the live directory.
    for (const std::string &name : TRY(pin_names(world.bpffs)))
        if (auto map = TRY(read_one(world.bpffs, name))) {
            map->note += (map->note.empty() ? "" : ", ") + std::string("outside the live directory");
            maps.push_back(std::move(*map));
        }
    return maps;
}

output::Table map_table(const std::vector<MapReport> &maps) { return output::make_table(kMapColumns, maps); }

namespace {

Result<int> map_list(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    std::vector<MapReport> maps = TRY(read_maps(world));
    const bool complete = std::ranges::all_of(maps, &MapReport::there);
    if (!selection.selects_all()) {
        TRY(selected_endpoints(selection, world)); // fails if there is none
        for (MapReport &map : maps)
            map.entries = map.known && map.there ? TRY(count_selected(*known_map(map.name), selection, world)) : 0;
        std::erase_if(maps, [](const MapReport &map) { return map.there && map.entries == 0; });
    }
    world.print(map_table(maps));
    return complete ? 0 : 1;
}

constexpr Argument kMap{"MAP", true,
                        "its name, with or without version, or the beginning of it (\"podlanectl map list\")"};
constexpr Argument kKey{"KEY", false, "the entry's key, as \"podlanectl map dump\" prints it"};
constexpr std::string_view kGetDetail =
    "KEY is one or more words, in the order of the columns of \"podlanectl map dump MAP\". Words that are not needed "
    "to\n"
    "identify the entry may be left out:\n"
    "  endpoints      POD [IFNAME]\n"
    "  interfaces     INTERFACE (also bandwidths, counters, isolation, uplinks)\n"
    "  addresses      [NETWORK] ADDRESS\n"
    "  networks       NETWORK\n"
    "  paths          [INTERFACE] [PROTOCOL] LOCAL PEER (also kept_paths, flows)\n"
    "  forwarded      PROTOCOL SOURCE DESTINATION\n"
    "  allowed_srcs   [INTERFACE] PREFIX\n"
    "  cluster_cidr   [NETWORK] PREFIX\n"
    "  source_route   [INTERFACE] SOURCE\n"
    "  source_slots   [INTERFACE] FAMILY NUMBER\n"
    "  limit_state    [INTERFACE] DIRECTION\n"
    "  limit_groups   GROUP [NETWORK]\n"
    "  exempt         [INTERFACE] [DIRECTION] PREFIX\n"
    "  senders        [NETNS] ADDRESS\n"
    "  group_cidrs    [INTERFACE] PREFIX\n"
    "  history        NUMBER\n"
    "  watch          no KEY\n"
    "INTERFACE is an interface's number or anything else that names an endpoint. For PREFIX, an address selects the\n"
    "longest prefix that contains it. The exit code is 1 if there is no such entry.";

constexpr std::array<Command, 3> kMapCommands = {{
    {"list", "List the maps with entries, capacity and memory.", kSelect | kRead, kWhich,
     "Maps of another version of Podlane are listed too, with a note. The exit code is 1 if a map is missing. With a\n"
     "selection of endpoints: the maps with entries of theirs, and the number of these entries.",
     map_list},
    {"dump", "Print every entry of a map in words.", kSelect | kRead, kMap,
     "With a selection of endpoints: their entries, and those of their networks.", map_dump},
    {"get", "Print one entry of a map in words.", kSelect | kRead, kMap, kGetDetail, map_get, false, kKey},
}};

} // namespace

const Noun kMapNoun = {"map", "the pinned BPF maps that hold all state", kMapCommands};

} // namespace podlane::ctl
