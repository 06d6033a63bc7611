// SPDX-License-Identifier: MIT
#include "tests/harness/wire.hpp"

#include "tests/harness/frame.hpp"
#include "tests/harness/throw_errno.hpp"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#define class class_ // a member in the next one
#include <linux/virtio_net.h>
#undef class
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

namespace podlane::test {
namespace {

constexpr std::size_t kLargestFrame = 256 * 1024;
constexpr std::uint8_t kUdpSegments = 5; // VIRTIO_NET_HDR_GSO_UDP_L4, younger than Debian 12's headers

using frames::append;
using frames::put16;
using frames::put32;

// The padding of a length of so many bytes.
int error_of(const std::optional<std::uint16_t> &length, std::size_t bytes) {
    return length ? *length - static_cast<int>(bytes) : 0;
}

Bytes ipv4_bytes(const Packet &packet) {
    frames::Ipv4 header{.source = packet.source,
                        .destination = packet.destination,
                        .ttl = packet.hop_limit,
                        .protocol = packet.protocol,
                        .fragment = packet.fragment,
                        .options = packet.options,
                        .traffic_class = packet.traffic_class,
                        .id = packet.id,
                        .sum = packet.header_checksum};
    header.length_error = error_of(packet.length, kIpv4Bytes + packet.options.size() + packet.payload.size());
    if (packet.version_byte) {
        header.version = *packet.version_byte >> 4U;
        header.ihl = *packet.version_byte & 15U;
    }
    return header / packet.payload;
}

Bytes ipv6_bytes(const Packet &packet) {
    frames::Ipv6 header{.source = packet.source,
                        .destination = packet.destination,
                        .hop_limit = packet.hop_limit,
                        .next = packet.options.empty() ? packet.protocol : packet.extension,
                        .traffic_class = packet.traffic_class};
    header.length_error = error_of(packet.length, packet.options.size() + packet.payload.size());
    if (packet.version_byte) {
        header.version = *packet.version_byte >> 4U;
        header.traffic_class = static_cast<std::uint8_t>((*packet.version_byte << 4U) | (packet.traffic_class & 15U));
    }
    return header / packet.options / packet.payload;
}

Packet packet_of(const Ends &ends, std::uint8_t protocol, Bytes payload) {
    return {
        .source = ends.source, .destination = ends.destination, .protocol = protocol, .payload = std::move(payload)};
}

std::size_t checksum_offset(std::uint8_t protocol) { return protocol == IPPROTO_TCP ? 16 : 6; }

// Bytes of the frame's headers.
std::size_t header_bytes(const Bytes &frame, const Offload &left) {
    const std::size_t at = left.checksum_start;
    const bool is_tcp = left.segments != kUdpSegments;
    return at + (is_tcp ? std::size_t{4} * (frame.at(at + 12) >> 4U) : 8);
}

Offload offload_of(const virtio_net_hdr &header) {
    return {.checksum = (header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0,
            .checksum_start = header.csum_start,
            .checksum_offset = header.csum_offset,
            .segments = header.gso_type,
            .segment_bytes = header.gso_size};
}

} // namespace

Bytes to_bytes(const Packet &packet) { return is_ipv4(packet.destination) ? ipv4_bytes(packet) : ipv6_bytes(packet); }

void set_checksum(Packet &packet, std::size_t offset) {
    packet.payload.at(offset) = 0;
    packet.payload.at(offset + 1) = 0;
    Bytes summed;
    if (packet.protocol != IPPROTO_ICMP) {
        append(summed, packet.source);
        append(summed, packet.destination);
        put32(summed, static_cast<std::uint32_t>(packet.payload.size()));
        put32(summed, packet.protocol);
    }
    append(summed, packet.payload);
    const std::uint16_t sum = frames::checksum(summed);
    packet.payload[offset] = static_cast<std::uint8_t>(sum >> 8U);
    packet.payload[offset + 1] = static_cast<std::uint8_t>(sum);
}

Offload leave_checksum(Packet &packet) {
    const std::size_t offset = checksum_offset(packet.protocol);
    Packet pseudo_header = packet;
    std::ranges::fill(pseudo_header.payload, 0);
    set_checksum(pseudo_header, offset);
    for (const std::size_t at : {offset, offset + 1}) // not complemented
        packet.payload.at(at) = static_cast<std::uint8_t>(~pseudo_header.payload.at(at));
    return {.checksum = true,
            .checksum_start =
                static_cast<std::uint16_t>(kEthernetBytes + to_bytes(packet).size() - packet.payload.size()),
            .checksum_offset = static_cast<std::uint16_t>(offset)};
}

Offload leave_segments(Packet &packet, std::size_t bytes) {
    Offload left = leave_checksum(packet);
    left.segments = packet.protocol == IPPROTO_UDP ? kUdpSegments
                    : is_ipv4(packet.destination)  ? std::uint8_t{VIRTIO_NET_HDR_GSO_TCPV4}
                                                   : std::uint8_t{VIRTIO_NET_HDR_GSO_TCPV6};
    left.segment_bytes = static_cast<std::uint16_t>(bytes);
    return left;
}

std::string to_string(const Offload &offload) {
    std::string text;
    if (offload.checksum)
        text += " checksum from " + std::to_string(offload.checksum_start) + " to be put at +" +
                std::to_string(offload.checksum_offset);
    if (offload.segments != 0)
        text += " segments of kind " + std::to_string(offload.segments) + " with " +
                std::to_string(offload.segment_bytes) + " bytes each";
    return text;
}

Bytes pattern(std::size_t bytes) {
    Bytes data(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
        data[i] = static_cast<std::uint8_t>('a' + i % 23);
    return data;
}

Packet udp(const Ends &ends, std::size_t data) {
    Bytes bytes;
    put16(bytes, ends.source_port);
    put16(bytes, ends.destination_port);
    put16(bytes, static_cast<std::uint16_t>(8 + data));
    put16(bytes, 0);
    append(bytes, pattern(data));
    Packet packet = packet_of(ends, IPPROTO_UDP, std::move(bytes));
    set_checksum(packet, 6);
    return packet;
}

Packet tcp(const Ends &ends, std::uint8_t flags, std::size_t data) {
    Bytes bytes;
    put16(bytes, ends.source_port);
    put16(bytes, ends.destination_port);
    put32(bytes, 0x01020304);
    put32(bytes, (flags & tcp_ack) != 0 ? 0x05060708 : 0);
    bytes.push_back(0x50);
    bytes.push_back(flags);
    put16(bytes, 0x2000);
    put32(bytes, 0);
    append(bytes, pattern(data));
    Packet packet = packet_of(ends, IPPROTO_TCP, std::move(bytes));
    set_checksum(packet, 16);
    return packet;
}

Packet icmp(const Ends &ends, std::uint8_t type, std::uint8_t code, const Bytes &body) {
    Bytes bytes{type, code, 0, 0};
    append(bytes, body);
    Packet packet =
        packet_of(ends, is_ipv4(ends.destination) ? std::uint8_t{IPPROTO_ICMP} : std::uint8_t{IPPROTO_ICMPV6}, bytes);
    set_checksum(packet, 2);
    return packet;
}

Packet echo_request(const Ends &ends, std::uint16_t identifier, std::uint16_t sequence, std::size_t data) {
    Bytes body;
    put16(body, identifier);
    put16(body, sequence);
    append(body, pattern(data));
    return icmp(ends, is_ipv4(ends.destination) ? std::uint8_t{ICMP_ECHO} : std::uint8_t{ICMP6_ECHO_REQUEST}, 0, body);
}

Packet other(const Ends &ends, std::uint8_t protocol, std::size_t data) {
    return packet_of(ends, protocol, pattern(data));
}

Bytes frame(const Mac &destination, const Mac &source, std::uint16_t ethertype, const Bytes &payload) {
    return frames::Ethernet{destination, source, ethertype} / payload;
}

Bytes frame(const Mac &destination, const Mac &source, const Packet &packet) {
    return frame(destination, source, is_ipv4(packet.destination) ? ETHERTYPE_IP : ETHERTYPE_IPV6, to_bytes(packet));
}

Bytes to_bytes(const Arp &arp) {
    return frames::Frame(frames::Arp{arp.operation, arp.sender_mac, arp.sender, arp.target, arp.target_mac}.layer());
}

Packet neighbour(const Ends &ends, std::uint8_t type, std::uint32_t flags, const std::optional<ip_addr> &target,
                 std::uint8_t option_type, const Mac &option_mac) {
    Bytes body;
    put32(body, flags);
    if (type == ND_ROUTER_ADVERT) // reachable time, retransmission timer
        body.insert(body.end(), 8, 0);
    if (target)
        append(body, *target);
    if (type == ND_REDIRECT) // for this destination
        append(body, ends.source);
    if (option_type != 0)
        append(body, frames::nd_option(option_type, option_mac));
    Packet packet = icmp(ends, type, 0, body);
    packet.hop_limit = 255;
    return packet;
}

Wire::Wire(const net::Namespace &where, const std::string &ifname) {
    auto inside = net::enter(where);
    if (!inside)
        throw std::runtime_error(inside.error().message);
    socket_ = Fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)); // receives nothing before it is bound
    if (!socket_)
        throw_errno("socket(AF_PACKET)");
    constexpr int kOn = 1;
    constexpr int kBuffer = 8 << 20;
    if (setsockopt(socket_.get(), SOL_PACKET, PACKET_VNET_HDR, &kOn, sizeof(kOn)) != 0)
        throw_errno("PACKET_VNET_HDR");
    setsockopt(socket_.get(), SOL_PACKET, PACKET_AUXDATA, &kOn, sizeof(kOn));
    setsockopt(socket_.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &kOn, sizeof(kOn));
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kBuffer, sizeof(kBuffer));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(ifname.c_str()));
    if (address.sll_ifindex == 0 || bind(socket_.get(), reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0)
        throw_errno("bind to " + ifname);
    ifreq request{};
    ifname.copy(request.ifr_name, IFNAMSIZ - 1);
    if (ioctl(socket_.get(), SIOCGIFHWADDR, &request) != 0)
        throw_errno("SIOCGIFHWADDR " + ifname);
    std::memcpy(mac_.data(), request.ifr_hwaddr.sa_data, mac_.size());
}

