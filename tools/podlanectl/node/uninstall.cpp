// SPDX-License-Identifier: MIT
// uninstall: removes Podlane from the node; pods stay connected, through the host stack.
#include "loader/attach.hpp"
#include "loader/edt.hpp"
#include "loader/host_veth.hpp"
#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/nftables.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "loader/settings.hpp"
#include "loader/tracking.hpp"
#include "maps/errors.hpp"
#include "maps/file.hpp"
#include "maps/printable.hpp"
#include "plugin/node_program.hpp"
#include "plugin/others.hpp"
#include "plugin/pod_ranges.hpp"
#include "plugin/turn.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/node/dead_pods.hpp"
#include "tools/podlanectl/node/installed.hpp"
#include "tools/podlanectl/node/node_object.hpp"
#include "tools/podlanectl/node/nouns.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

namespace podlane::ctl {
namespace {

// The report printed at the end, also of an uninstall that fails.
struct Story {
    bool is_detached = false; // and the pins are gone
    std::size_t interfaces = 0;
    std::size_t pods = 0; // with an interface, and so with connections
    DeadPods dead{};
    std::vector<std::string> lines{};

    // Of which a DEL is to come.
    [[nodiscard]] std::size_t containers() const { return pods + dead.without_interface; }
};

// Those of this pin directory: programs of another instance have other ids.
Result<std::set<std::uint32_t>> own_programs(const std::string &root) {
    std::set<std::uint32_t> ids;
    for (const std::string_view name : kProgramNames) {
        const auto fd = open_program(root, std::string(name).c_str());
        if (fd)
            ids.insert(TRY(program_facts(fd->get())).id);
        else if (!is_no_object(fd.error()))
            return fd.error();
    }
    return ids;
}

// Host-side veths created by Podlane have an alias, even if their record is lost.
Result<std::set<std::uint32_t>> find_host_veths() {
    net::Netlink host = TRY(net::Netlink::open());
    std::set<std::uint32_t> own;
    for (const net::Link &link : TRY(net::list_links(host)))
        if (link.kind == "veth" && link.alias.starts_with(kAliasPrefix))
            own.insert(link.ifindex);
    return own;
}

// Every interface of the node is examined, so that lost records do not matter.
Result<void> detach_all(const std::string &root, const std::set<std::uint32_t> &recorded, bool lost_pins,
                        Story &story) {
    const std::set<std::uint32_t> own = TRY(own_programs(root));
    net::Netlink host = TRY(net::Netlink::open());
    for (const net::Link &link : TRY(net::list_links(host))) {
        bool any = false;
        for (const Hook hook : {Hook::ingress, Hook::egress}) {
            const auto there = TRY(attached(link.ifindex, hook));
            const bool is_own = std::ranges::any_of(there, [&](const Attached &one) {
                return own.contains(one.program_id) || (lost_pins && is_of_uplink(one));
            });
            if (is_own || recorded.contains(link.ifindex))
                any = TRY(detach(link.ifindex, hook)) || any;
        }
        if (recorded.contains(link.ifindex))
            TRY(remove_edt(link.ifindex));
        story.interfaces += any ? 1 : 0;
    }
    return {};
}

// Removes the proxy ND entries of pods on the uplink of their network.
Result<void> remove_proxies(const std::string &root) {
    net::Netlink host = TRY(net::Netlink::open());
    for (const auto &[key, route] :
         TRY(read_map_if_there<source_route_key, source_route>(root, PODLANE_MAP_SOURCE_ROUTES)))
        if (key.ifindex == route.ifindex && route.uplink != 0 && !is_ipv4(route.source))
            TRY(net::remove_proxy(host, route.uplink, route.source));
    return {};
}

using NetworksById = std::map<std::uint32_t, network>;

// After an uninstall only the records on disk say by which program a network is masqueraded.
void report_masquerade(const NetworksById &loaded, NetworksById networks, Story &story) {
    for (const auto &[id, entry] : loaded)
        networks.insert_or_assign(id, entry);
    for (const auto &[id, entry] : networks) {
        const std::string name(field_text(entry.name));
        if ((entry.masquerade & ENDPOINT_MASQUERADE_NFTABLES) != 0)
            story.lines.push_back("kept, for its pods: table inet " + nft_table(name) + ", which masquerades network " +
                                  name + "; the DEL of the last of them removes it");
        if ((entry.masquerade & ENDPOINT_MASQUERADE_IPTABLES) != 0)
            story.lines.push_back("kept, for its pods: chain " + iptables_chain(name) +
                                  " of iptables and ip6tables, which masquerades network " + name +
                                  "; the DEL of the last of them removes it");
    }
}

// Tables of pods of which neither maps nor records are left. Pods behind another plugin's interface may be unknown too.
Result<void> report_unknown_tables(Story &story) {
    const auto tables = []() -> Result<std::set<std::string>> {
        net::Netlink netfilter = TRY(net::Netlink::open_netfilter());
        return net::tables_with_mark(netfilter, "podlane ");
    }();
    if (!tables && net::lacks_nf_tables(tables.error()))
        return {};
    for (const std::string &table : TRY(tables))
        if (table.starts_with(nft_table("")))
            story.lines.push_back("kept, as no record says whose it is: table inet " + table +
                                  "; if no pod needs it: nft delete table inet '" + table + "'");
    return {};
}

// Once the pins are removed, nothing says which there are.
Result<NetworksById> read_networks(const std::string &root, Story &story) {
    const auto loaded = read_map<std::uint32_t, network>(root, PODLANE_MAP_NETWORKS);
    if (loaded)
        return NetworksById(loaded->begin(), loaded->end());
    if (!is_no_object(loaded.error()))
        return loaded.error();
    if (loaded.error().code != ErrorCode::missing)
        story.lines.push_back(loaded.error().message +
                              ": rules that track the connections of pods may stay: `nft list tables` shows them as "
                              "podlane-NETWORK");
    return NetworksById{};
}

// The rules that have the kernel track connections; those that masquerade stay while there are pods.
Result<void> stop_tracking_all(const NetworksById &networks) {
    for (const auto &[id, entry] : networks) {
        const bool masquerades = (entry.masquerade & ENDPOINT_MASQUERADE_NFTABLES) != 0;
        TRY((masquerades ? stop_tracking_beside_masquerade : stop_tracking)(std::string(field_text(entry.name))));
    }
    return {};
}

struct Recorded {
    std::set<std::uint32_t> interfaces{};
    std::set<std::uint32_t> pods{}; // those of living pods, whatever their alias is by now
    NetworksById networks{};        // of the records on disk

