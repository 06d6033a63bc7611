// SPDX-License-Identifier: MIT
// gc: the DEL that the runtime did not send, for endpoints whose interface is gone. Endpoints are known from the maps
// and from the records on disk, which have those of an earlier boot too.
#include "loader/host_veth.hpp"
#include "loader/process.hpp"
#include "loader/record.hpp"
#include "maps/errors.hpp"
#include "maps/file.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/program.hpp"
#include "plugin/torn_record.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/installed.hpp"
#include "tools/podlanectl/node/nouns.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

namespace podlane::ctl {
namespace {

enum class Outcome { removed, would_be, kept, failed };

struct GarbageRow {
    EndpointEntry entry;
    Outcome outcome;
    std::string why{};
};

Cell outcome_cell(const GarbageRow &row) {
    switch (row.outcome) {
    case Outcome::removed:
        return text_cell("removed", Tone::good);
    case Outcome::would_be:
        return {"would be removed", "would-be-removed", Tone::warning};
    case Outcome::kept:
        return {"kept: " + row.why, "kept", Tone::warning};
    case Outcome::failed:
        return {"failed: " + row.why, "failed", Tone::bad};
    }
    return {};
}

Cell container_cell(const GarbageRow &row) {
    const std::string id(field_text(row.entry.first.container_id));
    return {id.substr(0, 12), id};
}

constexpr std::array<Column<GarbageRow>, 6> kGcColumns = {{
    {{"POD", "", "pod"},
     [](const GarbageRow &r) { return text_cell(pod_words(r.entry.first, r.entry.second), Tone::strong); }},
    {{"NETWORK", "", "network"},
     [](const GarbageRow &r) { return text_cell(field_text(r.entry.second.network_name)); }},
    {{"CONTAINER", "", "container_id"}, container_cell},
    {{"INTERFACE", "", "host_interface"},
     [](const GarbageRow &r) { return text_cell(field_text(r.entry.second.host_ifname)); }},
    {{"", "", "ifname"}, [](const GarbageRow &r) { return text_cell(field_text(r.entry.first.ifname)); }},
    {{"RESULT", "", "result"}, outcome_cell},
}};

// False without a host-side veth (macvlan and the like) too: only the namespace says whether the container exists.
// A veth pair is deleted with either end's namespace: if the host-side veth exists, so does the container's interface.
Result<bool> has_link(net::Netlink &host, const endpoint &record) {
    return record.ifindex != 0 && TRY(find_host_veth(host, record)).has_value();
}

std::string plugin_in(const Call &call) { return call.value(Opt::bin_dir).value_or(kBinDir) + "/podlane"; }

// The inputs of the call.
struct Context {
    const World &world;
    net::Netlink &host;
    std::string plugin;
    std::string state_directory;
    bool dry;
};

// As the runtime would have called it after the namespace was gone. The IPAM plugin's configuration is in the record on
// disk; an endpoint without one keeps its lease until the runtime's own DEL or GC.
Result<void> send_del(const EndpointEntry &entry, const Context &context) {
    const auto &[key, record] = entry;
    const std::string &plugin = context.plugin;
    const output::Object config = {{"cniVersion", "1.0.0"},
                                   {"name", field_text(record.network_name)},
                                   {"type", "podlane"},
                                   {"bpffs", context.world.bpffs},
                                   {"stateDir", context.state_directory}};
    const std::vector<std::string> environment = {
        "CNI_COMMAND=DEL",
        "CNI_NETNS=",
        "CNI_CONTAINERID=" + std::string(field_text(key.container_id)),
        "CNI_IFNAME=" + std::string(field_text(key.ifname)),
        "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + std::string(field_text(record.pod_namespace)) +
            ";K8S_POD_NAME=" + std::string(field_text(record.pod_name)),
        "CNI_PATH=" + plugin.substr(0, plugin.rfind('/')),
        "PATH=/usr/sbin:/sbin:/usr/bin:/bin"};
    constexpr std::chrono::hours kLimit(24); // it ends by itself: no IPAM plugin gets more than "ipamTimeout"
    const Finished finished = TRY(run_process(plugin, environment, output::json_text(config), {}, kLimit));
    if (finished.exit_code == 0)
        return {};
    const Error ended{ErrorCode::io_failure, "its DEL " + how_it_ended(finished),
                      finished.signal != 0 ? remedy_of_signal(plugin, finished) : ""};
    return finished.signal != 0 ? ended : cni::parse_plugin_error(finished.out, "its DEL", ended);
}

Result<std::optional<AttachmentRecord>> record_of(const EndpointEntry &entry, const Context &context) {
    return AttachmentRecords(context.state_directory, context.world.bpffs)
        .find(std::string(field_text(entry.first.container_id)), std::string(field_text(entry.first.ifname)));
}

// A DEL succeeds without the IPAM plugin, too: then the record of the lease stays.
Result<bool> lease_waits(const EndpointEntry &entry, const Context &context) {
    const auto record = TRY(record_of(entry, context));
    return record && record->only_lease && !is_held(*record);
}

GarbageRow collect(const EndpointEntry &entry, const Context &context) {
    if (context.dry)
        return {entry, Outcome::would_be};
    if (const Result<void> sent = send_del(entry, context); !sent)
        return {entry, Outcome::failed,
                sent.error().message + (sent.error().hint.empty() ? "" : "; " + sent.error().hint)};
    const Result<bool> waits = lease_waits(entry, context);
    if (!waits)
        return {entry, Outcome::failed, waits.error().message};
    return *waits ? GarbageRow{entry, Outcome::kept, "its lease waits (podlanectl lease list)"}
                  : GarbageRow{entry, Outcome::removed};
}

using Namespaces = std::map<std::uint64_t, std::string>;

Result<void> collect_known(const std::vector<EndpointEntry> &endpoints, const Namespaces &namespaces,
                           const Context &context, std::vector<GarbageRow> &rows) {
    for (const EndpointEntry &entry : endpoints) {
        if (TRY(has_link(context.host, entry.second)))
            continue;
        const auto record = record_of(entry, context); // if it cannot be read, the inode number decides
        if (!is_among(namespaces, entry.second, record && *record ? (*record)->netns_cookie : 0))
            rows.push_back(collect(entry, context));
        else if (entry.second.ifindex != 0)
            rows.push_back({entry, Outcome::kept, "its container exists, without the interface"});
    }
    return {};
}

Result<EndpointEntry> entry_of(const AttachmentRecord &record) {
    EndpointEntry entry{TRY(make_endpoint_key(record.container_id, record.ifname)), record.entry.value_or(endpoint{})};
    if (!record.entry)
        static_cast<void>(set_field(entry.second.network_name, record.network));
    return entry;
}

Result<std::vector<EndpointEntry>> only_selected(std::vector<EndpointEntry> entries, const Selection &selection,
                                                 const World &world) {
    std::erase_if(entries, [&](const EndpointEntry &entry) { return !selection.matches(entry); });
    TRY(selection.keep_labelled(entries, world));
    return entries;
}

// An ADD that is under way has its namespace. Of one that had its DEL nothing but the lease is left.
Result<bool> is_alive(const AttachmentRecord &record, const ThisNode &node, const Namespaces &namespaces,
                      net::Netlink &host) {
    if (record.only_lease || record.boot_id != node.boot)
        return false;
    if (!record.entry)
        return exists(record.netns);
    return TRY(has_link(host, *record.entry)) || is_among(namespaces, *record.entry, record.netns_cookie);
}

// Objects that the maps do not know (any more). Returns whether a record is selected.
Result<bool> collect_recorded(const Selection &selection, const std::vector<EndpointEntry> &endpoints,
                              const Namespaces &namespaces, const Context &context, std::vector<GarbageRow> &rows,
                              Errors &unread) {
    const ThisNode node = TRY(ThisNode::now());
    const AttachmentRecords records(context.state_directory, context.world.bpffs);
    bool any = false;
    for (const AttachmentRecord &record : TRY(records.list(unread))) {
        const EndpointEntry entry = TRY(entry_of(record));
        if (TRY(only_selected({entry}, selection, context.world)).empty())
            continue;
        any = true;
        if (is_held(record)) // the plugin's DEL would leave it: see podlanectl lease
            continue;
        const bool known = std::ranges::any_of(endpoints, [&](const EndpointEntry &one) {
            return field_text(one.first.container_id) == record.container_id &&
                   field_text(one.first.ifname) == record.ifname;
        });
        if (!known && node.may_have_made(record) && !TRY(is_alive(record, node, namespaces, context.host)))
            rows.push_back(collect(entry, context));
    }
    return any;
}

// Its IPAM plugin is one of those of the networks on record. Without any, it stays: the runtime's GC has to name one.
GarbageRow collect_torn(const AttachmentRecord &record, EndpointEntry entry, TornRecords &torn,
                        const Context &context) {
    if (context.dry && !torn.networks.empty())
        return {std::move(entry), Outcome::would_be};
    const auto why_kept = release_torn_record(record, torn);
    if (!why_kept)
        return {std::move(entry), Outcome::failed, why_kept.error().message};
    return *why_kept ? GarbageRow{std::move(entry), Outcome::kept, "its record is torn, and " + **why_kept}
                     : GarbageRow{std::move(entry), Outcome::removed};
}

// Returns whether one is selected.
Result<bool> collect_torn_records(const Selection &selection, TornRecords &torn, const Context &context,
                                  std::vector<GarbageRow> &rows) {
    bool any = false;
    for (const AttachmentRecord &record : torn.records) {
        EndpointEntry entry = TRY(entry_of(record));
        if (TRY(only_selected({entry}, selection, context.world)).empty())
            continue;
        any = true;
        rows.push_back(collect_torn(record, std::move(entry), torn, context));
    }
    return any;
}

Result<int> gc(const Call &call, World &world) {
    if (geteuid() != 0)
        return Error{ErrorCode::bpf, "no permission to remove endpoints", "run it as root: sudo podlanectl gc"};
    const Selection selection = TRY(Selection::of(call));
    net::Netlink host = TRY(net::Netlink::open());
    const Context context{world, host, plugin_in(call), call.value(Opt::state_dir).value_or(kStateDirectory),
                          call.has(Opt::dry_run)};
    std::vector<EndpointEntry> endpoints;
    if (const auto live = check_live_directory(world.bpffs); live)
        endpoints = TRY(selected_endpoints(Selection(), world));
    else if (live.error().code != ErrorCode::missing)
        return live.error();
    if (!context.dry && !TRY(is_program(context.plugin)))
        return Error{ErrorCode::missing, "there is no plugin " + context.plugin + " to call DEL of",
                     "name its directory with --bin-dir"};
    const Namespaces namespaces = TRY(network_namespaces());
    std::vector<GarbageRow> rows;
    const std::vector<EndpointEntry> selected = TRY(only_selected(endpoints, selection, world));
    auto torn = find_torn_records(context.state_directory, world.bpffs); // before others are removed
    Errors errors;
    TRY(collect_known(selected, namespaces, context, rows));
    const bool any_recorded = TRY(collect_recorded(selection, endpoints, namespaces, context, rows, errors));
    const bool any_torn = torn && TRY(collect_torn_records(selection, *torn, context, rows));
    errors.add(std::move(torn));
    if (selected.empty() && !any_recorded && !any_torn && errors.none() && !selection.selects_all())
        return selection.no_match();
    if (!rows.empty() || (world.json && errors.none()))
        world.print(output::make_table(kGcColumns, rows));
    else if (errors.none())
        world.print("nothing to collect\n");
    TRY(std::move(errors).result());
    const bool failed = std::ranges::any_of(rows, [](const GarbageRow &row) { return row.outcome == Outcome::failed; });
    return failed ? 1 : 0;
}

constexpr std::array<Command, 1> kGcCommands = {{
    {"", "Remove endpoints whose interface and namespace are gone, as the runtime's DEL would have.",
     kSelect | kPlain | Opts{Opt::bin_dir, Opt::state_dir, Opt::dry_run}, kWhich,
     "Calls the plugin's DEL for each, which releases the lease as well. Endpoints are known from the maps and from\n"
     "the records on disk, which keep those of an earlier boot.",
     gc, true},
}};

} // namespace

const Noun kGcNoun = {"gc", "remove endpoints that the runtime no longer has", kGcCommands};

} // namespace podlane::ctl
