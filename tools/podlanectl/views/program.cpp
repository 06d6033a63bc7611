// SPDX-License-Identifier: MIT
// program list: where Podlane's programs are attached, and what they cost.
#include "loader/attach.hpp"
#include "loader/host_veth.hpp"
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "tools/podlanectl/views/uplink.hpp"

#include <bpf/bpf.h>

#include <algorithm>
#include <array>
#include <map>

namespace podlane::ctl {
namespace {

struct AttachedRow {
    std::string interface {}; // empty: pinned, and attached nowhere
    std::uint32_t ifindex = 0;
    std::string pod{}; // empty: an uplink
    std::string container_id{};
    Hook hook = Hook::ingress;
    HookKind kind = HookKind::clsact;
    ProgramFacts facts{};
    bool pinned = false;
    std::uint64_t now_ns = 0;
    bool paces = false; // on the cgroup v2 root

    [[nodiscard]] bool is_attached() const { return ifindex != 0; }
};

Cell if_attached(const AttachedRow &row, std::string_view text) { return text_cell(row.is_attached() ? text : ""); }

// The kernel counts runs only while kernel.bpf_stats_enabled is 1.
Cell runs_cell(const AttachedRow &row) {
    return {row.facts.run_count == 0 ? "-" : std::to_string(row.facts.run_count), row.facts.run_count};
}

Cell average_cell(const AttachedRow &row) {
    if (row.facts.run_count == 0)
        return text_cell("");
    const std::uint64_t ns = row.facts.run_ns / row.facts.run_count;
    return {std::to_string(ns) + "ns", ns};
}

constexpr std::array<Column<AttachedRow>, 14> kProgramColumns = {{
    {{"PROGRAM", "", "name"}, [](const AttachedRow &r) { return text_cell(r.facts.name, Tone::strong); }},
    {{"INTERFACE", "", "interface"}, [](const AttachedRow &r) { return text_cell(r.interface); }},
    {{"", "", "ifindex"}, [](const AttachedRow &r) { return number_cell(r.ifindex); }},
    {{"POD", "", "pod"}, [](const AttachedRow &r) { return text_cell(r.pod); }},
    {{"", "", "container_id"}, [](const AttachedRow &r) { return text_cell(r.container_id); }},
    {{"DIRECTION", "", "direction"},
     [](const AttachedRow &r) { return if_attached(r, r.hook == Hook::ingress ? "ingress" : "egress"); }},
    {{"HOOK", "", "hook"},
     [](const AttachedRow &r) {
         return r.paces ? text_cell("cgroup") : if_attached(r, r.kind == HookKind::tcx ? "tcx" : "clsact");
     }},
    {{"ID", "", "id", Align::right}, [](const AttachedRow &r) { return number_cell(r.facts.id); }},
    {{"TAG", "", "tag"},
     [](const AttachedRow &r) { return text_cell(r.facts.tag, r.pinned ? Tone::plain : Tone::bad); }},
    {{"PINNED", "", "pinned"},
     [](const AttachedRow &r) {
         return Cell{r.pinned ? "yes" : "no", r.pinned, r.pinned ? Tone::plain : Tone::bad};
     }},
    {{"LOADED", "", "age_ns", Align::right},
     [](const AttachedRow &r) {
         const std::uint64_t age = r.now_ns > r.facts.loaded_ns ? r.now_ns - r.facts.loaded_ns : 0;
         return Cell{output::duration_words(age) + " ago", age};
     }},
    {{"RUNS", "", "run_count", Align::right}, runs_cell},
    {{"AVERAGE", "", "average_ns", Align::right}, average_cell},
    {{"", "", "run_ns"}, [](const AttachedRow &r) { return number_cell(r.facts.run_ns); }},
}};

// Each program is queried once, however many hooks it is on.
class Programs {
  public:
    // Empty if it is gone by now.
    Result<const ProgramFacts *> find(std::uint32_t id) {
        if (const auto known = all_.find(id); known != all_.end())
            return &known->second;
        const Fd fd(bpf_prog_get_fd_by_id(id));
        if (!fd)
            return static_cast<const ProgramFacts *>(nullptr);
        return &all_.emplace(id, TRY(program_facts(fd.get()))).first->second;
    }

  private:
    std::map<std::uint32_t, ProgramFacts> all_;
};

struct OwnInterface {
    std::uint32_t ifindex;
    std::string interface;
    std::string pod{};
    std::string container_id{};
};

Result<void> add_place(const OwnInterface &place, const std::map<std::uint32_t, std::string> &pinned,
                       Programs &programs, const World &world, std::vector<AttachedRow> &rows) {
    for (const Hook hook : {Hook::ingress, Hook::egress})
        for (const Attached &one : TRY(attached(place.ifindex, hook)))
            if (const ProgramFacts *facts = TRY(programs.find(one.program_id)))
                rows.push_back({place.interface, place.ifindex, place.pod, place.container_id, hook, one.kind, *facts,
                                pinned.contains(one.program_id), world.boottime_ns});
    return {};
}

Result<std::vector<OwnInterface>> places_of(const Selection &selection, const World &world) {
    std::vector<OwnInterface> places;
    net::Netlink host = TRY(net::Netlink::open());
    for (const auto &[key, value] : TRY(selected_endpoints(selection, world)))
        if (const auto link = value.ifindex == 0 ? std::nullopt : TRY(find_host_veth(host, value)))
            places.push_back(
                {value.ifindex, link->name, pod_words(key, value), std::string(field_text(key.container_id))});
    if (selection.selects_all())
        for (const UplinkReport &one : TRY(read_uplinks(world)))
            if (!one.name.empty())
                places.push_back({one.ifindex, one.name});
    return places;
}

Result<int> program_list(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    std::map<std::uint32_t, std::string> pinned;
    Programs programs;
    std::vector<AttachedRow> rows;
    const std::vector<OwnInterface> places = TRY(places_of(selection, world));
    for (const std::string_view name : kProgramNames) {
        if (name == PODLANE_PROGRAM_PACE && !TRY(is_pacing(world.bpffs)))
            continue;
        const Fd fd = TRY(open_program(world.bpffs, std::string(name).c_str()));
        pinned.emplace(TRY(program_facts(fd.get())).id, name);
    }
    for (const OwnInterface &place : places)
        TRY(add_place(place, pinned, programs, world, rows));
    for (const auto &[id, name] : pinned) {
        const bool in_use = std::ranges::any_of(rows, [id = id](const AttachedRow &row) { return row.facts.id == id; });
        if (const ProgramFacts *facts = TRY(programs.find(id)); facts != nullptr && !in_use && selection.selects_all())
            rows.push_back(
                {.facts = *facts, .pinned = true, .now_ns = world.boottime_ns, .paces = name == PODLANE_PROGRAM_PACE});
    }
    world.print(output::make_table(kProgramColumns, rows));
    return 0;
}

constexpr std::array<Command, 1> kProgramCommands = {{
    {"list", "List where programs are attached, and what they cost.", kSelect | kRead, kWhich,
     "Runs and their average time are of the program, on all its hooks together; the kernel counts them while\n"
     "\"sysctl kernel.bpf_stats_enabled\" is 1. PINNED no: not the program that new pods get.",
     program_list},
}};

} // namespace

const Noun kProgramNoun = {"program", "Podlane's programs in the kernel", kProgramCommands};

} // namespace podlane::ctl
