// SPDX-License-Identifier: MIT
// Frames byte by byte: compose them, send them past the sender's stack, and see what arrives.
#pragma once

#include "maps/fd.hpp"
#include "maps/ip.hpp"
#include "loader/net/namespace.hpp"

#include <netinet/in.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace podlane::test {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kIpv4Bytes = 20;
constexpr std::size_t kIpv6Bytes = 40;

// An IP packet to be; its family is that of its addresses. Optional members are computed if they are not given.
struct Packet {
    ip_addr source{};
    ip_addr destination{};
    std::uint8_t protocol = IPPROTO_UDP; // of the payload
    Bytes payload{};                     // transport header and data
    std::uint8_t hop_limit = 64;
    std::uint8_t traffic_class = 0;
    std::uint16_t id = 0x4242;                      // IPv4
    std::uint16_t fragment = 0;                     // IPv4: flags and offset
    Bytes options{};                                // IPv4, a multiple of 4 bytes; IPv6: whole extension headers
    std::uint8_t extension = 0;                     // IPv6: type of the first of `options`
    std::optional<std::uint16_t> length{};          // IPv4: total length; IPv6: payload length
    std::optional<std::uint16_t> header_checksum{}; // IPv4
    std::optional<std::uint8_t> version_byte{};     // version and, of IPv4, header length
};

Bytes to_bytes(const Packet &packet);

// Transport packets with right checksums; `data` counts bytes of a fixed pattern.
struct Ends {
    ip_addr source{};
    ip_addr destination{};
    std::uint16_t source_port = 40000;
    std::uint16_t destination_port = 7;
};
enum TcpFlags : std::uint8_t { tcp_fin = 1, tcp_syn = 2, tcp_rst = 4, tcp_psh = 8, tcp_ack = 16 };
Packet udp(const Ends &ends, std::size_t data = 32);
Packet tcp(const Ends &ends, std::uint8_t flags, std::size_t data = 0);
Packet echo_request(const Ends &ends, std::uint16_t identifier, std::uint16_t sequence, std::size_t data = 32);
Packet icmp(const Ends &ends, std::uint8_t type, std::uint8_t code, const Bytes &body);
Packet other(const Ends &ends, std::uint8_t protocol, std::size_t data = 32);
// Sets the checksum at `offset` of the payload (pseudo header included, but for ICMP over IPv4).
void set_checksum(Packet &packet, std::size_t offset);
Bytes pattern(std::size_t bytes);

Bytes frame(const Mac &destination, const Mac &source, std::uint16_t ethertype, const Bytes &payload);
Bytes frame(const Mac &destination, const Mac &source, const Packet &packet);

struct Arp {
    std::uint16_t operation = 1;
    Mac sender_mac{};
    ip_addr sender{};
    Mac target_mac{};
    ip_addr target{};
};
Bytes to_bytes(const Arp &arp);
// Neighbour and router messages (types 133 to 137) with a link-layer address option of `option_type` (0: none).
Packet neighbour(const Ends &ends, std::uint8_t type, std::uint32_t flags, const std::optional<ip_addr> &target,
                 std::uint8_t option_type, const Mac &option_mac);

// The offloads of a frame, as the kernel leaves them to a network card (struct virtio_net_hdr).
struct Offload {
    bool checksum = false;             // the transport checksum; its field holds the sum of the pseudo header
    std::uint16_t checksum_start = 0;  // bytes from the frame's start
    std::uint16_t checksum_offset = 0; // bytes from there
    std::uint8_t segments = 0;         // VIRTIO_NET_HDR_GSO_*
    std::uint16_t segment_bytes = 0;   // data of each segment but the last
    bool operator==(const Offload &) const = default;
};
std::string to_string(const Offload &offload); // empty if there is nothing to be done
// Leaves the checksum of a UDP or TCP packet to be done.
Offload leave_checksum(Packet &packet);
// And its segments, with so many bytes of data each.
Offload leave_segments(Packet &packet, std::size_t bytes);

struct Caught {
    Bytes frame;
    Offload left;
};

// A raw socket on one interface. Sends whole frames; keeps what arrives there, but not what is sent from there.
class Wire {
  public:
    Wire(const net::Namespace &where, const std::string &ifname);

    [[nodiscard]] const Mac &mac() const { return mac_; }
    void send(const Bytes &frame) const;
    // False if the kernel does not know the kind of segments (UDP's before Linux 6.2).
    [[nodiscard]] bool send(const Bytes &frame, const Offload &left) const;
    // The frames that arrive before one that `last` recognises; without it at the deadline: nothing.
    [[nodiscard]] std::optional<std::vector<Bytes>> until(const std::function<bool(const Bytes &)> &last,
                                                          std::chrono::milliseconds patience) const;
    [[nodiscard]] std::optional<std::vector<Caught>> caught_until(const std::function<bool(const Bytes &)> &last,
                                                                  std::chrono::milliseconds patience) const;
    // The frames that are there already.
    [[nodiscard]] std::vector<Bytes> arrived() const;
    void forget() const { (void)arrived(); }

  private:
    [[nodiscard]] std::optional<Caught> next(std::chrono::milliseconds patience) const;
    Fd socket_;
    Mac mac_{};
};

// Reading a captured frame; a VLAN tag is in it as on the wire.
std::uint16_t ethertype(const Bytes &frame);
Bytes layer3(const Bytes &frame);
bool is_from(const Bytes &frame, const ip_addr &source);          // an IP packet with this source
std::size_t frames_from(const Wire &wire, const ip_addr &source); // that have arrived
bool contains(const Bytes &haystack, const Bytes &needle);
std::string hex(const Bytes &bytes);

} // namespace podlane::test
