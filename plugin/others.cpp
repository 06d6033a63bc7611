// SPDX-License-Identifier: MIT
#include "plugin/others.hpp"

#include "loader/host_veth.hpp"
#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"
#include "loader/own_addresses.hpp"
#include "maps/abi/interface.h"

#include <algorithm>

namespace podlane {

Result<std::vector<AttachmentRecord>> others_on_disk(const std::string &state_directory, const IsGone &is_gone) {
    net::Netlink host = TRY(net::Netlink::open());
    const std::uint64_t node = TRY(net::Namespace::current()).inode();
    std::vector<AttachmentRecord> others;
    for (AttachmentRecord &record : TRY(list_all_records(state_directory))) {
        if (is_gone(record) || !record.entry || record.node_netns != node || !TRY(is_of_this_boot(record)))
            continue;
        if (TRY(find_host_veth(host, *record.entry)))
            others.push_back(std::move(record));
    }
    return others;
}

Result<void> drop_own_address_rules(const std::string &state_directory, const IsGone &is_gone) {
    if (TRY(find_own_address_rules()) == OwnAddressRules::none)
        return {};
    const auto others = TRY(others_on_disk(state_directory, is_gone));
    const auto needs_them = [](const AttachmentRecord &record) {
        return (record.entry->flags & INTERFACE_EGRESS_ROUTE) != 0;
    };
    return std::ranges::any_of(others, needs_them) ? Result<void>{} : remove_own_address_rules();
}

} // namespace podlane
