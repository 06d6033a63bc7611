// SPDX-License-Identifier: MIT
// Generated frames as a pod's kernel sends them: checksums and segments are left to the network card.
#pragma once

#include "tests/netns/lab.hpp"

#include <net/ethernet.h>

#include <random>

namespace podlane::test {

constexpr std::uint8_t kTcp4Segments = 1; // VIRTIO_NET_HDR_GSO_TCPV4
constexpr std::uint8_t kTcp6Segments = 4;
constexpr std::uint8_t kUdpSegments = 5; // since Linux 6.2

struct Sent {
    Bytes frame;
    Offload left{};
};

// Leaves the checksum, or the segments, of some TCP and UDP to the network card.
inline Offload any_offload(const Bytes &frame, std::mt19937_64 &random) {
    const bool v4 = ethertype(frame) == ETHERTYPE_IP && frame.size() > 14 && frame[14] == 0x45;
    const bool v6 = ethertype(frame) == ETHERTYPE_IPV6;
    const std::size_t l4 = v4 ? 34 : 54;
    if (random() % 3 != 0 || !(v4 || v6) || frame.size() < l4 + 20)
        return {};
    const std::uint8_t protocol = frame[v4 ? 23 : 20];
    if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
        return {};
    Offload left;
    left.checksum = true;
    left.checksum_start = static_cast<std::uint16_t>(l4);
    left.checksum_offset = protocol == IPPROTO_TCP ? 16 : 6;
    if (frame.size() > l4 + 700) {
        left.segments = protocol == IPPROTO_UDP ? kUdpSegments : v4 ? kTcp4Segments : kTcp6Segments;
        // Around what a receiver with an MTU of 1400 takes.
        left.segment_bytes = static_cast<std::uint16_t>(frame.size() > l4 + 2000 ? 1320 + random() % 60 : 400);
    }
    return left;
}

// As on a port of a bridge: a frame that announces another MAC would change the promise (tuning_test has those).
inline void keep_mac(Lab &lab, const Pod &pod) {
    const Interfaces interfaces = require(open_interfaces(lab.node().bpffs(), Access::read_write));
    interface entry = require(interfaces.find(pod.ifindex)).value();
    entry.flags &= ~INTERFACE_ROUTED;
    require(interfaces.replace(pod.ifindex, entry));
}

} // namespace podlane::test
