// SPDX-License-Identifier: MIT
#include "loader/net/announce.hpp"

#include "maps/clock.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/icmp6.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace podlane::net {
namespace {

using Frame = std::vector<std::uint8_t>;

constexpr Mac kEverybody{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr std::size_t kEthernet = 14;
constexpr std::size_t kIpv6 = 40;
constexpr std::uint8_t kHopLimit = 255;
constexpr std::uint32_t kOverride = 0x20000000;

void put(Frame &frame, std::uint16_t value) {
    frame.push_back(static_cast<std::uint8_t>(value >> 8U));
    frame.push_back(static_cast<std::uint8_t>(value));
}
template <typename Range> void put(Frame &frame, const Range &bytes) {
    frame.insert(frame.end(), std::begin(bytes), std::end(bytes));
}
std::array<std::uint8_t, 16> bytes_of(const ip_addr &addr) {
    std::array<std::uint8_t, 16> bytes{};
    std::memcpy(bytes.data(), &addr, bytes.size());
    return bytes;
}
std::array<std::uint8_t, 4> ipv4_bytes(const ip_addr &addr) {
    std::array<std::uint8_t, 4> bytes{};
    std::memcpy(bytes.data(), &addr.word[3], bytes.size());
    return bytes;
}

// A request: with no sender it is a probe, with the target as sender an announcement.
Frame arp_request(const Mac &own, const ip_addr &target, bool claims) {
    constexpr std::uint16_t kEthernetHardware = 1;
    constexpr std::uint16_t kSizes = 0x0604;
    Frame frame;
    put(frame, kEverybody);
    put(frame, own);
    put(frame, std::uint16_t{ETH_P_ARP});
    put(frame, std::uint16_t{kEthernetHardware});
    put(frame, std::uint16_t{ETH_P_IP});
    put(frame, std::uint16_t{kSizes});
    put(frame, std::uint16_t{1});
    put(frame, own);
    put(frame, claims ? ipv4_bytes(target) : std::array<std::uint8_t, 4>{});
    put(frame, Mac{});
    put(frame, ipv4_bytes(target));
    return frame;
}

Frame icmp6_frame(const Mac &own, const ip_addr &source, const ip_addr &destination, Frame message) {
    constexpr std::size_t kChecksum = 2;
    const std::uint16_t sum = icmp6_checksum(source, destination, message);
    message[kChecksum] = static_cast<std::uint8_t>(sum >> 8U);
    message[kChecksum + 1] = static_cast<std::uint8_t>(sum);
    const auto to = bytes_of(destination);
    Frame frame{0x33, 0x33, to[12], to[13], to[14], to[15]}; // RFC 2464, 7
    put(frame, own);
    put(frame, std::uint16_t{ETH_P_IPV6});
    put(frame, std::array<std::uint8_t, 4>{0x60, 0, 0, 0});
    put(frame, static_cast<std::uint16_t>(message.size()));
    put(frame, std::array<std::uint8_t, 2>{IPPROTO_ICMPV6, kHopLimit});
    put(frame, bytes_of(source));
    put(frame, bytes_of(destination));
    put(frame, message);
    return frame;
}

Frame nd_message(std::uint8_t type, std::uint32_t flags, const ip_addr &target) {
    Frame message{type, 0, 0, 0};
    put(message, static_cast<std::uint16_t>(flags >> 16U));
    put(message, static_cast<std::uint16_t>(flags));
    put(message, bytes_of(target));
    return message;
}

Frame solicitation(const Mac &own, const ip_addr &target) {
    const std::uint32_t last = 0xff000000U | (ntohl(target.word[3]) & 0x00ffffffU);
    const ip_addr group{{htonl(0xff020000U), 0, htonl(1), htonl(last)}}; // RFC 4291, 2.7.1
    return icmp6_frame(own, ip_addr{}, group, nd_message(ND_NEIGHBOR_SOLICIT, 0, target));
}

Frame advertisement(const Mac &own, const ip_addr &target) {
    const ip_addr all_nodes{{htonl(0xff020000U), 0, 0, htonl(1)}};
    Frame message = nd_message(ND_NEIGHBOR_ADVERT, kOverride, target);
    put(message, std::array<std::uint8_t, 2>{ND_OPT_TARGET_LINKADDR, 1});
    put(message, own);
    return icmp6_frame(own, target, all_nodes, message);
}

sockaddr_ll on_link(std::uint32_t ifindex, std::uint16_t protocol) {
    sockaddr_ll addr{};
    addr.sll_family = AF_PACKET;
    addr.sll_protocol = htons(protocol);
    addr.sll_ifindex = static_cast<int>(ifindex);
    return addr;
}

// A socket of an uplink also receives the frames of its VLANs, without their tags, and those to macvlans on it: other
// links. If such a link has an interface, the frame bears the number of that one; if a VLAN has none, the frame is of
// the same kind as what is for other hosts. Of IPv6 nothing but advertisements is taken: an uplink is busy. Jumps count
// instructions from the next one on.
bool take_claims_only(const Fd &socket, std::uint32_t ifindex) {
    constexpr auto kFacts = static_cast<std::uint32_t>(SKF_AD_OFF);
    constexpr std::uint32_t kNextHeader = kEthernet + 6;
    constexpr std::uint32_t kType = kEthernet + kIpv6;
    std::array<sock_filter, 12> program{{{BPF_LD | BPF_W | BPF_ABS, 0, 0, kFacts + SKF_AD_IFINDEX},
                                         {BPF_JMP | BPF_JEQ | BPF_K, 0, 8, ifindex},
                                         {BPF_LD | BPF_W | BPF_ABS, 0, 0, kFacts + SKF_AD_PKTTYPE},
                                         {BPF_JMP | BPF_JEQ | BPF_K, 6, 0, PACKET_OTHERHOST},
                                         {BPF_LD | BPF_W | BPF_ABS, 0, 0, kFacts + SKF_AD_PROTOCOL},
                                         {BPF_JMP | BPF_JEQ | BPF_K, 5, 0, ETH_P_ARP},
                                         {BPF_LD | BPF_B | BPF_ABS, 0, 0, kNextHeader},
                                         {BPF_JMP | BPF_JEQ | BPF_K, 0, 2, IPPROTO_ICMPV6},
                                         {BPF_LD | BPF_B | BPF_ABS, 0, 0, kType},
                                         {BPF_JMP | BPF_JEQ | BPF_K, 1, 0, ND_NEIGHBOR_ADVERT},
                                         {BPF_RET | BPF_K, 0, 0, 0},
                                         {BPF_RET | BPF_K, 0, 0, 0xffff}}};
    const sock_fprog filter{program.size(), program.data()};
    return setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

// Protocol 0 sends, and receives nothing.
Result<Fd> open_socket(std::uint32_t ifindex, std::uint16_t protocol) {
    Fd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_ll addr = on_link(ifindex, protocol);
    if (!socket || (protocol != 0 && !take_claims_only(socket, ifindex)) ||
        bind(socket.get(), reinterpret_cast<const sockaddr *>(&addr), sizeof addr) != 0)
        return system_error(ErrorCode::io_failure, "opening a socket on interface " + std::to_string(ifindex), errno);
    return socket;
}

Result<void> send_frame(const Fd &socket, const Frame &frame) {
    if (::send(socket.get(), frame.data(), frame.size(), 0) < 0 && errno != ENETDOWN && errno != ENOBUFS)
        return system_error(ErrorCode::io_failure, "sending to the uplink's neighbours", errno);
    return {};
}

} // namespace

Result<Probe> Probe::send(std::uint32_t ifindex, const Mac &own, std::span<const ip_addr> addresses) {
    Probe probe(TRY(open_socket(ifindex, ETH_P_ARP)), TRY(open_socket(ifindex, ETH_P_IPV6)), own, addresses);
    for (const ip_addr &addr : addresses)
        TRY(send_frame(is_ipv4(addr) ? probe.arp_ : probe.nd_,
                       is_ipv4(addr) ? arp_request(own, addr, false) : solicitation(own, addr)));
    return probe;
}

Result<std::optional<Claim>> Probe::read(const Fd &socket) const {
    std::array<std::uint8_t, 2048> frame{}; // of a larger one, an advertisement is cut off, and so is none
    const ssize_t size = recv(socket.get(), frame.data(), frame.size(), 0);
    if (size < 0 && errno != EAGAIN && errno != EINTR && errno != ENETDOWN)
        return system_error(ErrorCode::io_failure, "receiving from the uplink's neighbours", errno);
    const std::size_t bytes = size < 0 ? 0 : static_cast<std::size_t>(size);
    return foreign_claim(std::span(frame).first(bytes), own_, addresses_);
}

Result<std::optional<Claim>> Probe::answer(std::chrono::steady_clock::time_point deadline) const {
    constexpr int kMostFrames = 4096; // of a link that never falls silent
    for (int frames = 0; frames < kMostFrames; ++frames) {
        std::array<pollfd, 2> both{{{arp_.get(), POLLIN, 0}, {nd_.get(), POLLIN, 0}}};
        const int ready = poll(both.data(), both.size(), milliseconds_until(deadline));
        if (ready < 0 && errno != EINTR)
            return system_error(ErrorCode::io_failure, "waiting for the uplink's neighbours", errno);
        if (ready == 0)
            return std::optional<Claim>{};
        for (const Fd *socket : {&arp_, &nd_})
            if (const auto claim = TRY(read(*socket)))
                return claim;
    }
    return std::optional<Claim>{};
}

Result<void> announce(std::uint32_t ifindex, const Mac &own, std::span<const ip_addr> addresses) {
    const Fd socket = TRY(open_socket(ifindex, 0));
    for (const ip_addr &addr : addresses)
        TRY(send_frame(socket, is_ipv4(addr) ? arp_request(own, addr, true) : advertisement(own, addr)));
    return {};
}

} // namespace podlane::net
