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

#include <gtest/gtest.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

namespace podlane::net::test {

// The value of a Result that must have one, or the end of this test.
template <typename T> T must(Result<T> result) {
    if (!result)
        throw std::runtime_error(result.error().message);
    return std::move(result).value();
}

inline void must(const Result<void> &result) {
    if (!result)
        throw std::runtime_error(result.error().message);
}

// A fresh namespace; the calling thread stays where it is.
inline Namespace new_namespace() {
    const Entered way_back = must(enter(must(Namespace::current())));
    if (unshare(CLONE_NEWNET) != 0)
        throw std::runtime_error(std::string("unshare: ") + std::strerror(errno));
    return must(Namespace::current());
}

inline ip_addr ip(const char *text) { return must(parse_ip(text)); }
inline Prefix prefix(const char *text) { return must(parse_prefix(text)); }

constexpr Mac kPodMac{0x02, 0, 0, 0, 0, 0x01};
constexpr Mac kHostMac{0x02, 0, 0, 0, 0, 0x02};
constexpr std::uint32_t kMtu = 1400;

// The test's thread is on the node from the beginning to the end.
class NetTest : public testing::Test {
  protected:
    VethSpec spec() const { return {"eth0", "cali0", kPodMac, kHostMac, kMtu, pod_ns_}; }
    Veth veth() { return must(create_veth(node_, spec())); }

    // A pair with both ends up, without fe80:: of their own.
    Veth veth_up() {
        const Veth made = veth();
        LinkChange up;
        up.up = true;
        up.addr_gen_mode = AddrGenMode::none;
        must(set_link(node_, made.host.ifindex, up));
        must(set_link(pod_, made.pod_ifindex, up));
        return made;
    }

    Namespace node_ns_ = new_namespace();
    Namespace pod_ns_ = new_namespace();
    Entered on_node_ = must(enter(node_ns_));
    Netlink node_ = must(Netlink::open());
    Netlink pod_ = must(Netlink::open_in(pod_ns_));
};

} // namespace podlane::net::test
