// SPDX-License-Identifier: MIT
// status: overview of Podlane on this node.
#include "loader/net/link.hpp"
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "loader/probe.hpp"
#include "maps/version.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/bandwidth.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/fast_path.hpp"
#include "tools/podlanectl/views/map.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "tools/podlanectl/views/uplink.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>

namespace podlane::ctl {
namespace {

struct StatusFinding {
    std::string what;
    std::string remedy;
};

struct ProgramRow {
    std::string name;
    ProgramFacts facts;
    bool there;
    std::uint64_t age_ns;
};

struct NetworkCount {
    std::string name;
    std::uint64_t endpoints;
};

struct NodeRow {
    std::string kernel;
    std::string bpffs;
    bool tcx;
    std::string fast_path;
    std::string limiters;
};

struct Report {
    NodeRow node{};
    std::vector<ProgramRow> programs{};
    std::vector<NetworkCount> networks{};
    std::vector<MapReport> maps{};
    std::vector<StatusFinding> findings{};
};

constexpr std::array<Column<NodeRow>, 6> kNode = {{
    {{"", "podlanectl", "version"}, [](const NodeRow &) { return text_cell(kVersion); }},
    {{"", "kernel", "kernel"}, [](const NodeRow &n) { return text_cell(n.kernel); }},
    {{"", "hooks", "tcx"},
     [](const NodeRow &n) {
         return Cell{n.tcx ? "tcx" : "clsact (this kernel has no tcx)", n.tcx};
     }},
    {{"", "fast path", "fast_path"}, [](const NodeRow &n) { return text_cell(n.fast_path); }},
    {{"", "bandwidth by", "limiters"}, [](const NodeRow &n) { return text_cell(n.limiters); }},
    {{"", "bpffs", "bpffs"}, [](const NodeRow &n) { return text_cell(n.bpffs); }},
}};

constexpr std::array<Column<ProgramRow>, 6> kPrograms = {{
    {{"PROGRAM", "", "name"}, [](const ProgramRow &p) { return text_cell(p.name, Tone::strong); }},
    {{"ID", "", "id", Align::right},
     [](const ProgramRow &p) { return p.there ? number_cell(p.facts.id) : text_cell(""); }},
    {{"TAG", "", "tag"}, [](const ProgramRow &p) { return text_cell(p.facts.tag); }},
    {{"LOADED", "", "age_ns", Align::right},
     [](const ProgramRow &p) {
         return p.there ? Cell{output::duration_words(p.age_ns) + " ago", p.age_ns} : text_cell("missing", Tone::bad);
     }},
    {{"RUNS", "", "run_count", Align::right},
     [](const ProgramRow &p) {
         return Cell{p.facts.run_count == 0 ? "-" : std::to_string(p.facts.run_count), p.facts.run_count};
     }},
    {{"", "", "run_ns"}, [](const ProgramRow &p) { return number_cell(p.facts.run_ns); }},
}};

constexpr std::array<Column<NetworkCount>, 2> kNetworks = {{
    {{"NETWORK", "", "network"}, [](const NetworkCount &n) { return text_cell(n.name, Tone::strong); }},
    {{"ENDPOINTS", "", "endpoints", Align::right}, [](const NetworkCount &n) { return number_cell(n.endpoints); }},
}};

constexpr std::array<Column<StatusFinding>, 2> kFindings = {{
    {{"", "wrong", "finding"}, [](const StatusFinding &f) { return text_cell(f.what, Tone::bad); }},
    {{"", "remedy", "remedy"}, [](const StatusFinding &f) { return text_cell(f.remedy); }},
}};

// Once: several views may meet the same error.
void note(Report &report, const Error &error) {
    if (std::ranges::find(report.findings, error.message, &StatusFinding::what) == report.findings.end())
        report.findings.push_back({error.message, error.hint});
}

// look_at_maps and look_at_programs say what is missing.
void note_unless_missing(Report &report, const Error &error) {
    if (error.code != ErrorCode::missing)
        note(report, error);
}

void look_at_programs(Report &report, const World &world) {
    for (const std::string_view pinned : kProgramNames) {
        const std::string name(pinned);
        const Result<Fd> program = open_program(world.bpffs, name.c_str());
        const Result<ProgramFacts> facts = program ? program_facts(program->get()) : program.error();
        if (!facts && pinned == PODLANE_PROGRAM_PACE && facts.error().code == ErrorCode::missing)
            continue; // optional: reported by "limiters"
        if (!facts) {
            report.programs.push_back({name, {}, false, 0});
            report.findings.push_back({facts.error().message, "podlanectl repair"});
            continue;
        }
        const std::uint64_t loaded = facts->loaded_ns;
        report.programs.push_back({name, *facts, true, world.boottime_ns > loaded ? world.boottime_ns - loaded : 0});
    }
}

void look_at_maps(Report &report, const World &world) {
    Result<std::vector<MapReport>> maps = read_maps(world);
    if (!maps)
        return note(report, maps.error());
    report.maps = std::move(*maps);
    for (const MapReport &map : report.maps) {
        const bool evicts = map.facts.type == BPF_MAP_TYPE_LRU_HASH || map.facts.type == BPF_MAP_TYPE_ARRAY;
        if (!map.there)
            report.findings.push_back({"map " + map.path + " is missing", "podlanectl repair"});
        else if (!map.note.empty())
            report.findings.push_back({"map " + map.path + ": " + map.note,
                                       "use the podlanectl of the installed podlane, or remove the pin"});
        else if (!evicts && map.facts.type != BPF_MAP_TYPE_ARRAY &&
                 map.entries * 20 >= std::uint64_t{map.facts.max_entries} * 19)
            report.findings.push_back({"map " + map.name + " is nearly full: " + std::to_string(map.entries) + " of " +
                                           std::to_string(map.facts.max_entries),
                                       "remove endpoints that are gone, or enlarge the map in the configuration"});
    }
}

Result<void> look_at_endpoints(Report &report, const Selection &selection, const World &world) {
    const Result<std::vector<EndpointEntry>> entries = selected_endpoints(selection, world);
    if (!entries) {
        if (!selection.selects_all())
            return entries.error();
        note_unless_missing(report, entries.error());
        return {};
    }
    std::map<std::string, std::uint64_t> count;
    for (const auto &[key, value] : *entries) {
        ++count[std::string(field_text(value.network_name))];
        if (value.ifindex != 0 && TRY(net::link_name(value.ifindex)).empty())
            report.findings.push_back({"endpoint " + pod_words(key, value) + ": its interface " +
                                           std::string(field_text(value.host_ifname)) + " is gone",
                                       "its container is gone without a DEL: the runtime's next GC removes it"});
    }
    for (const auto &[name, endpoints] : count)
        report.networks.push_back({name, endpoints});
    return {};
}

void look_at_uplinks(Report &report, const World &world) {
    const Result<std::vector<UplinkReport>> uplinks = read_uplinks(world);
    if (!uplinks)
        return note_unless_missing(report, uplinks.error());
    for (const UplinkReport &one : *uplinks)
        if (one.name.empty() || !one.has_programs)
            report.findings.push_back({one.name.empty() ? "uplink " + std::to_string(one.ifindex) + " is gone"
                                                        : "the programs on uplink " + one.name + " are missing",
                                       "podlanectl uplink sync"});
}

// Of the fast path and of limits: what is missing costs speed.
void look_at_needs(Report &report, const World &world) {
    if (const auto fault = pacing_fault(world.bpffs); !fault)
        note(report, fault.error());
    else if (*fault)
        report.findings.push_back({**fault, "podlanectl doctor --fix, or the next ADD with a limit"});
    const auto endpoints = read_map<endpoint_key, endpoint>(world.bpffs, PODLANE_MAP_ENDPOINTS);
    if (!endpoints)
        return note_unless_missing(report, endpoints.error());
    const auto without = networks_without_tracking(*endpoints);
    if (!without)
        return note(report, without.error());
    for (const std::string &network : *without)
        report.findings.push_back({"the rule is missing by which the kernel tracks connections of network " + network +
                                       ": unless another rule does, they take the slow path",
                                   "podlanectl doctor --fix"});
}

Result<Report> look(const Selection &selection, const World &world) {
    Report report;
    if (world.cleaned_rcu)
        report.findings.push_back(
            {"a killed call had left /sys/kernel/rcu_expedited switched on", "none: it is off now"});
    utsname names{};
    uname(&names);
    const auto limiters = limiters_words(world);
    report.node = {names.release, world.bpffs, has_tcx(), "", limiters ? *limiters : ""};
    if (const Result<void> live = check_live_directory(world.bpffs); !live) {
        note(report, live.error());
        return report;
    }
    if (!limiters)
        note(report, limiters.error());
    report.node.fast_path = fast_path_words(world);
    look_at_programs(report, world);
    look_at_needs(report, world);
    look_at_maps(report, world);
    TRY(look_at_endpoints(report, selection, world));
    look_at_uplinks(report, world);
    return report;
}

void print_text(const Report &report, const World &world) {
    std::string text = output::record_text(output::make_table(kNode, std::vector{report.node}), world.style);
    for (const output::Table &table : {output::make_table(kPrograms, report.programs),
                                       output::make_table(kNetworks, report.networks), map_table(report.maps)})
        if (!table.rows.empty())
            text += "\n" + output::table_text(table, world.style);
    text += "\n";
    text += report.findings.empty() ? output::toned("nothing is wrong", Tone::good, world.style) + "\n"
                                    : output::record_text(output::make_table(kFindings, report.findings), world.style);
    world.print(text);
}

output::Value json_of(const Report &report) {
    auto value = output::table_value(output::make_table(kNode, std::vector{report.node})).front();
    auto &members = std::get<output::Object>(value.data);
    members.emplace_back("programs", output::table_value(output::make_table(kPrograms, report.programs)));
    members.emplace_back("networks", output::table_value(output::make_table(kNetworks, report.networks)));
    members.emplace_back("maps", output::table_value(map_table(report.maps)));
    members.emplace_back("findings", output::table_value(output::make_table(kFindings, report.findings)));
    return value;
}

Result<int> status(const Call &call, World &world) {
    if (geteuid() != 0) // without root every feature would look unsupported
        return Error{ErrorCode::bpf, "no permission to query the kernel's programs and maps",
                     "run it as root: sudo podlanectl status", EPERM};
    const Report report = TRY(look(TRY(Selection::of(call)), world));
    if (world.json)
        world.print(output::json_text(json_of(report)));
    else
        print_text(report, world);
    return report.findings.empty() ? 0 : 1;
}

constexpr std::array<Command, 1> kStatusCommands = {{
    {"", "Show kernel, programs, endpoints by network, maps, and any problem with them.", kSelect | kRead, kWhich,
     "The exit code is 1 if something is wrong. A selection limits the endpoints.", status},
}};

} // namespace

const Noun kStatusNoun = {"status", "overview of Podlane on this node", kStatusCommands};

} // namespace podlane::ctl
