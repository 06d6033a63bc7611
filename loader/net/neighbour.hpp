// SPDX-License-Identifier: MIT
// Permanent neighbours (ARP and ND entries that never need an answer): insert and find; proxies.
#pragma once

#include "maps/ip.hpp"
#include "loader/net/netlink.hpp"

#include <cstdint>
#include <optional>

namespace podlane::net {

struct Neighbour {
    ip_addr addr{};
    Mac mac{}; // all zero: not resolved
    bool permanent = false;
};

// Replaces whatever the kernel knew for the address.
Result<void> put_neighbour(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr, const Mac &mac);
Result<std::optional<Neighbour>> find_neighbour(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr);

// Addresses the kernel is a proxy for on a link: it joins their multicast groups (of IPv6), and does no more unless
// proxy_ndp or proxy_arp is on. A foreign entry is left as it is, and not removed: Podlane's bear a protocol
// number.
Result<void> put_proxy(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr);
Result<bool> remove_proxy(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr);
Result<bool> has_proxy(Netlink &netlink, std::uint32_t ifindex, const ip_addr &addr);

} // namespace podlane::net
