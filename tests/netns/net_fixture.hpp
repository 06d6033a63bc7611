// SPDX-License-Identifier: MIT
// A node and a pod, each a network namespace without a name that goes with the test.
#pragma once

#include "loader/net/address.hpp"
#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "loader/net/neighbour.hpp"
#include "loader/net/netlink.hpp"
#include "loader/net/route.hpp"
#include "loader/net/sysctl.hpp"
#include "tests/harness/error.hpp"
#include "tests/harness/process.hpp"

namespace podlane::net::test {

using podlane::test::ip;
using podlane::test::is_error;
using podlane::test::prefix;
using podlane::test::require;

// A fresh namespace; the calling thread stays where it is.
inline Namespace new_namespace() {
    const Entered way_back = require(enter(require(Namespace::current())));
    if (unshare(CLONE_NEWNET) != 0)
        throw std::runtime_error(std::string("unshare: ") + std::strerror(errno));
    return require(Namespace::current());
}

constexpr Mac kPodMac{0x02, 0, 0, 0, 0, 0x01};
constexpr Mac kHostMac{0x02, 0, 0, 0, 0, 0x02};
constexpr std::uint32_t kMtu = 1400;

// The test's thread is on the node from the beginning to the end.
class NetTest : public testing::Test {
  protected:
    VethSpec spec() const { return {"eth0", "cali0", kPodMac, kHostMac, kMtu, pod_ns_}; }
    Veth veth() { return require(create_veth(node_, spec())); }

    // A pair with both ends up, without fe80:: of their own.
    Veth veth_up() {
        const Veth made = veth();
        const LinkChange up{.up = true, .addr_gen_mode = AddrGenMode::none};
        require(set_link(node_, made.host.ifindex, up));
        require(set_link(pod_, made.pod_ifindex, up));
        return made;
    }

    // The pod's end of such a pair, with an address of each family.
    std::uint32_t addressed_eth0() {
        const std::uint32_t eth0 = veth_up().pod_ifindex;
        require(add_address(pod_, eth0, {require(parse_prefix("192.0.2.5/32")), 0}));
        require(add_address(pod_, eth0, {require(parse_prefix("2001:db8::5/128")), kNoDad}));
        return eth0;
    }

    Namespace node_ns_ = new_namespace();
    Namespace pod_ns_ = new_namespace();
    Entered on_node_ = require(enter(node_ns_));
    Netlink node_ = require(Netlink::open());
    Netlink pod_ = require(Netlink::open_in(pod_ns_));
};

} // namespace podlane::net::test
