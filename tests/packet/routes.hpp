// SPDX-License-Identifier: MIT
// The routes of the packet tests' node.
#pragma once

#include <cstdlib>
#include <stdexcept>

namespace podlane::packet {

// As an ADD leaves the node: it forwards, and has a route to each pod that has a veth.
inline void route_to_pods() {
    constexpr const char *kRoutes = R"(echo 1 >/proc/sys/net/ipv4/ip_forward
            echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
            ip -batch - <<END
            link set caliA up
            link set caliAp up
            link set caliB up
            link set caliBp up
            route add 192.0.2.10 dev caliA
            route add 2001:db8::10 dev caliA
            route add 192.0.2.20 dev caliB
            route add 2001:db8::20 dev caliB
END)";
    if (std::system(kRoutes) != 0) // NOLINT(cert-env33-c)
        throw std::runtime_error("the pods' routes cannot be added");
}

} // namespace podlane::packet
