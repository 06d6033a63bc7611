// SPDX-License-Identifier: MIT
// history list: the last CNI calls of the plugin, and where their time went.
#include "tools/podlanectl/views/history.hpp"

#include "maps/entries.hpp"
#include "maps/history.hpp"
#include "maps/text.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <algorithm>
#include <array>
#include <map>

namespace podlane::ctl {
namespace {

constexpr std::uint64_t kNsPerUs = 1000;

struct HistoryRow {
    const operation &done;
    std::uint64_t now_ns;
};

struct Spent {
    std::string_view step;
    std::uint64_t ns;
};

std::vector<Spent> slowest_first(const operation &done) {
    std::vector<Spent> steps;
    for (std::size_t i = 0; i < STEP_COUNT; ++i)
        if (done.step_us[i] != 0)
            steps.push_back({kSteps[i].name, done.step_us[i] * kNsPerUs});
    std::ranges::stable_sort(steps, std::ranges::greater{}, &Spent::ns);
    return steps;
}

std::string pod_of(const operation &done) {
    const std::string name(field_text(done.pod_name));
    if (name.empty())
        return std::string(field_text(done.container_id)).substr(0, 12);
    return std::string(field_text(done.pod_namespace)) + "/" + name;
}

Cell outcome_cell(const HistoryRow &row) {
    if (row.done.error_code == 0)
        return text_cell("ok", Tone::good);
    return {"error " + std::to_string(row.done.error_code) + ": " + std::string(field_text(row.done.message)), "failed",
            Tone::bad};
}

Cell steps_cell(const HistoryRow &row) {
    std::string text;
    output::Array items;
    for (const Spent &one : slowest_first(row.done)) {
        text += (text.empty() ? "" : ", ") + std::string(one.step) + " " + output::short_duration_words(one.ns);
        items.emplace_back(output::Object{{"step", one.step}, {"duration_ns", one.ns}});
    }
    return {text.empty() ? "-" : text, items};
}

constexpr std::array<Column<HistoryRow>, 15> kHistoryColumns = {{
    {{"", "", "number"}, [](const HistoryRow &r) { return number_cell(r.done.number); }},
    {{"AGO", "", "started_ns", Align::right},
     [](const HistoryRow &r) {
         return Cell{output::age_words(r.done.started_ns, r.now_ns), r.done.started_ns};
     }},
    {{"", "", "started"}, [](const HistoryRow &r) { return text_cell(output::utc_words(r.done.started_ns)); }},
    {{"VERB", "", "verb"}, [](const HistoryRow &r) { return text_cell(verb_name(r.done.verb), Tone::strong); }},
    {{"POD", "", ""}, [](const HistoryRow &r) { return text_cell(pod_of(r.done)); }},
    {{"", "", "pod_name"}, [](const HistoryRow &r) { return text_cell(field_text(r.done.pod_name)); }},
    {{"", "", "pod_namespace"}, [](const HistoryRow &r) { return text_cell(field_text(r.done.pod_namespace)); }},
    {{"", "", "container_id"}, [](const HistoryRow &r) { return text_cell(field_text(r.done.container_id)); }},
    {{"", "", "ifname"}, [](const HistoryRow &r) { return text_cell(field_text(r.done.ifname)); }},
    {{"NETWORK", "", "network"}, [](const HistoryRow &r) { return text_cell(field_text(r.done.network_name)); }},
    {{"TOOK", "", "duration_ns", Align::right},
     [](const HistoryRow &r) {
         return Cell{output::short_duration_words(r.done.duration_ns), r.done.duration_ns};
     }},
    {{"OUTCOME", "", "outcome"}, outcome_cell},
    {{"", "", "error_code"}, [](const HistoryRow &r) { return number_cell(r.done.error_code); }},
    {{"", "", "message"}, [](const HistoryRow &r) { return text_cell(field_text(r.done.message)); }},
    {{"SLOWEST STEP FIRST", "", "steps"}, steps_cell},
}};

// Matches the selection: names as the call had them, addresses of the endpoint if it still exists.
EndpointEntry entry_of(const operation &done, const std::vector<EndpointEntry> &living) {
    EndpointEntry entry{};
    set_field(entry.first.container_id, field_text(done.container_id));
    set_field(entry.first.ifname, field_text(done.ifname));
    for (const EndpointEntry &one : living)
        if (same_bytes(one.first, entry.first))
            entry.second = one.second;
    set_field(entry.second.network_name, field_text(done.network_name));
    set_field(entry.second.pod_name, field_text(done.pod_name));
    set_field(entry.second.pod_namespace, field_text(done.pod_namespace));
    return entry;
}

Result<std::size_t> how_many(const Call &call) {
    constexpr std::size_t kDefault = 20;
    const auto &text = call.value(Opt::last);
    const auto number = text ? parse_number<std::size_t>(*text) : kDefault;
    if (!number)
        return usage_error("--last \"" + *text + "\" is not a number");
    return *number;
}

} // namespace

std::string_view verb_name(std::uint8_t operation_verb) {
    constexpr std::array<std::string_view, OPERATION_VERBS> kNames = {"ADD", "DEL", "CHECK", "GC", "STATUS"};
    return operation_verb < kNames.size() ? kNames.at(operation_verb) : "unknown";
}

Result<History> open_history(const World &world) {
    TRY(open_live_map(world.bpffs, PODLANE_MAP_HISTORY, sizeof(std::uint32_t), sizeof(history)));
    return History::read(world.bpffs);
}

Result<output::Table> history_table(const Selection &selection, std::size_t most, const World &world) {
    const auto known = selected_endpoints({}, world);
    const std::vector<EndpointEntry> living = known ? *known : std::vector<EndpointEntry>{};
    const std::vector<operation> all = TRY(open_history(world)).operations();
    std::vector<HistoryRow> rows;
    for (const operation &one : all)
        if (rows.size() < most && (selection.selects_all() || selection.matches(entry_of(one, living))))
            rows.push_back({one, world.realtime_ns});
    return output::make_table(kHistoryColumns, rows);
}

namespace {

// A pod that an option selects may have had no call; a word may not have been meant to select one.
Result<int> history_list(const Call &call, World &world) {
    const output::Table table = TRY(history_table(TRY(Selection::of(call)), TRY(how_many(call)), world));
    if (table.rows.empty() && !call.argument.empty())
        return Error{ErrorCode::missing, "no call of \"" + call.argument + "\" is in the history",
                     "name a pod, a container or an address; of the last N calls: --last N"};
    world.print(table);
    return 0;
}

constexpr std::array<Command, 1> kHistoryCommands = {{
    {"list", "List the last CNI calls, the newest first.", kSelect | kRead | Opts{Opt::last}, kWhich,
     "Steps: ipam (the IPAM plugin), network (locks and uplinks), link (creating or deleting the veth pair), pod and\n"
     "host (addresses, routes, neighbours), programs, entries (of maps), masquerade, wait (for IPv6 addresses),\n"
     "siblings (the container's other interfaces), load (the programs, once a boot), undo (rollback of a failed "
     "call),\n"
     "other. The map keeps 256 calls.",
     history_list},
}};

} // namespace

const Noun kHistoryNoun = {"history", "the last CNI calls, and where their time went", kHistoryCommands};

} // namespace podlane::ctl
