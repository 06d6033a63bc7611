// SPDX-License-Identifier: MIT
// Frames of a pod with CAP_NET_RAW in the name of another pod, the gateway or the node: addresses, ARP, neighbour
// discovery, and what could hide them.
#pragma once

#include "tests/harness/frame.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/lab.hpp"

#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/icmp6.h>

namespace podlane::test::forged {

using frames::put16;
using frames::tagged;

inline constexpr std::uint16_t kPort = 53;
inline constexpr Mac kEveryone{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr Mac kForeignMac{0x02, 0x00, 0x5e, 0x00, 0x53, 0x01};
inline constexpr std::size_t kMarked = 24; // bytes of pattern() that every forged frame holds

struct Forged {
    std::string what;
    Bytes frame;
    Offload left{};
    // Of any pod; or it is harmless alone.
    bool is_always_dropped = false;
    bool is_dropped = true;
};

// Who sends, in whose name, and to whom.
struct Roles {
    Pod hostile{};
    Pod client{};
    Pod server{};
    ip_addr own{}, victim{}, target{}, gateway{}, node{};
    Mac via{}; // the next hop's, or the target's
};

// By a raw socket that a process of the pod opened itself.
inline void send_as(Privilege privilege, const net::Namespace &pod, const std::string &ifname,
                    const std::vector<Forged> &all) {
    struct {
        std::uint8_t flags;
        std::uint8_t segments;
        std::uint16_t header_bytes;
        std::uint16_t segment_bytes;
        std::uint16_t checksum_start;
        std::uint16_t checksum_offset;
    } header{}; // struct virtio_net_hdr
    as_hostile(pod, privilege, [&] {
        const Fd raw(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
        must_not_fail(raw ? 0 : -1, "a raw socket");
        const int on = 1;
        must_not_fail(setsockopt(raw.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on), "PACKET_VNET_HDR");
        sockaddr_ll to{};
        to.sll_family = AF_PACKET;
        to.sll_ifindex = static_cast<int>(if_nametoindex(ifname.c_str()));
        for (const Forged &one : all) {
            header = {one.left.checksum,      one.left.segments,       0,
                      one.left.segment_bytes, one.left.checksum_start, one.left.checksum_offset};
            Bytes bytes(sizeof header);
            std::memcpy(bytes.data(), &header, sizeof header);
            frames::append(bytes, one.frame);
            must_not_fail(sendto(raw.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&to),
                                 sizeof to) == static_cast<ssize_t>(bytes.size())
                              ? 0
                              : -1,
                          one.what.c_str());
        }
    });
}

inline std::vector<Packet> packets_from(const ip_addr &source, const ip_addr &to) {
    const Ends ends{source, to, 40000, kPort};
    return {udp(ends, 48),
            tcp(ends, tcp_syn, 32),
            tcp(ends, tcp_ack, 32),
            echo_request(ends, 7, 1),
            other(ends, IPPROTO_SCTP),
            icmp(ends, is_ipv4(to) ? 3 : 1, 1, pattern(48))};
}

// The IPv6 packet behind extension headers of 8 bytes.
inline Packet behind(Packet packet, const std::vector<std::uint8_t> &headers) {
    packet.extension = headers.front();
    for (std::size_t i = 0; i < headers.size(); ++i) {
        const std::uint8_t next = i + 1 < headers.size() ? headers[i + 1] : packet.protocol;
        // Padding; of a fragment header: the only fragment.
        const Bytes header =
            headers[i] == IPPROTO_FRAGMENT ? Bytes{next, 0, 0, 0, 0, 0, 0, 9} : Bytes{next, 0, 1, 4, 0, 0, 0, 0};
        frames::append(packet.options, header);
    }
    return packet;
}

// Two fragments, of which the first has so many bytes behind the IP header (IPv6: and the fragment header).
inline std::array<Packet, 2> split(Packet packet, std::uint16_t bytes) {
    Packet first = packet;
    Packet later = packet;
    first.payload.resize(bytes);
    later.payload.erase(later.payload.begin(), later.payload.begin() + bytes);
    if (is_ipv4(packet.destination)) {
        first.fragment = 0x2000;
        later.fragment = bytes / 8U;
        return {first, later};
    }
    first.extension = later.extension = IPPROTO_FRAGMENT;
    first.options = {packet.protocol, 0, 0, 1, 0, 0, 0, 7};
    later.options = {
        packet.protocol, 0, static_cast<std::uint8_t>(bytes >> 8U), static_cast<std::uint8_t>(bytes), 0, 0, 0, 7};
    return {first, later};
}

inline void forge_addresses(const Roles &of, std::vector<Forged> &all) {
    for (const auto &[name, source] : {std::pair{"the victim", of.victim},
                                       {"the gateway", of.gateway},
                                       {"the node", of.node},
                                       {"the target itself", of.target}}) {
        for (const Packet &packet : packets_from(source, of.target))
            all.push_back(
                {"protocol " + std::to_string(packet.protocol) + " as " + name, frame(of.via, of.hostile.mac, packet)});
        for (const Packet &part : split(udp({source, of.target, 40000, kPort}, 200), 104))
            all.push_back({std::string("a fragment as ") + name, frame(of.via, of.hostile.mac, part)});
    }
    const Packet packet = udp({of.victim, of.target, 40000, kPort}, 48);
    all.push_back({"to the target's MAC", frame(of.server.mac, of.hostile.mac, packet)});
    all.push_back({"to everybody", frame(kEveryone, of.hostile.mac, packet)});
    all.push_back({"from a foreign MAC", frame(of.via, kForeignMac, udp({of.own, of.target, 40000, kPort}, 48))});
    all.push_back({"from the victim's MAC", frame(of.via, of.client.mac, packet)});
    if (is_ipv4(of.own)) {
        Packet options = packet;
        options.options = {0x94, 4, 0, 0}; // router alert
        all.push_back({"with options", frame(of.via, of.hostile.mac, options)});
        return;
    }
    for (const std::vector<std::uint8_t> &headers :
         {std::vector<std::uint8_t>{IPPROTO_HOPOPTS},
          {IPPROTO_DSTOPTS},
          {IPPROTO_FRAGMENT},
          {IPPROTO_HOPOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS}})
        all.push_back({"behind extension headers", frame(of.via, of.hostile.mac, behind(packet, headers))});
    for (const std::ptrdiff_t at : {22, 38}) { // source, destination
        Bytes mapped = frame(of.via, of.hostile.mac, at == 22 ? packet : udp({of.own, of.target, 40000, kPort}, 48));
        Bytes addr(10);
        frames::append(addr, Bytes{0xff, 0xff});
        frames::append(addr, at == 22 ? of.client.v4 : of.server.v4);
        std::ranges::copy(addr, mapped.begin() + at);
        all.push_back({"an IPv4 address in IPv6", mapped, {}, true});
    }
}

inline void forge_offloads(const Roles &of, std::vector<Forged> &all) {
    for (Packet packet :
         {udp({of.victim, of.target, 40000, kPort}, 48), tcp({of.victim, of.target, 40000, kPort}, tcp_ack, 48)}) {
        Forged one{"checksum left to be done", {}, leave_checksum(packet)};
        one.frame = frame(of.via, of.hostile.mac, packet);
        all.push_back(one);
        one.what += " behind a tag";
        one.frame = tagged(one.frame, {{0x8100, 0}});
        one.left.checksum_start += 4;
        all.push_back(one);
    }
    Packet large = tcp({of.victim, of.target, 40000, kPort}, tcp_ack, 4000);
    Forged one{"segments left to be made", {}, leave_segments(large, 1000)};
    one.frame = frame(of.via, of.hostile.mac, large);
    all.push_back(one);
    Packet datagrams = udp({of.victim, of.target, 40000, kPort}, 4000);
    one = {"datagrams left to be made", {}, leave_checksum(datagrams)};
    one.left.segments = 3; // VIRTIO_NET_HDR_GSO_UDP: fragments
    one.left.segment_bytes = 1000;
    one.frame = frame(of.via, of.hostile.mac, datagrams);
    all.push_back(one);
}

// Wrappings that may hide a packet from the programs, and not from a receiver.
inline void forge_wrappings(const Roles &of, std::vector<Forged> &all) {
    const Packet packet = udp({of.victim, of.target, 40000, kPort}, 48);
    const Bytes plain = frame(of.via, of.hostile.mac, packet);
    for (const std::vector<frames::Tag> &tags : {std::vector<frames::Tag>{{0x8100, 0}},
                                                 {{0x88a8, 0}},
                                                 {{0x8100, 7}},
                                                 {{0x8100, 0}, {0x8100, 0}},
                                                 {{0x88a8, 0}, {0x8100, 0}},
                                                 {{0x88a8, 7}, {0x8100, 7}},
                                                 {{0x8100, 0}, {0x88a8, 0}, {0x8100, 0}},
                                                 {{0x9100, 0}}})
        all.push_back({std::to_string(tags.size()) + " tags", tagged(plain, tags)});
    const auto wrap = [&](const char *what, const Mac &to, std::uint16_t type, Bytes head) {
        frames::append(head, to_bytes(packet));
        all.push_back({what, frame(to, of.hostile.mac, type, head)});
    };
    const std::uint16_t ip_type = is_ipv4(of.own) ? 0x0800 : 0x86dd;
    for (const std::uint16_t type : {0x8847, 0x8848})
        wrap("MPLS", of.via, type, {0, 1, 0x01, 64});
    Bytes session{0x11, 0, 0, 1};
    put16(session, to_bytes(packet).size() + 2);
    put16(session, is_ipv4(of.own) ? 0x0021 : 0x0057);
    wrap("PPPoE", of.via, 0x8864, session);
    wrap("PPPoE discovery", kEveryone, 0x8863, {0x11, 9, 0, 0, 0, 0});
    wrap("LLDP", of.server.mac, 0x88cc, {2, 7, 4, 2, 0, 0, 0, 0, 1});
    Bytes snap{0xaa, 0xaa, 3, 0, 0, 0};
    put16(snap, ip_type);
    wrap("SNAP", of.via, static_cast<std::uint16_t>(to_bytes(packet).size() + 8), snap);
    wrap("STP", {0x01, 0x80, 0xc2, 0, 0, 0}, static_cast<std::uint16_t>(to_bytes(packet).size() + 3), {0x42, 0x42, 3});
    wrap("EAPOL", of.server.mac, 0x888e, {2, 0, 0, 0});
}

inline void forge_arp(const Roles &of, std::vector<Forged> &all) {
    const auto claim = [&](const std::string &what, const Arp &arp, const Mac &to = kEveryone) {
        Bytes bytes = to_bytes(arp);
        frames::append(bytes, pattern(kMarked)); // as padding
        for (const auto &tags : {std::vector<frames::Tag>{}, {{0x8100, 0}}, {{0x88a8, 0}, {0x8100, 0}}})
            all.push_back({what, tagged(frame(to, of.hostile.mac, 0x0806, bytes), tags)});
    };
    const Mac &own = of.hostile.mac;
    for (const auto &[name, addr] :
         {std::pair{"the victim", of.victim}, {"the gateway", of.gateway}, {"the node", of.node}}) {
        claim(std::string("request as ") + name, {1, own, addr, {}, of.target});
        claim(std::string("request to the node as ") + name, {1, own, addr, {}, of.node});
        claim(std::string("reply as ") + name, {2, own, addr, of.server.mac, of.target}, of.server.mac);
        claim(std::string("announcement as ") + name, {1, own, addr, {}, addr});
        claim(std::string("gratuitous reply as ") + name, {2, own, addr, kEveryone, addr});
        claim(std::string("reply with a foreign MAC as ") + name, {2, kForeignMac, addr, of.server.mac, of.target});
    }
    claim("probe of the victim's address", {1, own, ip("0.0.0.0"), {}, of.victim});
    claim("its own address at a foreign MAC", {1, kForeignMac, of.own, {}, of.target});
}

// With an option that marks it, and its checksum.
inline Packet marked(Packet message) {
    message.payload.insert(message.payload.end(), {14, 5});
    frames::append(message.payload, pattern(38));
    set_checksum(message, 2);
    return message;
}

// Two fragments, of which the first ends before the last extension header, and so before the message.
inline std::array<Packet, 2> hide(Packet message) {
    message.extension = IPPROTO_FRAGMENT;
    Packet first = message;
    first.options = {IPPROTO_DSTOPTS, 0, 0, 1, 0, 0, 0, 7, IPPROTO_DSTOPTS, 4, 1, 36};
    first.payload = pattern(36);
    message.options = {IPPROTO_DSTOPTS, 0, 0, 40, 0, 0, 0, 7, IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0};
    return {first, message};
}

// From its own addresses.
inline bool may_send(const Roles &of, const Packet &packet) {
    return packet.source == of.own || packet.source == of.hostile.link_local;
}

inline void forge_discovery(const Roles &of, std::vector<Forged> &all) {
    const Mac &own = of.hostile.mac;
    const ip_addr local = of.hostile.link_local;
    const ip_addr group = ip("ff02::1");
    const auto claim = [&](const std::string &what, const Packet &message, const Mac &to) {
        const Packet packet = marked(message);
        const Bytes plain = frame(to, own, packet);
        all.push_back({what, plain});
        all.push_back({what + " behind a tag", tagged(plain, {{0x8100, 0}})});
        for (const std::vector<std::uint8_t> &headers :
             {std::vector<std::uint8_t>{IPPROTO_HOPOPTS},
              {IPPROTO_DSTOPTS},
              {IPPROTO_FRAGMENT},
              {IPPROTO_DSTOPTS, IPPROTO_FRAGMENT, IPPROTO_DSTOPTS},
              {IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS, IPPROTO_DSTOPTS}})
            all.push_back({what + " behind extension headers", frame(to, own, behind(packet, headers))});
        // The last fragment alone says nothing. From its own addresses it does not hold the whole mark.
        const auto whole = static_cast<std::uint16_t>(packet.payload.size());
        for (const std::array<Packet, 2> &parts :
             {split(packet, whole - 8), hide(may_send(of, message) ? message : packet)}) {
            all.push_back({what + " in fragments", frame(to, own, parts[0])});
            all.push_back(
                {what + " in fragments, the last", frame(to, own, parts[1]), {}, false, !may_send(of, packet)});
        }
    };
    const Mac all_nodes{0x33, 0x33, 0, 0, 0, 1};
    for (const auto &[name, addr] :
         {std::pair{"the victim", of.victim}, {"the gateway", of.gateway}, {"the node", of.node}}) {
        const std::string as = std::string(" as ") + name;
        for (const ip_addr &source : {addr, local, of.own}) {
            claim("advertisement" + as, neighbour({source, of.target}, ND_NEIGHBOR_ADVERT, 0x60000000, addr, 2, own),
                  of.via);
            claim("advertisement to all" + as, neighbour({source, group}, ND_NEIGHBOR_ADVERT, 0x20000000, addr, 2, own),
                  all_nodes);
        }
        claim("solicitation" + as, neighbour({addr, of.target}, ND_NEIGHBOR_SOLICIT, 0, of.target, 1, own), of.via);
        claim("detection of duplicates" + as, neighbour({ip("::"), group}, ND_NEIGHBOR_SOLICIT, 0, addr, 0, own),
              all_nodes);
    }
    claim("solicitation from a foreign MAC",
          neighbour({local, of.target}, ND_NEIGHBOR_SOLICIT, 0, of.target, 1, kForeignMac), of.via);
    claim("its own address at a foreign MAC",
          neighbour({of.own, of.target}, ND_NEIGHBOR_ADVERT, 0x60000000, of.own, 2, kForeignMac), of.via);
    claim("router solicitation", neighbour({of.victim, group}, ND_ROUTER_SOLICIT, 0, {}, 1, own), all_nodes);
    for (const ip_addr &source : {local, of.gateway}) {
        claim("router advertisement", neighbour({source, group}, ND_ROUTER_ADVERT, 0x40000708, {}, 1, own), all_nodes);
        claim("redirect", neighbour({source, of.target}, ND_REDIRECT, 0, of.own, 2, own), of.via);
    }
}

inline std::vector<Forged> forge(const Roles &of) {
    std::vector<Forged> all;
    if (is_ipv4(of.own))
        forge_arp(of, all);
    else
        forge_discovery(of, all);
    forge_offloads(of, all);
    forge_wrappings(of, all);
    forge_addresses(of, all); // from the victim's MAC last: a bridge would learn it
    return all;
}

} // namespace podlane::test::forged
