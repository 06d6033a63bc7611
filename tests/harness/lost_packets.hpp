// SPDX-License-Identifier: MIT
// Where packets and ICMP errors got lost: for the log of a test that fails.
#pragma once

#include "loader/net/namespace.hpp"

#include <string>

namespace podlane::test {

// Of a namespace, under its name in the test: the kernel's counters that are not zero, those of ICMPv6 errors and
// discarded packets by interface, path MTUs that are cached, neighbours, and what its TCP connections wait for.
std::string lost_packets(const std::string &name, const net::Namespace &where);

} // namespace podlane::test
