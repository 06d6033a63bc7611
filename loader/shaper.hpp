// SPDX-License-Identifier: MIT
// Shaper: a qdisc `htb` at the container's own end of its link holds what is not TCP to the egress limit. Senders feel
// back-pressure, and the bucket has nothing to drop. A process that removes it has the bucket alone.
#pragma once

#include "loader/net/netlink.hpp"
#include "maps/abi/bandwidth.h"
#include "maps/abi/endpoint.h"
#include "maps/abi/interface.h"

#include <cstdint>

namespace podlane {

// Whether the egress of an endpoint can have one: Podlane made the interface, the configuration does not forbid qdiscs,
// and one rate holds for all that it sends at any time (no exempt prefixes, no group that lends).
constexpr bool may_shape(std::uint8_t mode, std::uint32_t flags) {
    constexpr std::uint32_t kOther = INTERFACE_LIMIT_NO_EDT | INTERFACE_LIMIT_EXEMPT | INTERFACE_LIMIT_GROUP;
    return mode != ENDPOINT_AFTER_MAIN && (flags & INTERFACE_LIMIT_EGRESS) != 0 && (flags & kOther) == 0;
}

// The rate of its class for all that is sent, a little less than the limit.
std::uint64_t shaper_bytes_per_s(std::uint64_t rate_bits_per_s);

// Replaces the kernel's default qdisc with Podlane's, or changes Podlane's to this limit. false, and nothing changed,
// if the kernel has no htb or cls_bpf, or a foreign qdisc is there.
Result<bool> put_shaper(net::Netlink &pod, std::uint32_t pod_ifindex, const bandwidth &limits);
// It holds nothing any more. Packets that wait in it are sent.
Result<void> open_shaper(net::Netlink &pod, std::uint32_t pod_ifindex);

} // namespace podlane
