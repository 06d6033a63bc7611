// SPDX-License-Identifier: MIT
// path list, path show, path flush: the flow cache.
#include "tools/podlanectl/views/path.hpp"

#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "tools/podlanectl/views/source.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <optional>
#include <set>

namespace podlane::ctl {
namespace {

struct PathRow {
    path_key key;
    flow_path value;
    std::string pod; // empty: no endpoint is known for it
    std::string container_id;
    std::string interface; // host-side veth
    std::string uplink;
    std::uint64_t now_ns;                         // CLOCK_MONOTONIC
    std::optional<flow> confirmed = std::nullopt; // by conntrack: `key` is then the tuple as it arrives
};

Cell via_cell(const PathRow &r) {
    if (r.confirmed)
        return text_cell((r.confirmed->flags & FLOW_UNTRACKED) != 0 ? "direct" : "conntrack", Tone::good);
    const std::string_view name = via_name(r.value.via);
    if (r.value.via != PATH_UPLINK)
        return text_cell(name, name == via_name(PATH_HOST) ? Tone::plain : Tone::good);
    const std::string gone = "uplink " + std::to_string(r.value.uplink) + " (gone)";
    return {r.value.uplink == 0 ? "uplink by route" : r.uplink.empty() ? gone : "uplink " + r.uplink, name, Tone::good};
}

constexpr std::array<Column<PathRow>, 18> kPathColumns = {{
    {{"POD", "pod", "pod"}, [](const PathRow &r) { return text_cell(r.pod, Tone::strong); }},
    {{"", "container", "container_id"}, [](const PathRow &r) { return text_cell(r.container_id); }},
    {{"", "host interface", "host_interface"}, [](const PathRow &r) { return text_cell(r.interface); }},
    {{"", "ifindex", "ifindex"}, [](const PathRow &r) { return number_cell(r.key.ifindex); }},
    {{"PROTOCOL", "protocol", "protocol"}, [](const PathRow &r) { return text_cell(protocol_name(r.key.protocol)); }},
    {{"LOCAL", "local", ""}, [](const PathRow &r) { return text_cell(socket_words(r.key.local, r.key.local_port)); }},
    {{"PEER", "peer", ""}, [](const PathRow &r) { return text_cell(socket_words(r.key.peer, r.key.peer_port)); }},
    {{"", "", "local"}, [](const PathRow &r) { return text_cell(to_string(r.key.local)); }},
    {{"", "", "local_port"}, [](const PathRow &r) { return number_cell(ntohs(r.key.local_port)); }},
    {{"", "", "peer"}, [](const PathRow &r) { return text_cell(to_string(r.key.peer)); }},
    {{"", "", "peer_port"}, [](const PathRow &r) { return number_cell(ntohs(r.key.peer_port)); }},
    {{"VIA", "via", "via"}, via_cell},
    {{"", "", "uplink"}, [](const PathRow &r) { return text_cell(r.uplink); }},
    {{"TRANSLATED", "translated", ""},
     [](const PathRow &r) {
         if (!r.confirmed || (r.confirmed->flags & FLOW_TRANSLATED) == 0)
             return text_cell("");
         return text_cell(socket_words(r.confirmed->source, r.confirmed->source_port) + " " +
                          socket_words(r.confirmed->destination, r.confirmed->destination_port));
     }},
    {{"", "", "translated_source"},
     [](const PathRow &r) {
         return text_cell(r.confirmed ? socket_words(r.confirmed->source, r.confirmed->source_port) : "");
     }},
    {{"", "", "translated_destination"},
     [](const PathRow &r) {
         return text_cell(r.confirmed ? socket_words(r.confirmed->destination, r.confirmed->destination_port) : "");
     }},
    {{"CONFIRMED", "confirmed", "confirmed_age_ns", Align::right},
     [](const PathRow &r) {
         if (!r.confirmed)
             return text_cell("");
         const std::uint64_t age = r.now_ns > r.confirmed->confirmed_ns ? r.now_ns - r.confirmed->confirmed_ns : 0;
         return Cell{output::duration_words(age), age};
     }},
    {{"AGE", "age", "age_ns", Align::right},
     [](const PathRow &r) {
         const std::uint64_t age = r.now_ns > r.value.since_ns ? r.now_ns - r.value.since_ns : 0;
         return Cell{output::duration_words(age), age};
     }},
}};

const EndpointEntry *owner_of(const path_key &key, const std::vector<EndpointEntry> &entries) {
    const auto found = std::ranges::find(entries, key.ifindex, [](const EndpointEntry &e) { return e.second.ifindex; });
    return found == entries.end() ? nullptr : &*found;
}

void sort_rows(std::vector<PathRow> &rows) {
    std::ranges::sort(rows, [](const PathRow &a, const PathRow &b) {
        return a.pod != b.pod ? a.pod < b.pod : a.value.since_ns < b.value.since_ns;
    });
}

PathRow row_of(const path_key &key, const flow_path &value, const EndpointEntry *owner, const World &world) {
    return {key,
            value,
            owner == nullptr ? "" : pod_words(owner->first, owner->second),
            owner == nullptr ? "" : std::string(field_text(owner->first.container_id)),
            interface_name(key.ifindex),
            interface_name(value.uplink),
            world.monotonic_ns};
}

// Flows that conntrack has confirmed: by the host-side veth or the uplink on which they arrive.
Result<std::vector<PathRow>> read_flows(const std::vector<EndpointEntry> &entries, bool orphans, const World &world) {
    std::vector<PathRow> rows;
    for (const auto &[key, value] : TRY(read_map<flow_key, flow>(world.bpffs, PODLANE_MAP_FLOWS))) {
        path_key as_path{};
        as_path.ifindex = value.ifindex;
        as_path.local = key.source;
        as_path.peer = key.destination;
        as_path.local_port = key.source_port;
        as_path.peer_port = key.destination_port;
        as_path.protocol = key.protocol;
        const EndpointEntry *owner = owner_of(as_path, entries);
        if (owner == nullptr && !orphans)
            continue;
        PathRow row = row_of(as_path, {.since_ns = value.since_ns, .via = 0, .uplink = 0}, owner, world);
        row.confirmed = value;
        rows.push_back(std::move(row));
    }
    sort_rows(rows);
    return rows;
}

// Flows of these entries only; with `orphans`, also those of endpoints that are gone.
std::vector<PathRow> rows_of(const std::vector<std::pair<path_key, flow_path>> &paths,
                             const std::vector<EndpointEntry> &entries, bool orphans, const World &world) {
    std::vector<PathRow> rows;
    for (const auto &[key, value] : paths) {
        const EndpointEntry *owner = owner_of(key, entries);
        if (owner != nullptr || orphans)
            rows.push_back(row_of(key, value, owner, world));
    }
    sort_rows(rows);
    return rows;
}

Result<std::vector<PathRow>> read_paths(const std::vector<EndpointEntry> &entries, bool orphans, const World &world) {
    return rows_of(TRY(read_map<path_key, flow_path>(world.bpffs, PODLANE_MAP_PATHS)), entries, orphans, world);
}

Result<std::vector<PathRow>> read_kept_paths(const std::vector<EndpointEntry> &entries, bool orphans,
                                             const World &world) {
    std::vector<std::pair<path_key, flow_path>> paths;
    for (const auto &[ifindex, all] : TRY(read_map<std::uint32_t, kept_paths>(world.bpffs, PODLANE_MAP_KEPT_PATHS)))
        for (const kept_path &kept : all.paths)
            if (kept.path.since_ns != 0)
                paths.emplace_back(kept.flow, kept.path);
    return rows_of(paths, entries, orphans, world);
}

using Read = Result<std::vector<PathRow>> (*)(const std::vector<EndpointEntry> &, bool, const World &);

Result<std::vector<PathRow>> selected(Read read, const Selection &selection, const World &world) {
    if (!selection.selects_all())
        return read(TRY(selected_endpoints(selection, world)), false, world);
    // Endpoints name the pods of flows; without them only the interface is shown.
    const Result<std::vector<EndpointEntry>> entries = selected_endpoints({}, world);
    return read(entries ? *entries : std::vector<EndpointEntry>{}, true, world);
}

// Of both maps.
Result<std::vector<PathRow>> selected_paths(const Selection &selection, const World &world) {
    std::vector<PathRow> rows = TRY(selected(read_flows, selection, world));
    std::ranges::move(TRY(selected(read_paths, selection, world)), std::back_inserter(rows));
    return rows;
}

} // namespace

Result<output::Table> path_table(const Selection &selection, const World &world) {
    return output::make_table(kPathColumns, TRY(selected(read_paths, selection, world)));
}

Result<output::Table> kept_path_table(const Selection &selection, const World &world) {
    return output::make_table(kPathColumns, TRY(selected(read_kept_paths, selection, world)));
}

Result<output::Table> flow_table(const Selection &selection, const World &world) {
    return output::make_table(kPathColumns, TRY(selected(read_flows, selection, world)));
}

namespace {

flow_key flow_key_of(const PathRow &row) {
    flow_key key{};
    key.source = row.key.local;
    key.destination = row.key.peer;
    key.source_port = row.key.local_port;
    key.destination_port = row.key.peer_port;
    key.protocol = row.key.protocol;
    return key;
}

Result<int> path_list(const Call &call, World &world) {
    world.print(output::make_table(kPathColumns, TRY(selected_paths(TRY(Selection::of(call)), world))));
    return 0;
}

Result<int> path_show(const Call &call, World &world) {
    if (call.has(Opt::source) || call.has(Opt::destination))
        return show_egress(call, world);
    const Selection selection = TRY(Selection::of(call));
    if (selection.selects_all())
        return usage_error("path show needs to know which", "name a pod, container, address or interface, as in "
                                                            "\"podlanectl path show default/web-0\"");
    const output::Table table = output::make_table(kPathColumns, TRY(selected_paths(selection, world)));
    world.print_records(table);
    return 0;
}

// That an uplink carries a flow nothing else knows, but of TCP: without it, anybody on another uplink could move the
// flow by a packet in the peer's name. It is another's after 30 s of silence, or 210 of SCTP.
bool stays(const path_key &key, const flow_path &path) {
    return path.via == PATH_UPLINK && key.protocol != IPPROTO_TCP;
}

Result<void> flush_kept(const KeptPaths &kept, std::uint32_t ifindex) {
    auto paths = TRY(kept.find(ifindex));
    if (!paths)
        return {};
    for (kept_path &one : paths->paths) // NOLINT(*-constant-array-index)
        if (!stays(one.flow, one.path))
            one = {};
    auto done = kept.replace(ifindex, *paths);
    return !done && done.error().system_errno == ENOENT ? Result<void>{} : done; // a pod that went
}

Result<int> path_flush(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    if (selection.selects_all() != call.has(Opt::all))
        return usage_error("path flush needs to know which",
                           "name a pod, container, address or interface, or say --all");
    const std::vector<PathRow> rows = TRY(selected_paths(selection, world));
    const Paths paths = TRY(open_paths(world.bpffs, Access::read_write));
    std::uint64_t erased = 0;
    const Flows flows = TRY(open_flows(world.bpffs, Access::read_write));
    for (const PathRow &row : rows)
        if (row.confirmed || !stays(row.key, row.value))
            erased += TRY(row.confirmed ? flows.remove(flow_key_of(row)) : paths.remove(row.key)) ? 1 : 0;
    const KeptPaths kept = TRY(open_kept_paths(world.bpffs, Access::read_write));
    std::set<std::uint32_t> interfaces;
    for (const PathRow &row : TRY(selected(read_kept_paths, selection, world)))
        if (interfaces.insert(row.key.ifindex).second)
            TRY(flush_kept(kept, row.key.ifindex));
    if (world.json)
        world.print(output::json_text(output::Object{{"flushed", erased}}));
    else
        world.print(std::to_string(erased) + (erased == 1 ? " flow" : " flows") + " deleted from the cache\n");
    return 0;
}

constexpr std::array<Command, 3> kPathCommands = {{
    {"list", "List cached flows.", kSelect | kRead, kWhich,
     "Paths: conntrack (confirmed by it, translated as it says), host (through the host stack, which may translate or "
     "filter), direct (between two pods of this node),\n"
     "uplink NAME (replies leave by it), uplink by route (as the kernel's routes say).",
     path_list},
    {"show", "Show everything known about a pod's flows, or which path a packet would take, and why.",
     kSelect | kRead | Opts{Opt::source, Opt::destination}, kWhich,
     "With --source and --destination: for each selected interface, the path of a packet from one to the other, unless "
     "a\n"
     "cached flow says otherwise (\"podlanectl path list\").",
     path_show},
    {"flush", "Delete cached flows, so that their next packet selects its path again.",
     kSelect | kPlain | Opts{Opt::all}, kWhich,
     "Needs a selection, or --all. Established connections continue, through the host stack.", path_flush, true},
}};

} // namespace

const Noun kPathNoun = {"path", "the flow cache: which path each flow takes", kPathCommands};

} // namespace podlane::ctl
