// SPDX-License-Identifier: MIT
// The host-side veth of an endpoint as the kernel has it.
#pragma once

#include "loader/net/link.hpp"
#include "maps/abi/endpoint.h"

#include <optional>
#include <string>

namespace podlane {

// nullopt: it is gone, or its number is another link's. By its other end it is known whatever it is called by now.
Result<std::optional<net::Link>> find_host_veth(net::Netlink &host, const endpoint &record);
bool is_renamed(const net::Link &host_veth, const endpoint &record);

// A bridge, a bond, or what else passes its frames on past the pod's routes. A VRF is none.
Result<std::optional<std::string>> foreign_master(net::Netlink &host, const net::Link &host_veth);

} // namespace podlane
