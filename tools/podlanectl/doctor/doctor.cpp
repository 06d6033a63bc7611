// SPDX-License-Identifier: MIT
// doctor: runs the table of checks, prints the findings, and repairs what Podlane owns.
#include "tools/podlanectl/doctor/examine.hpp"

#include "maps/file.hpp"
#include "tools/podlanectl/doctor/nouns.hpp"
#include "tools/podlanectl/node/installed.hpp"
#include "tools/podlanectl/views/decode.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace podlane::ctl {
namespace {

using namespace doctor;
using output::Cell;
using output::Column;
using output::text_cell;
using output::Tone;

Tone tone_of(const Row &row) { return row.is_fixed() ? Tone::good : row.is_wrong() ? Tone::bad : Tone::warning; }

Cell what_cell(const Row &row) {
    const std::string of = row.pod.empty() ? "" : "endpoint " + row.pod + ": ";
    return {of + row.finding.what, row.finding.what, tone_of(row)};
}

Cell severity_cell(const Row &row) {
    const std::string_view word = row.is_wrong() ? "wrong" : "notice";
    return {std::string(word) + " (" + std::string(row.check->name) + ")", word, tone_of(row)};
}

Cell fixed_cell(const Row &row) {
    return row.fixed.empty() ? Cell{} : Cell{row.fixed, row.is_fixed(), row.is_fixed() ? Tone::good : Tone::bad};
}

constexpr std::array<Column<Row>, 9> kDoctorColumns = {{
    {{"", "found", "finding"}, what_cell},
    {{"", "kind", "severity"}, severity_cell},
    {{"", "", "check"}, [](const Row &r) { return text_cell(r.check->name); }},
    {{"", "", "pod"}, [](const Row &r) { return text_cell(r.pod); }},
    {{"", "", "host_interface"}, [](const Row &r) { return text_cell(r.host_interface); }},
    {{"", "cause", "cause"}, [](const Row &r) { return text_cell(r.check->cause); }},
    {{"", "remedy", "remedy"}, [](const Row &r) { return text_cell(r.is_fixed() ? "" : r.remedy()); }},
    {{"", "fixed", "fixed"}, fixed_cell},
    {{"", "", "fixable"},
     [](const Row &r) {
         return Cell{"", static_cast<bool>(r.finding.repair)};
     }},
}};

// Returns whether anything changed.
bool repair(Examined &examined) {
    bool any = false;
    for (Row &row : examined.rows)
        if (row.finding.repair && row.fixed.empty()) {
            const Result<void> repaired = row.finding.repair();
            row.fixed = repaired ? "yes" : "no: " + repaired.error().message;
            any = any || repaired;
        }
    return any;
}

// A repair can uncover other findings: without its pins nothing is known of an endpoint. The first findings stay in
// the report.
Result<Examined> examine_and_repair(const Scope &scope, const World &world) {
    constexpr int kMostRounds = 4;
    Examined all = TRY(examine(scope, world));
    for (int round = 0; round < kMostRounds && repair(all); ++round)
        merge(all.rows, TRY(examine(scope, world)));
    return all;
}

std::string summary(const Examined &examined) {
    const auto fixed = std::ranges::count_if(examined.rows, &Row::is_fixed);
    std::string text = std::to_string(examined.checks) + " checks, ";
    text += examined.rows.empty() ? "nothing found" : std::to_string(examined.rows.size()) + " found";
    return text + (fixed == 0 ? "" : ", " + std::to_string(fixed) + " fixed") + "\n";
}

Result<std::vector<ClusterNode>> cluster_of(const Call &call) {
    const auto &file = call.value(Opt::nodes);
    return file ? read_cluster_nodes(TRY(read_regular_file(*file)), *file) : std::vector<ClusterNode>{};
}

Result<int> examine_node(const Call &call, World &world, const std::string &noun, bool fix) {
    if (geteuid() != 0)
        return Error{ErrorCode::bpf, "no permission to examine the node", "run it as root: sudo podlanectl " + noun,
                     EPERM};
    const Scope scope{TRY(Selection::of(call)), call.value(Opt::state_dir).value_or(kStateDirectory),
                      call.value(Opt::bin_dir).value_or(kBinDir), call.value(Opt::conf_dir).value_or(kConfDir),
                      TRY(cluster_of(call))};
    const Examined examined = TRY(fix ? examine_and_repair(scope, world) : examine(scope, world));
    if (fix) // the node is Podlane's again
        TRY(AttachmentRecords(scope.state_directory, world.bpffs).forget_uninstall());
    const output::Table table = output::make_table(kDoctorColumns, examined.rows);
    if (world.json)
        world.print(output::json_text(output::table_value(table)));
    else
        world.print(output::record_text(table, world.style) + (examined.rows.empty() ? "" : "\n") + summary(examined));
    const bool is_wrong =
        std::ranges::any_of(examined.rows, [](const Row &row) { return row.is_wrong() && !row.is_fixed(); });
    return is_wrong ? 1 : 0;
}

Result<int> run_doctor(const Call &call, World &world) {
    return examine_node(call, world, "doctor", call.has(Opt::fix));
}
Result<int> run_repair(const Call &call, World &world) { return examine_node(call, world, "repair", true); }

constexpr std::array<Command, 1> kRepairCommands = {{
    {"", "Restore lost endpoints, and repair everything else that Podlane can repair.",
     kSelect | kPlain | Opts{Opt::state_dir, Opt::bin_dir, Opt::conf_dir}, kWhich,
     "An endpoint is lost if its interface exists and the maps do not know it: pins were deleted, or the BPF file\n"
     "system was unmounted. It gets its entries, current programs, NAT and limits back from its record on disk.\n"
     "Prints each finding. The exit code is 1 if something is wrong and was not fixed.",
     run_repair, true},
}};

constexpr std::array<Command, 1> kDoctorCommands = {{
    {"", "Check the node and each endpoint; print each finding with its cause and remedy.",
     kSelect | kRead | Opts{Opt::fix, Opt::nodes, Opt::state_dir, Opt::bin_dir, Opt::conf_dir}, kWhich,
     "With --fix, everything that Podlane can repair is repaired at once. Findings are \"wrong\", or a \"notice\": "
     "worth\n"
     "knowing. The exit code is 1 if something is wrong and was not fixed. --nodes compares the routes with what\n"
     "`kubectl get nodes -o json` has printed.",
     run_doctor},
}};

} // namespace

const Noun kRepairNoun = {"repair", "restore lost endpoints and repair what is broken", kRepairCommands};
const Noun kDoctorNoun = {"doctor", "what is wrong on this node, why, and what to do", kDoctorCommands};

} // namespace podlane::ctl
