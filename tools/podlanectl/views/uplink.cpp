// SPDX-License-Identifier: MIT
// uplink list, uplink sync, uplink detach: the interfaces by which pods reach other nodes.
#include "tools/podlanectl/views/uplink.hpp"

#include "loader/net/link.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/uplink.hpp"
#include "maps/text.hpp"
#include "plugin/announcement.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/network.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <net/if.h>

#include <algorithm>
#include <array>
#include <set>

namespace podlane::ctl {
namespace {

Cell state_cell(const UplinkReport &r) {
    if (r.name.empty())
        return {"interface is gone", "gone", Tone::bad};
    return r.has_programs ? text_cell("ok", Tone::good) : Cell{"programs are missing", "no-programs", Tone::bad};
}

constexpr std::array<Column<UplinkReport>, 4> kUplinkColumns = {{
    {{"INTERFACE", "", "interface"}, [](const UplinkReport &r) { return text_cell(r.name, Tone::strong); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const UplinkReport &r) { return number_cell(r.ifindex); }},
    {{"NETWORKS", "", "networks"}, [](const UplinkReport &r) { return list_cell(r.networks); }},
    {{"STATE", "", "state"}, state_cell},
}};

bool is_fine(const UplinkReport &one) { return one.has_programs && !one.name.empty(); }

Result<bool> runs_pinned(const World &world, std::uint32_t ifindex, Hook hook, const char *program,
                         const ProgramsOnHook &on_hook) {
    const Result<Fd> pinned = open_program(world.bpffs, program);
    if (!pinned)
        return pinned.error().code == ErrorCode::missing ? Result<bool>(false) : pinned.error();
    return is_attached(ifindex, hook, pinned->get(), on_hook);
}

// Prints what was left out on standard error, and the list.
Result<int> print_list(World &world, const std::vector<std::string> &notes) {
    for (const std::string &note : notes)
        std::fwrite((note + "\n").data(), 1, note.size() + 1, world.err);
    const auto all = TRY(read_uplinks(world));
    world.print(uplink_table(all));
    return std::ranges::all_of(all, is_fine) ? 0 : 1;
}

} // namespace

Result<std::vector<UplinkReport>> read_uplinks(const World &world, const ProgramsOnHook &on_hook) {
    const auto names = network_names(world);
    std::vector<UplinkReport> all;
    for (const auto &[ifindex, entry] : TRY(read_map<std::uint32_t, uplink>(world.bpffs, PODLANE_MAP_UPLINKS))) {
        UplinkReport &one = all.emplace_back();
        one.ifindex = ifindex;
        one.name = TRY(net::link_name(ifindex));
        for (const std::uint32_t network : entry.networks)
            if (network != 0)
                one.networks.push_back(network_words(names, network));
        if (!one.name.empty())
            one.has_programs = TRY(runs_pinned(world, ifindex, Hook::ingress, PODLANE_PROGRAM_FROM_UPLINK, on_hook)) &&
                               TRY(runs_pinned(world, ifindex, Hook::egress, PODLANE_PROGRAM_TO_UPLINK, on_hook));
    }
    std::ranges::sort(all, {}, &UplinkReport::ifindex);
    return all;
}

Result<std::vector<UplinkReport>> selected_uplinks(const Selection &selection, const World &world) {
    auto all = TRY(read_uplinks(world));
    if (selection.selects_all())
        return all;
    const bool is_one =
        selection.interface() && std::ranges::find(all, *selection.interface(), &UplinkReport::name) != all.end();
    std::set<std::string, std::less<>> networks;
    if (!is_one)
        for (const auto &[key, value] : TRY(selected_endpoints(selection, world)))
            networks.emplace(field_text(value.network_name));
    std::erase_if(all, [&](const UplinkReport &one) {
        return is_one ? one.name != *selection.interface()
                      : std::ranges::none_of(one.networks, [&](const auto &name) { return networks.contains(name); });
    });
    return all;
}

output::Table uplink_table(const std::vector<UplinkReport> &all) { return output::make_table(kUplinkColumns, all); }

Result<std::vector<std::string>> sync_all_uplinks(const std::string &root) {
    std::vector<std::string> notes;
    const Lock lock = TRY(Lock::exclusive(root));
    const UplinkTables tables = TRY(UplinkTables::open(root));
    const Interfaces host_veths = TRY(open_interfaces(root, Access::read_write));
    TRY(remove_vanished_uplinks(tables));
    const Tables routes = TRY(Tables::open(root, Access::if_present));
    net::Netlink host = TRY(net::Netlink::open());
    for (const auto &[id, entry] : TRY(read_map<std::uint32_t, network>(root, PODLANE_MAP_NETWORKS))) {
        if (entry.has_uplinks == 0)
            continue;
        const FoundUplinks found = TRY(find_uplinks(split<std::string>(field_text(entry.uplinks), " "), host_veths));
        if (found.refused && entry.has_uplinks == kFastUplinks)
            return *found.refused;
        const HookKind kind = hook_kind_of(entry.attach);
        TRY(sync_uplinks(tables, id, found.ifindexes, kind, false));
        notes.insert(notes.end(), found.notes.begin(), found.notes.end());
        for (const std::uint32_t ifindex : found.ifindexes)
            if (const auto link = TRY(net::find_link(host, ifindex)))
                TRY(follow_uplink(*link, id, routes, root, host));
    }
    return notes;
}

namespace {

Result<int> uplink_list(const Call &call, World &world) {
    const auto all = TRY(selected_uplinks(TRY(Selection::of(call)), world));
    world.print(uplink_table(all));
    return std::ranges::all_of(all, is_fine) ? 0 : 1;
}

Result<int> uplink_sync(const Call &, World &world) {
    TRY(check_live_directory(world.bpffs));
    return print_list(world, TRY(sync_all_uplinks(world.bpffs)));
}

Result<int> uplink_detach(const Call &call, World &world) {
    TRY(check_live_directory(world.bpffs));
    {
        const Lock lock = TRY(Lock::exclusive(world.bpffs));
        const UplinkTables tables = TRY(UplinkTables::open(world.bpffs));
        std::vector<std::uint32_t> chosen;
        for (const auto &[ifindex, entry] : TRY(tables.uplinks.entries()))
            if (call.argument == "all" || TRY(net::link_name(ifindex)) == call.argument)
                chosen.push_back(ifindex);
        if (chosen.empty() && call.argument != "all")
            return Error{ErrorCode::missing, "interface " + call.argument + " is not an uplink",
                         "\"podlanectl uplink list\" shows them"};
        for (const std::uint32_t ifindex : chosen)
            TRY(remove_uplink(tables, ifindex));
    }
    return print_list(world, {});
}

constexpr Argument kUplink{"INTERFACE", true, "its name, or \"all\""};

constexpr std::array<Command, 3> kUplinkCommands = {{
    {"list", "List uplinks, their networks and whether the programs are attached.", kSelect | kRead, kWhich,
     "The exit code is 1 if an interface or its programs are missing. With a selection of endpoints: the uplinks of "
     "their\n"
     "networks. --interface also selects the uplink itself.",
     uplink_list},
    {"sync",
     "Attach the programs to the interfaces that are uplinks now.",
     kPlain,
     {},
     "Uses the configuration of each network's last ADD, for interfaces that were created or recreated since.",
     uplink_sync,
     true},
    {"detach", "Detach the programs from an uplink.", kPlain, kUplink,
     "Traffic by it then takes the slow path. The next ADD of one of its networks attaches them again, unless the\n"
     "configuration has changed.",
     uplink_detach, true},
}};

} // namespace

const Noun kUplinkNoun = {"uplink", "interfaces by which pods reach other nodes on the fast path", kUplinkCommands};

} // namespace podlane::ctl
