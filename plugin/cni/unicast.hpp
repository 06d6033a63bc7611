// SPDX-License-Identifier: MIT
// Ranges of addresses that no machine can have, whatever the network.
#pragma once

#include "maps/ip.hpp"

namespace podlane::cni {

// Neither unspecified nor loopback, multicast or broadcast. Link-local addresses are unicast, and 240.0.0.0/4 is:
// clouds give it to pods.
[[nodiscard]] bool is_unicast(const ip_addr &addr);

} // namespace podlane::cni
