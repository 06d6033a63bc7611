// SPDX-License-Identifier: MIT
// Captured frames, for tests that compare two ways through the kernel: kinds of packets, and the kernels' own.
#pragma once

#include "tests/harness/wire.hpp"

#include <net/ethernet.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <sched.h>

namespace podlane::test {

// Where the transport header of a captured frame starts; 0 if there is none.
inline std::size_t transport_at(const Bytes &frame) {
    const std::size_t at = ethertype(frame) == ETHERTYPE_IP && frame.size() > kEthernetBytes
                               ? kEthernetBytes + std::size_t{4} * (frame[kEthernetBytes] & 15U)
                               : kEthernetBytes + kIpv6Bytes;
    return frame.size() >= at + 8 ? at : 0;
}

inline std::uint8_t protocol_of(const Bytes &frame) {
    return frame.at(ethertype(frame) == ETHERTYPE_IP ? kEthernetBytes + 9 : kEthernetBytes + 6);
}

// Talk of the kernels among themselves, which no test sends.
inline bool is_noise(const Bytes &frame) {
    if (ethertype(frame) == ETHERTYPE_ARP)
        return true;
    if (ethertype(frame) != ETHERTYPE_IPV6 || frame.size() < kEthernetBytes + kIpv6Bytes + 1)
        return false;
    const std::uint8_t next = frame[kEthernetBytes + 6];
    const std::uint8_t type = frame[kEthernetBytes + kIpv6Bytes];
    const bool neighbours = next == IPPROTO_ICMPV6 && type >= ND_ROUTER_SOLICIT && type <= ND_REDIRECT;
    const bool listeners = next == IPPROTO_HOPOPTS && frame[kEthernetBytes + 24] == 0xff;
    return neighbours || listeners;
}

inline std::string kind_of(const Bytes &frame) {
    const std::size_t at = transport_at(frame);
    if (at == 0)
        return "a frame of type " + std::to_string(ethertype(frame));
    const std::uint8_t protocol = protocol_of(frame);
    std::string kind = "protocol " + std::to_string(protocol);
    if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
        kind += " type " + std::to_string(frame[at]) + " code " + std::to_string(frame[at + 1]);
    if (protocol == IPPROTO_TCP && frame.size() > at + 13)
        kind += " flags " + std::to_string(frame[at + 13]);
    return kind;
}

// The echo request or reply of this number that follows what a test has sent, through the same queues.
constexpr std::uint16_t kMarker = 0x5afe;
inline Packet marker(const Ends &ends, std::uint16_t number) {
    Packet packet = echo_request(ends, kMarker, number, 32);
    packet.options = {1, 1, 1, 1}; // for the slow path
    return packet;
}
inline bool is_marker(const Bytes &frame, std::uint8_t type, std::uint16_t number) {
    const std::size_t at = ethertype(frame) == ETHERTYPE_IP ? transport_at(frame) : 0;
    return at != 0 && protocol_of(frame) == IPPROTO_ICMP && frame[at] == type && frame[at + 4] == kMarker >> 8U &&
           frame[at + 5] == (kMarker & 0xffU) && frame[at + 6] == number >> 8U && frame[at + 7] == (number & 0xffU);
}

// One CPU, so that a marker cannot overtake its packet in another CPU's queue.
class OneCpu {
  public:
    OneCpu() {
        sched_getaffinity(0, sizeof(before_), &before_);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
        sched_setaffinity(0, sizeof(one), &one);
    }
    ~OneCpu() { sched_setaffinity(0, sizeof(before_), &before_); }
    OneCpu(const OneCpu &) = delete;
    OneCpu &operator=(const OneCpu &) = delete;

  private:
    cpu_set_t before_{};
};

} // namespace podlane::test
