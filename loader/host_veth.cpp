// SPDX-License-Identifier: MIT
#include "loader/host_veth.hpp"

#include "loader/net/address.hpp"
#include "loader/net/sysctl.hpp"
#include "maps/tables.hpp"

#include <algorithm>

namespace podlane {
namespace {

bool has_ipv6(const endpoint &record) { return record.mode != ENDPOINT_AFTER_MAIN && !is_none(record.link_local); }

net::SysctlPath disable_ipv6(const endpoint &record) {
    return {"net", "ipv6", "conf", std::string(field_text(record.host_ifname)), "disable_ipv6"};
}

ip_addr own_link_local(const endpoint &record) { return link_local_from_mac(to_mac(record.host_mac)); }

} // namespace

bool is_renamed(const net::Link &host_veth, const endpoint &record) {
    return host_veth.name != field_text(record.host_ifname);
}

Result<std::optional<net::Link>> find_host_veth(net::Netlink &host, const endpoint &record) {
    auto link = TRY(net::find_link(host, record.ifindex));
    if (link && is_renamed(*link, record) && (link->kind != "veth" || link->peer_ifindex != record.pod_ifindex))
        link.reset();
    return link;
}

Result<std::optional<net::Link>> find_other_end(net::Netlink &host, const net::Link &pod_end,
                                                const net::Namespace &container) {
    auto link = pod_end.peer_ifindex ? TRY(net::find_link(host, *pod_end.peer_ifindex)) : std::nullopt;
    if (link && (link->peer_ifindex != pod_end.ifindex || !TRY(net::has_peer_in(host, *link, container))))
        link.reset();
    return link;
}

Result<std::optional<std::string>> foreign_master(net::Netlink &host, const net::Link &host_veth) {
    if (!host_veth.master)
        return std::optional<std::string>{};
    const auto master = TRY(net::find_link(host, *host_veth.master));
    return master && master->kind != "vrf" ? std::optional(master->name) : std::nullopt;
}

std::string ipv6_is_off(const std::string &place, const std::string &ifname) {
    return "IPv6 is off on " + place + " (net.ipv6.conf." + ifname + ".disable_ipv6 is 1)";
}

Result<bool> is_ipv6_off(const endpoint &record) {
    return has_ipv6(record) && TRY(net::read_sysctl(disable_ipv6(record))) == "1";
}

Result<std::optional<std::string>> find_ipv6_fault(net::Netlink &host, const endpoint &record) {
    if (!has_ipv6(record))
        return std::optional<std::string>{};
    const auto own = [&](const net::Address &one) { return one.prefix.addr == own_link_local(record); };
    if (std::ranges::any_of(TRY(net::list_addresses(host, record.ifindex)), own))
        return std::optional<std::string>{};
    const std::string name(field_text(record.host_ifname));
    if (TRY(is_ipv6_off(record)))
        return std::optional(ipv6_is_off("the host-side veth " + name, name));
    return std::optional("address " + to_string(own_link_local(record)) + " is gone from the host-side veth " + name);
}

Result<void> restore_ipv6(net::Netlink &host, const endpoint &record) {
    if (!has_ipv6(record))
        return {};
    TRY(net::write_sysctl_if_different(disable_ipv6(record), "0"));
    TRY(net::add_address(host, record.ifindex,
                         {{own_link_local(record), 128}, net::kNoDad | net::kNoPrefixRoute, net::kScopeLink}));
    return {};
}

} // namespace podlane
