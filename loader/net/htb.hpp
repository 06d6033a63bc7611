// SPDX-License-Identifier: MIT
// Requests for qdiscs and classes of `htb`. Internal, as message.hpp.
#pragma once

#include "loader/net/message.hpp"

#include <cstdint>

namespace podlane::net {

struct HtbClass {
    std::uint32_t ifindex = 0, parent = 0, id = 0;
    std::uint64_t bytes_per_s = 0, most_bytes_per_s = 0; // of its own, and with what is borrowed
    std::uint64_t burst_ns = 0, most_burst_ns = 0;       // time at these rates
    std::uint32_t quantum = 0;                           // bytes until it is the next class's turn
};

tcmsg qdisc_header(std::uint32_t ifindex, std::uint32_t parent, std::uint32_t handle);
// A new root qdisc without classes: all packets leave at once.
Message htb_message(std::uint32_t ifindex, std::uint32_t handle);
// A new class, or a change of one.
Message htb_class_message(const HtbClass &of);

} // namespace podlane::net
