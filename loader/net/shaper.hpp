// SPDX-License-Identifier: MIT
// The root qdisc `htb` of a container's own interface: senders wait there instead of losing packets at a limit.
#pragma once

#include "loader/net/netlink.hpp"

#include <cstdint>

namespace podlane::net {

// One class for the whole rate. TCP passes it without waiting, and is charged to it; what else is sent waits for what
// TCP leaves, and has half of the rate at least. Its flows have equal parts, by 16 classes of their hash. Small ICMP
// packets, and all that is not IP, pass by.
struct ShaperSpec {
    std::uint32_t ifindex = 0;
    std::uint32_t handle = 0;
    std::uint64_t bytes_per_s = 0;
    std::uint64_t burst_ns = 0; // time at the rate; so much may leave at once
};

// Creates it in place of the kernel's default, or changes the one with this handle. false: nothing changed, because the
// kernel has no htb or cls_bpf, another qdisc is there, or the link is gone.
Result<bool> set_shaper(Netlink &netlink, const ShaperSpec &shaper);
// Changes the one with this handle. false: it is not there.
Result<bool> change_shaper(Netlink &netlink, const ShaperSpec &shaper);

} // namespace podlane::net