void Wire::send(const Bytes &frame) const {
    if (!send(frame, {}))
        throw_errno("sending " + std::to_string(frame.size()) + " bytes");
}

bool Wire::send(const Bytes &frame, const Offload &left) const {
    virtio_net_hdr header{};
    header.flags = left.checksum ? VIRTIO_NET_HDR_F_NEEDS_CSUM : 0;
    header.csum_start = left.checksum_start;
    header.csum_offset = left.checksum_offset;
    header.gso_type = left.segments;
    header.gso_size = left.segment_bytes;
    if (left.segments != 0)
        header.hdr_len = static_cast<std::uint16_t>(header_bytes(frame, left));
    std::array<iovec, 2> parts{{{&header, sizeof(header)}, {const_cast<std::uint8_t *>(frame.data()), frame.size()}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t sent = sendmsg(socket_.get(), &message, 0);
    if (sent == static_cast<ssize_t>(sizeof(header) + frame.size()))
        return true;
    if (errno == EINVAL && left.segments == kUdpSegments)
        return false;
    throw_errno("sending " + std::to_string(frame.size()) + " bytes");
}

std::optional<Caught> Wire::next(std::chrono::milliseconds patience) const {
    pollfd one{socket_.get(), POLLIN, 0};
    if (poll(&one, 1, static_cast<int>(patience.count())) != 1)
        return {};
    virtio_net_hdr header{};
    static thread_local Bytes space(kLargestFrame); // fresh memory for each frame would take longer than the frame
    std::array<char, 256> control{};
    std::array<iovec, 2> parts{{{&header, sizeof(header)}, {space.data(), space.size()}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t bytes = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (bytes < static_cast<ssize_t>(sizeof(header)))
        return {};
    Bytes frame(space.begin(), space.begin() + bytes - static_cast<ssize_t>(sizeof(header)));
    for (cmsghdr *one = CMSG_FIRSTHDR(&message); one != nullptr; one = CMSG_NXTHDR(&message, one)) {
        tpacket_auxdata aux{};
        if (one->cmsg_level != SOL_PACKET || one->cmsg_type != PACKET_AUXDATA)
            continue;
        std::memcpy(&aux, CMSG_DATA(one), sizeof(aux));
        if ((aux.tp_status & TP_STATUS_VLAN_VALID) == 0)
            continue;
        const bool has_type = (aux.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
        frame = frames::tagged(frame, {{has_type ? aux.tp_vlan_tpid : std::uint16_t{ETH_P_8021Q}, aux.tp_vlan_tci}});
    }
    return Caught{std::move(frame), offload_of(header)};
}

std::optional<std::vector<Bytes>> Wire::until(const std::function<bool(const Bytes &)> &last,
                                              std::chrono::milliseconds patience) const {
    auto all = caught_until(last, patience);
    if (!all)
        return {};
    std::vector<Bytes> before;
    for (Caught &one : *all)
        before.push_back(std::move(one.frame));
    return before;
}

std::optional<std::vector<Caught>> Wire::caught_until(const std::function<bool(const Bytes &)> &last,
                                                      std::chrono::milliseconds patience) const {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + patience;
    std::vector<Caught> before;
    for (auto left = patience; left.count() > 0;
         left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now())) {
        auto one = next(left);
        if (one && last(one->frame))
            return before;
        if (one)
            before.push_back(std::move(*one));
    }
    return {};
}

std::vector<Bytes> Wire::arrived() const {
    std::vector<Bytes> all;
    while (auto one = next(std::chrono::milliseconds(0)))
        all.push_back(std::move(one->frame));
    return all;
}

std::uint16_t ethertype(const Bytes &frame) {
    return frame.size() < kEthernetBytes ? 0 : static_cast<std::uint16_t>(frame[12] << 8U | frame[13]);
}

Bytes layer3(const Bytes &frame) {
    return frame.size() < kEthernetBytes ? Bytes{} : Bytes(frame.begin() + kEthernetBytes, frame.end());
}

bool is_from(const Bytes &frame, const ip_addr &source) {
    const bool v4 = is_ipv4(source);
    const Bytes packet = layer3(frame);
    Bytes wanted;
    append(wanted, source);
    const std::size_t at = v4 ? 12 : 8;
    return ethertype(frame) == (v4 ? ETHERTYPE_IP : ETHERTYPE_IPV6) && packet.size() >= at + wanted.size() &&
           std::equal(wanted.begin(), wanted.end(), packet.begin() + static_cast<std::ptrdiff_t>(at));
}

std::size_t frames_from(const Wire &wire, const ip_addr &source) {
    const std::vector<Bytes> frames = wire.arrived();
    return static_cast<std::size_t>(
        std::ranges::count_if(frames, [&](const Bytes &frame) { return is_from(frame, source); }));
}

bool contains(const Bytes &haystack, const Bytes &needle) {
    return std::search(haystack.begin(), haystack.end(), needle.begin(), needle.end()) != haystack.end();
}

std::string hex(const Bytes &bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (const std::uint8_t byte : bytes) {
        text += kDigits[byte >> 4U];
        text += kDigits[byte & 15U];
    }
    return text;
}

} // namespace podlane::test
