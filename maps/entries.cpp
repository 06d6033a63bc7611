// SPDX-License-Identifier: MIT
#include "maps/entries.hpp"

#include <algorithm>

namespace podlane {

std::span<const ip_addr> addresses_in(const endpoint &record) {
    return std::span(record.addresses).first(std::min<std::size_t>(record.address_count, ENDPOINT_ADDRESSES));
}

interface make_interface(const endpoint &record) {
    interface value {};
    value.network = record.network;
    value.flags = record.flags;
    for (const ip_addr &addr : addresses_in(record))
        if (ip_addr &first = is_ipv4(addr) ? value.ipv4 : value.ipv6; is_none(first))
            first = addr;
    value.link_local = record.link_local;
    std::ranges::copy(record.pod_mac, value.pod_mac);
    value.netns_id = record.netns_id;
    return value;
}

address make_address(const endpoint &record) {
    address value{};
    value.ifindex = record.ifindex;
    value.flags = record.flags & ~std::uint32_t{INTERFACE_MAC_LEARNED};
    value.mtu = record.mtu;
    std::ranges::copy(record.pod_mac, value.pod_mac);
    std::ranges::copy(record.host_mac, value.host_mac);
    return value;
}

bool take_learned_mac(const interface &entry, endpoint &record) {
    if ((entry.flags & INTERFACE_MAC_LEARNED) == 0 ||
        ((record.flags & INTERFACE_MAC_LEARNED) != 0 && std::ranges::equal(entry.pod_mac, record.pod_mac)))
        return false;
    record.flags |= INTERFACE_MAC_LEARNED;
    std::ranges::copy(entry.pod_mac, record.pod_mac);
    return true;
}

bool is_entry_of(const endpoint &record, address entry) {
    const address expected = make_address(record);
    if ((record.flags & INTERFACE_MAC_LEARNED) != 0)
        std::ranges::copy(expected.pod_mac, entry.pod_mac);
    return same_bytes(entry, expected);
}

Result<void> refuse_half_deleted(const Interfaces &interfaces, const endpoint &record) {
    if (record.ifindex == 0 || TRY(interfaces.find(record.ifindex))) // 0: it never has one
        return {};
    return Error{ErrorCode::try_again_later,
                 "the pod of " + std::string(field_text(record.host_ifname)) +
                     " is being deleted: its entry in " PODLANE_MAP_INTERFACES " is gone; nothing is changed",
                 "if no DEL of it is under way, podlanectl doctor --fix restores the entry"};
}

} // namespace podlane
