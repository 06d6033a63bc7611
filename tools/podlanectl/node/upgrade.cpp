// SPDX-License-Identifier: MIT
// upgrade: brings a running node to the version of this podlanectl.
#include "loader/upgrade.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <array>

namespace podlane::ctl {
namespace {

Cell id_cell(std::uint32_t id) { return id == 0 ? text_cell("") : number_cell(id); }

constexpr std::array<Column<UpgradedProgram>, 5> kUpgradedPrograms = {{
    {{"PROGRAM", "", "name"}, [](const UpgradedProgram &p) { return text_cell(p.name, Tone::strong); }},
    {{"OLD ID", "", "old_id", Align::right}, [](const UpgradedProgram &p) { return id_cell(p.old_id); }},
    {{"OLD TAG", "", "old_tag"}, [](const UpgradedProgram &p) { return text_cell(p.old_tag); }},
    {{"ID", "", "id", Align::right}, [](const UpgradedProgram &p) { return id_cell(p.new_id); }},
    {{"TAG", "", "tag"}, [](const UpgradedProgram &p) { return text_cell(p.new_tag); }},
}};

Cell what_cell(const UpgradedMap &map) {
    if (map.was.empty())
        return {"new", "new"};
    return map.was == map.name ? Cell{"kept", "kept"} : Cell{"carried over from " + map.was, "carried-over"};
}

constexpr std::array<Column<UpgradedMap>, 4> kUpgradedMaps = {{
    {{"MAP", "", "name"}, [](const UpgradedMap &m) { return text_cell(m.name, Tone::strong); }},
    {{"", "", "was"}, [](const UpgradedMap &m) { return text_cell(m.was); }},
    {{"ENTRIES", "", "carried_over", Align::right},
     [](const UpgradedMap &m) {
         return Cell{m.was.empty() || m.was == m.name ? "" : std::to_string(m.carried), m.carried};
     }},
    {{"", "", "what"}, what_cell},
}};

std::string text_of(const Upgraded &done, const World &world) {
    std::string text;
    if (!done.programs.empty())
        text = output::table_text(output::make_table(kUpgradedPrograms, done.programs), world.style) + "\n";
    for (const std::string &name : done.pins)
        text += "pin " + name + ": was missing, and is restored\n";
    for (const UpgradedMap &map : done.maps)
        if (map.was != map.name)
            text += "map " + map.name + ": " + what_cell(map).text +
                    (map.was.empty() ? "" : ", " + std::to_string(map.carried) + " entries") + "\n";
    return text + "replaced on " + std::to_string(done.hooks) + " hooks\n";
}

Result<int> upgrade_node(const Call &call, World &world) {
    TRY(check_live_directory(world.bpffs));
    const Upgraded done = TRY(upgrade(world.bpffs, call.has(Opt::force)));
    if (world.json)
        world.print(output::json_text(
            output::Object{{"upgraded", done.needed},
                           {"programs", output::table_value(output::make_table(kUpgradedPrograms, done.programs))},
                           {"maps", output::table_value(output::make_table(kUpgradedMaps, done.maps))},
                           {"hooks", done.hooks},
                           {"pins", output::Value(done.pins)}}));
    else if (done.needed)
        world.print(text_of(done, world));
    else
        world.print("the programs already have this version\n");
    return 0;
}

constexpr std::array<Command, 1> kUpgradeCommands = {{
    {"",
     "Replace all programs by this version's, and carry the maps over.",
     kPlain | Opts{Opt::force},
     {},
     "Each hook changes over at once, between two packets; flows, counters and limits continue. ADD and DEL wait\n"
     "meanwhile. If a step fails, the previous version continues to work. An older podlanectl downgrades in the "
     "same manner.\n"
     "--force replaces the programs even if they are this version's already.",
     upgrade_node,
     true},
}};

} // namespace

const Noun kUpgradeNoun = {"upgrade", "bring a running node to the version of this podlanectl", kUpgradeCommands};

} // namespace podlane::ctl
