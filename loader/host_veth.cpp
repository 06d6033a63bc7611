// SPDX-License-Identifier: MIT
#include "loader/host_veth.hpp"

#include "maps/tables.hpp"

namespace podlane {

bool is_renamed(const net::Link &host_veth, const endpoint &record) {
    return host_veth.name != field_text(record.host_ifname);
}

Result<std::optional<net::Link>> find_host_veth(net::Netlink &host, const endpoint &record) {
    auto link = TRY(net::find_link(host, record.ifindex));
    if (link && is_renamed(*link, record) && (link->kind != "veth" || link->peer_ifindex != record.pod_ifindex))
        link.reset();
    return link;
}

Result<std::optional<std::string>> foreign_master(net::Netlink &host, const net::Link &host_veth) {
    if (!host_veth.master)
        return std::optional<std::string>{};
    const auto master = TRY(net::find_link(host, *host_veth.master));
    return master && master->kind != "vrf" ? std::optional(master->name) : std::nullopt;
}

} // namespace podlane
