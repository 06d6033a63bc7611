// SPDX-License-Identifier: MIT
// Generated frames as a pod's kernel sends them: checksums and segments are left to the network card.
#pragma once

#include "maps/clock.hpp"
#include "tests/netns/lab.hpp"
#include "tests/packet/model.hpp"

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

// Leaves the checksum, or the segments, of some TCP and UDP to the network card. Behind one tag: the sender's kernel
// itself cuts what has two.
inline Offload any_offload(const Bytes &frame, std::mt19937_64 &random) {
    const std::size_t l3 = packet::is_tag(ethertype(frame)) && frame.size() > 18 ? 18 : 14;
    const int type = frame.size() > l3 ? frame[l3 - 2] << 8 | frame[l3 - 1] : 0;
    const bool v4 = type == ETHERTYPE_IP && frame[l3] == 0x45;
    const bool v6 = type == ETHERTYPE_IPV6;
    const std::size_t l4 = l3 + (v4 ? 20 : 40);
    if (random() % 3 != 0 || !(v4 || v6) || frame.size() < l4 + 20)
        return {};
    const std::uint8_t protocol = frame[l3 + (v4 ? 9 : 6)];
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

// As a raw socket may ask for it: the checksum of any bytes of any frame, to be written anywhere behind their start.
inline Offload any_left(const Bytes &frame, std::mt19937_64 &random) {
    constexpr std::size_t kIcmp6 = kEthernetBytes + kIpv6Bytes;
    const bool discovers = ethertype(frame) == ETHERTYPE_IPV6 && frame.size() > kIcmp6 + 24 && frame[20] == 58;
    if (random() % (discovers ? 2 : 8) != 0 || frame.size() < 24)
        return any_offload(frame, random);
    Offload left;
    left.checksum = true;
    const bool is_right = discovers && random() % 2 == 0;
    const std::size_t start = is_right ? kIcmp6 : 14 + random() % (frame.size() - 15);
    left.checksum_start = static_cast<std::uint16_t>(start);
    left.checksum_offset = static_cast<std::uint16_t>(is_right ? 2 : random() % (frame.size() - start - 1));
    return left;
}

inline packet::Model model_of(const packet::ModelSender &sender, const Bytes &frame, const Offload &left) {
    packet::Model model(sender, frame, left.segment_bytes);
    if (left.checksum)
        model.leave_checksum(left.checksum_start, left.checksum_offset);
    return model;
}

// As if conntrack had just confirmed the flow of what comes by this interface.
inline void confirm_flow(const Flows &flows, const packet::ModelFlow &of, std::uint32_t ifindex) {
    for (const std::uint8_t protocol : {IPPROTO_TCP, IPPROTO_UDP}) {
        const flow_key key = of.key(protocol);
        require(flows.update(key, of.confirmed(key, ifindex, monotonic_ns())));
    }
}

// False if the kernel does not take the frame, or would drop it before any program.
inline bool send_raw(const Wire &wire, const Sent &one) {
    constexpr std::size_t kWithTag = 20; // it reads the type behind a tag
    if ((ethertype(one.frame) == ETHERTYPE_VLAN || ethertype(one.frame) == 0x88a8) && one.frame.size() < kWithTag)
        return false;
    try {
        return wire.send(one.frame, one.left);
    } catch (const std::runtime_error &) {
        return false;
    }
}

// As on a port of a bridge: a frame that announces another MAC would change the promise (tuning_test has those).
inline void keep_mac(Lab &lab, const Pod &pod) {
    const Interfaces interfaces = require(open_interfaces(lab.node().bpffs(), Access::read_write));
    interface entry = require(interfaces.find(pod.ifindex)).value();
    entry.flags &= ~INTERFACE_ROUTED;
    require(interfaces.replace(pod.ifindex, entry));
}

} // namespace podlane::test