    // false: it has no interface.
    Result<bool> add(net::Netlink &host, const endpoint &record) {
        if (record.ifindex == 0 || !TRY(find_host_veth(host, record)))
            return false;
        interfaces.insert(record.ifindex);
        pods.insert(record.ifindex);
        return true;
    }
};

// Before anything is removed, so that also after a kill no DEL takes the pods that are left for ones that lost their
// entries. Without records there is nothing to restore.
void note_uninstall(const AttachmentRecords &records, Story &story) {
    if (auto noted = records.note_uninstalled(); !noted)
        story.lines.push_back("the next DEL may load the programs again: " + noted.error().message);
}

// Returns whether there is any of this node and boot.
Result<bool> add_from_disk(const AttachmentRecords &records, net::Netlink &host, Recorded &recorded) {
    const ThisNode node = TRY(ThisNode::now());
    bool any = false;
    for (const AttachmentRecord &record : TRY(records.list()))
        if (record.entry && node.has_made(record)) {
            network &of = recorded.networks[record.entry->network];
            static_cast<void>(set_field(of.name, record.network));
            if (TRY(recorded.add(host, *record.entry)))
                of.masquerade |= record.entry->masquerade;
            any = true;
        }
    return any;
}

// False: they belong to a network namespace that is gone, and with it all that the maps know by index. While that
// exists, only there can the programs be detached.
Result<bool> owns_pins(const std::string &root) {
    auto owned = refuse_other_netns(root, TRY(net::own_netns()));
    if (owned || owned.error().code != ErrorCode::plugin_not_available)
        return owned ? Result<bool>(true) : std::move(owned).error();
    Errors hidden; // in one of those nothing could be detached from here
    const auto namespaces = TRY(network_namespaces(hidden));
    const auto there = namespaces.find(TRY(netns_of(root)));
    if (there == namespaces.end())
        return false;
    Error error = std::move(owned).error();
    error.hint = "nsenter --net=" + there->second + " podlanectl uninstall";
    return error;
}

Result<void> detach_node(const std::string &root, bool owned, const std::string &state_directory, Story &story) {
    Recorded recorded;
    net::Netlink host = TRY(net::Netlink::open());
    auto lock = Lock::exclusive(root);
    if (!lock && lock.error().code != ErrorCode::missing)
        return std::move(lock).error();
    if (owned)
        for (const auto &[key, record] : TRY(read_map_if_there<endpoint_key, endpoint>(root, PODLANE_MAP_ENDPOINTS)))
            TRY(recorded.add(host, record));
    const AttachmentRecords records(state_directory, root);
    const bool on_disk = TRY(add_from_disk(records, host, recorded));
    if (on_disk)
        note_uninstall(records, story);
    recorded.pods.merge(TRY(find_host_veths()));
    story.pods = recorded.pods.size();
    const auto elsewhere = TRY(others_elsewhere(state_directory, root));
    if (owned && elsewhere.empty()) // else the programs there may be those of another root
        for (const auto &[ifindex, entry] : TRY(read_map_if_there<std::uint32_t, uplink>(root, PODLANE_MAP_UPLINKS)))
            recorded.interfaces.insert(ifindex);
    NetworksById networks = TRY(read_networks(root, story));
    // The uplinks are known from the maps alone; without these, by the names of the programs.
    const bool lost_pins = on_disk && !TRY(is_live(root));
    if (story.containers() != 0)
        report_masquerade(networks, recorded.networks, story);
    TRY(detach_all(root, recorded.interfaces, lost_pins && elsewhere.empty(), story));
    for (const AttachmentRecord &other : elsewhere)
        for (NetworksById *all : {&networks, &recorded.networks})
            all->erase(network_id(other.network));
    TRY(stop_tracking_all(networks));
    if (lost_pins)
        for (const auto &[id, entry] : recorded.networks)
            TRY(stop_tracking_beside_masquerade(std::string(field_text(entry.name))));
    TRY(drop_own_address_rules(state_directory, [&](const AttachmentRecord &record) { return record.root == root; }));
    if (owned)
        TRY(remove_proxies(root));
    if (!lock)
        return {};               // there was no root: one that is there by now is a new ADD's
    TRY(remove_leftovers(root)); // before the live directory, in whose place an ADD would put what an upgrade replaced
    TRY(remove_pins(live_directory(root)));
    if (rmdir(root.c_str()) != 0 && errno != ENOENT)
        return system_error(ErrorCode::bpf, "removing " + root, errno);
    return {};
}

std::string spelled(std::string name) {
    std::ranges::replace(name, '/', '.');
    return name;
}

// Says of one setting, if that is so, that it stays.
bool is_kept(const ChangedSetting &one, Story &story) {
    const bool is_of_conntrack = one.path()[1] == "netfilter";
    if (!is_of_conntrack)
        story.lines.push_back("kept, as other programs may rely on it: " + spelled(one.name) + " = " + one.set +
                              "; before Podlane: " + one.before);
    else if (story.pods != 0)
        story.lines.push_back("kept, for connections of its pods: " + spelled(one.name) + " = " + one.set +
                              "; when they are gone: podlanectl uninstall");
    return !is_of_conntrack || story.pods != 0;
}

// Conntrack's settings go back when no connection of a pod can be left that it has lost track of. Forwarding stays on:
// other programs may rely on it by now, and with it what keeps router advertisements.
Result<void> restore_settings(const std::string &state_dir, Story &story) {
    const NodeSettings settings = TRY(NodeSettings::open(state_dir));
    auto listed = settings.list();
    if (!listed && listed.error().code == ErrorCode::decode_failure) {
        TRY(settings.discard());
        story.lines.push_back("removed " + settings.path() +
                              ", which could not be read: the settings of the node that "
                              "Podlane changed stay as they are until the next boot");
        return {};
    }
    Errors errors;
    for (const ChangedSetting &one : TRY(std::move(listed))) {
        if (is_kept(one, story))
            continue;
        const auto restored = settings.restore(one);
        if (!restored)
            errors.add(restored.error().context("restoring " + spelled(one.name)));
        else if (*restored)
            story.lines.push_back("restored " + spelled(one.name) + " = " + one.before);
        else
            story.lines.push_back("left alone: " + spelled(one.name) + ", which was changed after Podlane had set it");
    }
    return std::move(errors).result();
}

Result<void> remove_installed(const std::string &directory, std::string_view name, Story &story) {
    const std::string path = directory + "/" + std::string(name);
    switch (TRY(remove_file(directory, name))) {
    case Removed::removed:
        story.lines.push_back("removed " + path);
        break;
    case Removed::foreign:
        story.lines.push_back("left alone: " + path + ", which podlanectl did not write");
        break;
    case Removed::missing:
        break;
    }
    return {};
}

Result<void> remove_plugin(const std::string &bin_dir, Story &story) {
    if (story.containers() == 0 && story.dead.kept.empty())
        return remove_installed(bin_dir, "podlane", story);
    const std::string whose = story.containers() != 0
                                  ? "the DEL of " + std::to_string(story.containers()) + " pods"
                                  : "what is left of " + std::to_string(story.dead.kept.size()) + " containers";
    if (TRY(exists(bin_dir + "/podlane")))
        story.lines.push_back("kept, for " + whose + ": " + bin_dir +
                              "/podlane; when they are gone: podlanectl uninstall");
    return {};
}

// A part that fails keeps none of the others from its end.
Result<void> remove_rest(const std::string &state_dir, const std::string &bin_dir, Story &story) {
    Errors errors;
    errors.add(std::move(story.dead.unread));
    if (story.containers() == 0)
        errors.add(report_unknown_tables(story));
    errors.add(restore_settings(state_dir, story));
    errors.add(forget_pod_ranges(state_dir));
    if (story.containers() == 0 && story.dead.kept.empty())
        errors.add(forget_turns(state_dir));
    errors.add(remove_plugin(bin_dir, story));
    auto done = std::move(errors).result();
    if (!done && done.error().system_errno == EROFS)
        done.error().hint = "mount its file system for writing, then podlanectl uninstall again";
    return done;
}

// The configuration is removed first, so that no ADD attaches again what is detached.
Result<void> remove_all(const Call &call, const World &world, Story &story) {
    const std::string bin_dir = call.value(Opt::bin_dir).value_or(kBinDir);
    const std::string conf_dir = call.value(Opt::conf_dir).value_or(kConfDir);
    const bool owned = TRY(owns_pins(world.bpffs));
    for (const std::string_view name : kConflists)
        TRY(remove_installed(conf_dir, name, story));
    if (const auto left = TRY(networks_in(conf_dir)); !left.empty())
        story.lines.push_back("the runtime uses " + conf_dir + "/" + left.front().file + " for new pods");
    const std::string state_dir = call.value(Opt::state_dir).value_or(kStateDirectory);
    TRY(collect_dead_pods(world, owned, state_dir, story.dead));
    TRY(release_leases(world, state_dir, story.dead));
    TRY(detach_node(world.bpffs, owned, state_dir, story));
    story.is_detached = true;
    return remove_rest(state_dir, bin_dir, story);
}

Result<int> uninstall(const Call &call, World &world) {
    if (geteuid() != 0)
        return Error{ErrorCode::bpf, "no permission to detach programs", "run it as root: sudo podlanectl uninstall",
                     EPERM};
    Story story;
    auto done = remove_all(call, world, story);
    std::string text;
    if (story.is_detached)
        text = "detached the programs from " + std::to_string(story.interfaces) + " interfaces, and removed " +
               world.bpffs + "\n";
    for (const auto *lines : {&story.dead.lines, &story.lines})
        for (const std::string &line : *lines)
            text += printable(line) + "\n";
    world.print(text);
    if (!done && done.error().hint.empty() && done.error().system_errno != EPERM)
        done.error().hint = "correct that, then podlanectl uninstall again";
    return done ? Result<int>(story.dead.kept.empty() ? 0 : 1) : std::move(done).error();
}

constexpr std::array<Command, 1> kUninstallCommands = {{
    {"",
     "Remove configuration, programs, maps and the plugin; pods continue through the host stack.",
     Opts{Opt::bin_dir, Opt::conf_dir, Opt::state_dir, Opt::bpffs, Opt::help},
     {},
     "Pods keep their interfaces, addresses and routes, and for their DEL the plugin. Files that podlanectl install\n"
     "did not write are left alone. The exit code is 1 if something is kept of a container that is gone.",
     uninstall,
     true,
     {},
     true},
}};

} // namespace

const Noun kUninstallNoun = {"uninstall", "remove Podlane from this node", kUninstallCommands};

} // namespace podlane::ctl
