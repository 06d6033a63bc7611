// SPDX-License-Identifier: MIT
// gc: the DEL that the runtime did not send, for endpoints whose interface is gone.
#include "loader/process.hpp"
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

namespace podlane::ctl {
namespace {

enum class Outcome { removed, would_be, kept, failed };

struct Row {
    EndpointEntry entry;
    Outcome outcome;
    std::string why{};
};

Cell outcome_cell(const Row &row) {
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

Cell container_cell(const Row &row) {
    const std::string id(field_text(row.entry.first.container_id));
    return {id.substr(0, 12), id};
}

constexpr std::array<Column<Row>, 6> kColumns = {{
    {{"POD", "", "pod"},
     [](const Row &r) { return text_cell(pod_words(r.entry.first, r.entry.second), Tone::strong); }},
    {{"NETWORK", "", "network"}, [](const Row &r) { return text_cell(field_text(r.entry.second.network_name)); }},
    {{"CONTAINER", "", "container_id"}, container_cell},
    {{"INTERFACE", "", "host_interface"},
     [](const Row &r) { return text_cell(field_text(r.entry.second.host_ifname)); }},
    {{"", "", "ifname"}, [](const Row &r) { return text_cell(field_text(r.entry.first.ifname)); }},
    {{"RESULT", "", "result"}, outcome_cell},
}};

// False without a host-side veth (macvlan and the like) too: only the namespace says whether the container exists.
// A veth pair is deleted with either end's namespace: if the host-side veth exists, so does the container's interface.
bool has_link(const endpoint &record) {
    return record.ifindex != 0 && interface_name(record.ifindex) == field_text(record.host_ifname);
}

std::string plugin_in(const Call &call) { return call.value(Opt::bin_dir).value_or(std::string(kBinDir)) + "/podlane"; }

// As the runtime would have called it after the namespace was gone. The lease is released by the runtime's own DEL or
// GC, which has the IPAM plugin's configuration.
Result<void> send_del(const std::string &plugin, const EndpointEntry &entry, const World &world) {
    const auto &[key, record] = entry;
    const output::Object config = {{"cniVersion", "1.0.0"},
                                   {"name", field_text(record.network_name)},
                                   {"type", "podlane"},
                                   {"bpffs", world.bpffs}};
    const std::vector<std::string> environment = {
        "CNI_COMMAND=DEL",
        "CNI_NETNS=",
        "CNI_CONTAINERID=" + std::string(field_text(key.container_id)),
        "CNI_IFNAME=" + std::string(field_text(key.ifname)),
        "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + std::string(field_text(record.pod_namespace)) +
            ";K8S_POD_NAME=" + std::string(field_text(record.pod_name)),
        "CNI_PATH=" + plugin.substr(0, plugin.rfind('/')),
        "PATH=/usr/sbin:/sbin:/usr/bin:/bin"};
    const Finished finished = TRY(run_process(plugin, environment, output::json_text(config)));
    if (finished.exit_code != 0)
        return Error{ErrorCode::io_failure, "its DEL said " + finished.out};
    return {};
}

Row collect(const EndpointEntry &entry, const std::string &plugin, bool dry, const World &world) {
    if (dry)
        return {entry, Outcome::would_be};
    const Result<void> sent = send_del(plugin, entry, world);
    return sent ? Row{entry, Outcome::removed} : Row{entry, Outcome::failed, sent.error().message};
}

Result<int> gc(const Call &call, World &world) {
    const Selection selection = TRY(Selection::of(call));
    const bool dry = call.has(Opt::dry_run);
    const std::string plugin = plugin_in(call);
    const auto endpoints = TRY(selected_endpoints(selection, world));
    if (!dry && access(plugin.c_str(), X_OK) != 0)
        return Error{ErrorCode::missing, "there is no plugin " + plugin + " to call DEL of",
                     "name its directory with --bin-dir"};
    const auto namespaces = network_namespaces();
    std::vector<Row> rows;
    for (const EndpointEntry &entry : endpoints) {
        if (has_link(entry.second))
            continue;
        if (!namespaces.contains(entry.second.netns_inode))
            rows.push_back(collect(entry, plugin, dry, world));
        else if (entry.second.ifindex != 0)
            rows.push_back({entry, Outcome::kept, "its container exists, without the interface"});
    }
    if (rows.empty() && !world.json)
        world.print("nothing to collect\n");
    else
        world.print(output::make_table(kColumns, rows));
    const bool failed = std::ranges::any_of(rows, [](const Row &row) { return row.outcome == Outcome::failed; });
    return failed ? 1 : 0;
}

constexpr std::array<Command, 1> kCommands = {{
    {"", "Remove endpoints whose interface and namespace are gone, as the runtime's DEL would have.",
     kSelect | kPlain | Opts{Opt::bin_dir, Opt::dry_run}, kWhich,
     "Calls the plugin's DEL for each. Leases are released by the runtime's own DEL or GC, which knows the IPAM "
     "plugin.",
     gc, true},
}};

} // namespace

const Noun kGcNoun = {"gc", "remove endpoints that the runtime no longer has", kCommands};

} // namespace podlane::ctl
