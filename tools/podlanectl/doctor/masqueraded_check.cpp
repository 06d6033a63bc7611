// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/masqueraded_check.hpp"

#include "loader/pins.hpp"
#include "plugin/node_program.hpp"
#include "plugin/stale_masquerade.hpp"

namespace podlane::ctl::doctor {

// No record may be without its addresses: that one cannot be read is a finding of its own. No ADD or DEL is under way
// while the lock is held.
Result<void> look_at_masqueraded_addresses(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs, &directory = node.state_directory;
    if (!node.records || !node.unread_records)
        return {};
    for (const auto &[id, entry] : TRY(node.live->networks.entries())) {
        const std::string network(field_text(entry.name));
        if (TRY(stale_masqueraded(network, *node.tables, *node.records)).empty())
            continue;
        const Lock alone = TRY(Lock::exclusive(root));
        const auto stale = TRY(settled_stale_masqueraded(network, root, directory));
        if (!stale.empty())
            report(findings,
                   "table inet " + nft_table(network) + " masquerades what no pod of network " + network +
                       " needs: " + to_string(stale.front()) +
                       (stale.size() == 1 ? "" : " and " + std::to_string(stale.size() - 1) + " more"),
                   [network, root, directory] { return forget_stale_masquerade(network, root, directory); });
    }
    return {};
}

} // namespace podlane::ctl::doctor
