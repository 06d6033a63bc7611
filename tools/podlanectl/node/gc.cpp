// SPDX-License-Identifier: MIT
// gc: the DEL that the runtime did not send, for endpoints whose interface is gone. Endpoints are known from the maps
// and from the records on disk, which have those of an earlier boot too.
#include "loader/host_veth.hpp"
#include "loader/process.hpp"
#include "loader/record.hpp"
#include "maps/errors.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/found.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/program.hpp"
#include "plugin/state.hpp"
#include "plugin/torn_record.hpp"
#include "plugin/turn.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/by_container.hpp"
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

cni::Request request_for(const EndpointEntry &entry, const Context &context) {
    cni::Request request;
    request.container_id = field_text(entry.first.container_id);
    request.ifname = field_text(entry.first.ifname);
    request.config.bpffs = context.world.bpffs;
    request.config.state_dir = context.state_directory;
    return request;
}

// A DEL succeeds without the IPAM plugin, too: then the record of the lease stays.
Result<bool> lease_waits(const EndpointEntry &entry, const Context &context) {
    const cni::Request of = request_for(entry, context);
    const auto record = TRY(records_of(of.config).find(of.container_id, of.ifname));
    return record && record->only_lease && !is_held(*record);
}

struct Rows {
    std::vector<GarbageRow> all{};
    std::vector<std::pair<std::size_t, Found>> dead{}; // the rows of those to be removed
    void add_dead(EndpointEntry entry, const AttachmentRecord &record) {
        Found found;
        found.add(record);
        dead.emplace_back(all.size(), std::move(found));
        all.push_back({std::move(entry), Outcome::would_be});
    }
};

// Its DEL shares the turn.
GarbageRow collect(const EndpointEntry &entry, const Found &found, const Context &context) {
    const cni::Request request = request_for(entry, context);
    const auto turn = take_turn_of_found(request, found);
    if (!turn)
        return {entry, Outcome::failed, turn.error().message};
    if (!*turn)
        return {entry, Outcome::kept, has_come_since(request)};
    if (const Result<void> sent = send_del(entry, context); !sent)
        return {entry, Outcome::failed,
                sent.error().message + (sent.error().hint.empty() ? "" : "; " + sent.error().hint)};
    const Result<bool> waits = lease_waits(entry, context);
    if (!waits)
        return {entry, Outcome::failed, waits.error().message};
    return *waits ? GarbageRow{entry, Outcome::kept, "its lease waits (podlanectl lease list)"}
                  : GarbageRow{entry, Outcome::removed};
}

struct Namespaces {
    std::map<std::uint64_t, std::string> paths;
    Result<void> hidden{}; // by processes
};

bool is_of(const EndpointEntry &entry, const AttachmentRecord &record) {
    return field_text(entry.first.container_id) == record.container_id &&
           field_text(entry.first.ifname) == record.ifname;
}

GarbageRow unseen(const EndpointEntry &entry, const AttachmentRecord &record, const Namespaces &namespaces) {
    if (record.netns.empty())
        return {entry, Outcome::kept, "no record says where its namespace was; a DEL or GC of the runtime removes it"};
    if (record.netns.starts_with("/proc/"))
        return {entry, Outcome::kept,
                "its namespace may be one that a process hides: " + namespaces.hidden.error().message};
    return {entry, Outcome::kept,
            "there is no directory of its namespace " + record.netns + "; run gc on the node itself"};
}

// If it cannot be read, the inode number decides.
AttachmentRecord record_of(const EndpointEntry &entry, const std::vector<AttachmentRecord> &records,
                           const Context &context) {
    AttachmentRecord record;
    const auto found = std::ranges::find_if(records, [&](const AttachmentRecord &one) { return is_of(entry, one); });
    if (found != records.end())
        record = *found;
    else if (const auto elsewhere = find_record(request_for(entry, context)); elsewhere && *elsewhere)
        record = **elsewhere; // in the state directory of before
    record.entry = entry.second;
    return record;
}

