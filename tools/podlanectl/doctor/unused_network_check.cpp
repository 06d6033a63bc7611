// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/unused_network_check.hpp"

#include "loader/pins.hpp"
#include "loader/uplink.hpp"
#include "plugin/network.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <algorithm>

namespace podlane::ctl::doctor {
namespace {

Result<bool> has_pods(const Tables &tables, std::uint32_t network) {
    if (TRY(tables.addresses.any_key([&](const address_key &key) { return key.network == network; })))
        return true;
    return std::ranges::any_of(TRY(tables.endpoints.entries()),
                               [&](const auto &one) { return one.second.network == network; });
}

// Nothing but the node's next ADD or DEL could be of the network.
Result<bool> is_unused(const Tables &tables, const std::vector<AttachmentRecord> &records, std::uint32_t network,
                       const std::string &name) {
    return std::ranges::none_of(records, [&](const AttachmentRecord &one) { return one.network == name; }) &&
           !TRY(has_pods(tables, network));
}

Result<void> drop_network(const std::string &root, const std::string &directory, std::uint32_t network,
                          const std::string &name) {
    cni::Request request;
    request.config.bpffs = root;
    request.config.state_dir = directory;
    request.config.name = name;
    constexpr bool kMayHaveHadLimitGroups = true;
    return drop_network_if_unused(request, TRY(Tables::open(root)), network, kMayHaveHadLimitGroups);
}

using Carried = std::vector<std::pair<std::uint32_t, std::uint32_t>>; // interface and network

// By uplinks, of networks that neither networks_v1 nor a pod knows of.
Result<Carried> unknown_carried(const UplinkTables &uplinks, const Tables &tables) {
    Carried all;
    for (const auto &[ifindex, entry] : TRY(uplinks.uplinks.entries()))
        for (const std::uint32_t network : entry.networks)
            if (network != 0 && !TRY(tables.networks.find(network)) && !TRY(has_pods(tables, network)))
                all.emplace_back(ifindex, network);
    return all;
}

// Alone: an ADD enters the network first, and a DEL leaves it last.
Result<Carried> unknown_carried_alone(const std::string &root) {
    const Lock alone = TRY(Lock::exclusive(root));
    return unknown_carried(TRY(UplinkTables::open(root, Access::read_only)), TRY(Tables::open(root)));
}

Result<void> leave_uplink(const std::string &root, std::uint32_t ifindex, std::uint32_t network) {
    const Lock alone = TRY(Lock::exclusive(root));
    const UplinkTables uplinks = TRY(UplinkTables::open(root));
    const Carried still = TRY(unknown_carried(uplinks, TRY(Tables::open(root))));
    return std::ranges::find(still, std::pair(ifindex, network)) == still.end()
               ? Result<void>{}
               : remove_network_from_uplink(uplinks, ifindex, network);
}

Result<void> look_for_unknown_networks(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    if (TRY(unknown_carried(TRY(UplinkTables::open(root, Access::read_only)), *node.tables)).empty())
        return {};
    for (const auto &[ifindex, network] : TRY(unknown_carried_alone(root)))
        report(findings,
               "the entry of " + interface_name(ifindex) + " in " PODLANE_MAP_UPLINKS " names network " +
                   std::to_string(network) + ", which is not in " PODLANE_MAP_NETWORKS,
               [root, ifindex = ifindex, network = network] { return leave_uplink(root, ifindex, network); });
    return {};
}

} // namespace

// An ADD writes its record before it enters the network; none may be without one.
Result<void> look_for_unused_networks(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs, &directory = node.state_directory;
    TRY(look_for_unknown_networks(node, findings));
    if (!node.records || !node.unread_records)
        return {};
    for (const auto &[id, entry] : TRY(node.live->networks.entries())) {
        const std::string name(field_text(entry.name));
        if (!TRY(is_unused(*node.tables, *node.records, id, name)))
            continue;
        Errors unread;
        const auto now = TRY(list_all_records(directory, unread));
        if (unread.none() && TRY(is_unused(*node.tables, now, id, name)))
            report(findings, "network " + name + " has no pod",
                   [root, directory, network = id, name] { return drop_network(root, directory, network, name); });
    }
    return {};
}

} // namespace podlane::ctl::doctor
