// SPDX-License-Identifier: MIT
// Links: find, create a veth pair across two namespaces, change and remove.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace podlane::net {

struct Link {
    std::uint32_t ifindex = 0;
    std::string name;
    std::string alias;
    std::string kind;  // "veth", "bridge", …; empty for hardware and lo
    std::string qdisc; // the root one
    Mac mac{};
    std::uint32_t mtu = 0;
    std::uint32_t flags = 0; // IFF_*
    std::uint16_t type = 0;  // ARPHRD_*
    std::uint8_t state = 0;  // IF_OPER_*
    bool up = false;         // administratively
    bool ipv6_off = false;   // net.ipv6.conf.NAME.disable_ipv6
    std::optional<std::uint32_t> master;
    std::optional<std::uint32_t> peer_ifindex; // veth: the other end, in its namespace
    std::optional<std::int32_t> peer_nsid;     // absent: the other end is in this namespace
};

Result<std::optional<Link>> find_link(Netlink &netlink, const std::string &name);
Result<std::optional<Link>> find_link(Netlink &netlink, std::uint32_t ifindex);
Result<std::vector<Link>> list_links(Netlink &netlink);
// Whether the other end of a veth of the calling thread's namespace, whose socket it is, is in `there`.
Result<bool> has_peer_in(Netlink &netlink, const Link &veth, const Namespace &there);
// In the calling thread's namespace; empty if there is no such link.
Result<std::string> link_name(std::uint32_t ifindex);

struct VethSpec {
    std::string pod_ifname;
    std::string host_ifname;
    Mac pod_mac{};
    Mac host_mac{};
    std::uint32_t mtu = 0; // 0: the kernel's default
    const Namespace &pod;
};

struct Veth {
    Link host; // as the kernel has it
    std::uint32_t pod_ifindex = 0;
};

// One message: the container's end is created in the container's namespace under its final name; both are down and have
// the kernel's default IPv6 address generation (see LinkChange). ErrorCode::already_exists names the end that exists.
// If it fails, there is no link.
Result<Veth> create_veth(Netlink &host, const VethSpec &spec);

enum class AddrGenMode : std::uint8_t { none = 1 };

struct LinkChange {
    std::optional<bool> up{};
    std::optional<std::uint32_t> mtu{};
    std::optional<Mac> mac{};
    std::optional<std::uint32_t> master{}; // 0: none
    std::optional<std::string> alias{};
    std::optional<AddrGenMode> addr_gen_mode{}; // takes effect before `up`; no error if the link has no IPv6
};

// One system call for all of it. ErrorCode::missing if there is no such link.
Result<void> set_link(Netlink &netlink, std::uint32_t ifindex, const LinkChange &change);
// A kernel that renames no link that is up (before 6.2) makes it lose its routes and permanent neighbours.
Result<void> rename_link(Netlink &netlink, const Link &link, const std::string &name);
Result<void> set_loopback_up(Netlink &netlink);

// false: was not there. Removes the other end of a veth as well.
Result<bool> remove_link(Netlink &netlink, std::uint32_t ifindex);

} // namespace podlane::net