Result<void> collect_known(const std::vector<EndpointEntry> &endpoints, const std::vector<AttachmentRecord> &records,
                           const Namespaces &namespaces, const Context &context, Rows &rows) {
    for (const EndpointEntry &entry : endpoints) {
        if (TRY(has_link(context.host, entry.second)))
            continue;
        const AttachmentRecord record = record_of(entry, records, context);
        if (is_among(namespaces.paths, entry.second, record.netns_cookie)) {
            if (entry.second.ifindex != 0)
                rows.all.push_back({entry, Outcome::kept, "its container exists, without the interface"});
        } else if ((entry.second.ifindex == 0 || !record.netns.empty()) &&
                   !shows_namespace_of(record, !namespaces.hidden)) {
            rows.all.push_back(unseen(entry, record, namespaces));
        } else {
            rows.add_dead(entry, record);
        }
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

enum class Life { dead, unseen, alive };

// An ADD that is under way has its turn, or its namespace. Of one that had its DEL nothing but the lease is left.
Result<Life> life_of(const AttachmentRecord &record, const ThisNode &node, const Namespaces &namespaces,
                     net::Netlink &host) {
    if (record.only_lease || record.boot_id != node.boot)
        return Life::dead;
    if (TRY(is_add_under_way(record)) || (record.entry && TRY(has_link(host, *record.entry))))
        return Life::alive;
    if (record.entry ? is_among(namespaces.paths, *record.entry, record.netns_cookie)
                     : is_namespace_there(record.netns))
        return Life::alive;
    return shows_namespace_of(record, !namespaces.hidden) ? Life::dead : Life::unseen;
}

// Objects that the maps do not know (any more). Returns whether a record is selected.
Result<bool> collect_recorded(const Selection &selection, const std::vector<EndpointEntry> &endpoints,
                              const std::vector<AttachmentRecord> &records, const Namespaces &namespaces,
                              const Context &context, Rows &rows) {
    const ThisNode node = TRY(ThisNode::now());
    bool any = false;
    for (const AttachmentRecord &record : records) {
        const EndpointEntry entry = TRY(entry_of(record));
        if (TRY(only_selected({entry}, selection, context.world)).empty())
            continue;
        any = true;
        if (is_held(record)) // the plugin's DEL would leave it: see podlanectl lease
            continue;
        const bool known = std::ranges::any_of(endpoints, [&](const EndpointEntry &one) { return is_of(one, record); });
        if (known || !node.may_have_made(record))
            continue;
        const auto life = life_of(record, node, namespaces, context.host);
        if (!life)
            rows.all.push_back({entry, Outcome::failed, life.error().message});
        else if (*life == Life::unseen)
            rows.all.push_back(unseen(entry, record, namespaces));
        else if (*life == Life::dead)
            rows.add_dead(entry, record);
        else if (TRY(is_unfinished(record)))
            rows.all.push_back(
                {entry, Outcome::kept,
                 "its ADD did not end, and its namespace is there; a DEL or GC of the runtime removes it"});
    }
    return any;
}

Result<void> collect_dead(Rows &rows, const Context &context) {
    std::vector<std::string> containers;
    containers.reserve(rows.dead.size());
    for (const auto &one : rows.dead)
        containers.emplace_back(field_text(rows.all[one.first].entry.first.container_id));
    do_by_container(containers, TRY(containers_at_a_time(context.world.bpffs)), [&](std::size_t i) {
        const auto &[row, found] = rows.dead[i];
        rows.all[row] = collect(rows.all[row].entry, found, context);
    });
    return {};
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
    Errors errors;
    const auto records = TRY(AttachmentRecords(context.state_directory, world.bpffs).list(errors));
    std::vector<EndpointEntry> endpoints;
    if (const auto live = check_live_directory(world.bpffs); live)
        endpoints = TRY(selected_endpoints(Selection(), world));
    else if (live.error().code != ErrorCode::missing)
        return live.error();
    if (!context.dry && !TRY(is_program(context.plugin)))
        return Error{ErrorCode::missing, "there is no plugin " + context.plugin + " to call DEL of",
                     "name its directory with --bin-dir"};
    auto torn = find_torn_records(context.state_directory, world.bpffs); // before others are removed
    Errors hidden;
    Namespaces namespaces{TRY(network_namespaces(hidden))}; // last: those of all that is on record are among them
    namespaces.hidden = std::move(hidden).result();
    Rows rows;
    const std::vector<EndpointEntry> selected = TRY(only_selected(endpoints, selection, world));
    TRY(collect_known(selected, records, namespaces, context, rows));
    const bool any_recorded = TRY(collect_recorded(selection, endpoints, records, namespaces, context, rows));
    if (!context.dry)
        TRY(collect_dead(rows, context));
    const bool any_torn = torn && TRY(collect_torn_records(selection, *torn, context, rows.all));
    errors.add(std::move(torn));
    if (selected.empty() && !any_recorded && !any_torn && errors.none() && !selection.selects_all())
        return selection.no_match();
    if (!rows.all.empty() || (world.json && errors.none()))
        world.print(output::make_table(kGcColumns, rows.all));
    else if (errors.none())
        world.print("nothing to collect\n");
    TRY(std::move(errors).result());
    const bool failed =
        std::ranges::any_of(rows.all, [](const GarbageRow &row) { return row.outcome == Outcome::failed; });
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
