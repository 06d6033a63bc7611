// SPDX-License-Identifier: MIT
// lease: those of pods that are gone, which are held or wait to be released.
#include "loader/record.hpp"
#include "maps/abi/endpoint.h"
#include "maps/clock.hpp"
#include "maps/file.hpp"
#include "maps/text.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/held_lease.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/nouns.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <unistd.h>

#include <array>

namespace podlane::ctl {
namespace {

struct LeaseRow {
    AttachmentRecord record;
    EndpointEntry entry; // what it was: for the selection and its names
    std::vector<std::string> addresses{};
};

std::uint64_t seconds_left(const LeaseRow &row) {
    const std::uint64_t now = realtime_ns();
    return row.record.held_until_ns <= now ? 0 : (row.record.held_until_ns - now + kNsPerSecond - 1) / kNsPerSecond;
}

Cell time_left_cell(const LeaseRow &row) {
    return row.record.held_until_ns == 0 ? Cell{"-", {}} : number_cell(seconds_left(row));
}

constexpr std::array<Column<LeaseRow>, 6> kLeaseColumns = {{
    {{"POD", "", "pod"},
     [](const LeaseRow &r) { return text_cell(pod_words(r.entry.first, r.entry.second), Tone::strong); }},
    {{"NETWORK", "", "network"}, [](const LeaseRow &r) { return text_cell(r.record.network); }},
    {{"ADDRESSES", "", "addresses"}, [](const LeaseRow &r) { return list_cell(r.addresses); }},
    {{"STATE", "", "state"},
     [](const LeaseRow &r) { return is_held(r.record) ? text_cell("held") : text_cell("waits", Tone::warning); }},
    {{"SECONDS LEFT", "", "seconds_left", Align::right}, time_left_cell},
    {{"CONTAINER", "", "container_id"},
     [](const LeaseRow &r) {
         return Cell{r.record.container_id.substr(0, 12), r.record.container_id};
     }},
}};

Result<LeaseRow> row_of(AttachmentRecord record) {
    LeaseRow row{.record = std::move(record), .entry = {}};
    row.entry.first = TRY(make_endpoint_key(row.record.container_id, row.record.ifname));
    static_cast<void>(set_field(row.entry.second.network_name, row.record.network));
    if (const auto arguments = cni::parse_arguments(row.record.args)) {
        static_cast<void>(set_field(row.entry.second.pod_namespace, arguments->pod.ns));
        static_cast<void>(set_field(row.entry.second.pod_name, arguments->pod.name));
    }
    if (const auto lease = cni::parse_attachment(row.record.lease))
        for (const cni::Address &one : lease->addresses)
            row.addresses.push_back(to_string(one.prefix.addr));
    return row;
}

std::string state_directory(const Call &call) { return call.value(Opt::state_dir).value_or(kStateDirectory); }

Result<std::vector<LeaseRow>> rows_of(const Call &call, const World &world) {
    const Selection selection = TRY(Selection::of(call));
    const AttachmentRecords records(state_directory(call), world.bpffs);
    Errors unread;
    std::vector<AttachmentRecord> leases = TRY(held_leases(records, unread));
    TRY(std::move(unread).result());
    for (AttachmentRecord &record : TRY(records.list()))
        if (waits_for_release(record))
            leases.push_back(std::move(record));
    std::vector<LeaseRow> rows;
    for (AttachmentRecord &record : leases) {
        LeaseRow row = TRY(row_of(std::move(record)));
        if (selection.matches(row.entry))
            rows.push_back(std::move(row));
    }
    return rows;
}

Result<void> must_be_root() {
    if (geteuid() == 0)
        return {};
    return Error{ErrorCode::io_failure, "no permission to read and release leases",
                 "run it as root: sudo podlanectl lease"};
}

Error no_such_lease() { return {ErrorCode::missing, "no such lease is held or waits", "see `podlanectl lease list`"}; }

// Those whose time is over are released first.
Result<int> list(const Call &call, World &world) {
    TRY(must_be_root());
    cni::Config config;
    config.bpffs = world.bpffs;
    config.state_dir = state_directory(call);
    release_all_expired_leases(config);
    const std::vector<LeaseRow> rows = TRY(rows_of(call, world));
    if (rows.empty() && !TRY(Selection::of(call)).selects_all())
        return no_such_lease();
    world.print(output::make_table(kLeaseColumns, rows));
    return 0;
}

Result<int> release(const Call &call, World &world) {
    TRY(must_be_root());
    if (TRY(Selection::of(call)).selects_all() && !call.has(Opt::all))
        return usage_error("lease release needs to know which", "name a pod, or write --all");
    const std::string directory = state_directory(call);
    const std::vector<LeaseRow> rows = TRY(rows_of(call, world));
    if (rows.empty() && !call.has(Opt::all))
        return no_such_lease();
    Errors errors;
    for (const LeaseRow &row : rows) {
        auto released = release_held_lease(row.record, directory);
        if (!released) {
            errors.add(std::move(released));
            continue;
        }
        world.print("released " + (row.addresses.empty() ? "the lease" : join(row.addresses, ", ")) + " of " +
                    pod_words(row.entry.first, row.entry.second) + "\n");
    }
    TRY(std::move(errors).result());
    return 0;
}

constexpr Opts kWhichLease{Opt::pod, Opt::ns, Opt::container, Opt::network, Opt::state_dir};

constexpr std::array<Command, 2> kLeaseCommands = {{
    {"list", "List the leases of pods that are gone.", kPlain | kWhichLease, kWhich,
     "\"held\": for pods of the same name (keepAddress); those whose time is over are released first. \"waits\": its\n"
     "IPAM plugin was not installed when the pod was deleted, or failed.",
     list, true},
    {"release", "Release leases that are held, before their time, or that wait.",
     Opts{Opt::bpffs, Opt::help, Opt::all} | kWhichLease, kWhich,
     "Calls the DEL of the IPAM plugin, as the DEL of the pod would have.", release, true},
}};

} // namespace

const Noun kLeaseNoun = {"lease", "addresses of pods that are gone", kLeaseCommands};

} // namespace podlane::ctl
