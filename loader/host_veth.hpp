// SPDX-License-Identifier: MIT
// The host-side veth of an endpoint as the kernel has it.
#pragma once

#include "loader/net/link.hpp"
#include "maps/abi/endpoint.h"

#include <optional>
#include <string>
#include <string_view>

namespace podlane {

// Its alias if Podlane made it: this, container ID and interface name.
inline constexpr std::string_view kAliasPrefix = "podlane ";

// nullopt: it is gone, or its number is another link's. By its other end it is known whatever it is called by now.
Result<std::optional<net::Link>> find_host_veth(net::Netlink &host, const endpoint &record);
// The other end, in the namespace of the caller, of a link of the container; nullopt: it has none there. The numbers of
// both do not say it: a process in the container may choose those of its links.
Result<std::optional<net::Link>> find_other_end(net::Netlink &host, const net::Link &pod_end,
                                                const net::Namespace &container);
bool is_renamed(const net::Link &host_veth, const endpoint &record);

// A bridge, a bond, or what else passes its frames on past the pod's routes. A VRF is none.
Result<std::optional<std::string>> foreign_master(net::Netlink &host, const net::Link &host_veth);

// A sentence of `place`, the interface of this name.
std::string ipv6_is_off(const std::string &place, const std::string &ifname);

// Of one that Podlane made, for a container with IPv6. "net.ipv6.conf.NAME.disable_ipv6" removes all of that family.
Result<bool> is_ipv6_off(const endpoint &record);
// A sentence if IPv6 is off, or its link-local address is gone, from which it answers the container.
Result<std::optional<std::string>> find_ipv6_fault(net::Netlink &host, const endpoint &record);
// Both; does nothing if the container has no IPv6.
Result<void> restore_ipv6(net::Netlink &host, const endpoint &record);

} // namespace podlane
