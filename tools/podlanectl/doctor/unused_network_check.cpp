// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/unused_network_check.hpp"

#include "loader/pins.hpp"
#include "plugin/network.hpp"

#include <algorithm>

namespace podlane::ctl::doctor {
namespace {

// Nothing but the node's next ADD or DEL could be of the network.
Result<bool> is_unused(const Tables &tables, const std::vector<AttachmentRecord> &records, std::uint32_t network,
                       const std::string &name) {
    if (std::ranges::any_of(records, [&](const AttachmentRecord &one) { return one.network == name; }) ||
        TRY(tables.addresses.any_key([&](const address_key &key) { return key.network == network; })))
        return false;
    return std::ranges::none_of(TRY(tables.endpoints.entries()),
                                [&](const auto &one) { return one.second.network == network; });
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

} // namespace

// An ADD writes its record before it enters the network; none may be without one.
Result<void> look_for_unused_networks(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs, &directory = node.state_directory;
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
