// SPDX-License-Identifier: MIT
// The packets that are sent through Podlane and through `ptp` alike, and the few whose outcome differs on purpose.
#pragma once

#include "tests/harness/frame.hpp"
#include "tests/harness/wire.hpp"

#include <net/ethernet.h>
#include <netinet/icmp6.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace podlane::test {

// The addresses of a sender's side: the same on both sides, but for MACs and link-local addresses.
struct Side {
    Mac own{};
    Mac gateway{};
    ip_addr link_local{};
    ip_addr peer_link_local{};
};

struct Case {
    std::string name;
    std::function<Bytes(const Side &)> frame;
    std::string differs{}; // why Podlane drops it although `ptp` may not; empty: both alike
    Offload left{};        // to be done with the frame
};

// The addresses of one family.
struct Family {
    std::string name;
    ip_addr sender{};
    ip_addr receiver{};
    ip_addr loopback{};
    ip_addr multicast{};
    ip_addr foreign{}; // nobody's address
    [[nodiscard]] Ends ends() const { return {sender, receiver}; }
};

constexpr std::size_t kSmallMtu = 1400; // of the receiver; the sender has 1500
inline constexpr const char *kSpoofed = "anti-spoofing: a pod sends from its own addresses and MAC only";

class Cases {
  public:
    Cases(const Family &v4, const Family &v6) {
        for (const Family &family : {v4, v6}) {
            transports(family);
            hop_limits(family);
            sizes(family);
            checksums(family);
            lengths(family);
            destinations(family);
            sources(family);
            frames(family);
            checksums_left(family);
            segments_left(family);
        }
        ipv4_only(v4);
        ipv6_only(v6);
    }
    [[nodiscard]] const std::vector<Case> &all() const { return all_; }
    // Those that leave checksum or segments to whoever comes after.
    [[nodiscard]] const std::vector<Case> &offloaded() const { return offloaded_; }

  private:
    void add(const std::string &name, const Packet &packet, const std::string &differs = {}) {
        all_.push_back({name, [packet](const Side &side) { return frame(side.gateway, side.own, packet); }, differs});
    }

    void transports(const Family &of) {
        const std::string f = of.name + " ";
        add(f + "udp", udp(of.ends()));
        add(f + "udp again", udp(of.ends(), 64));
        add(f + "udp without data", udp(of.ends(), 0));
        add(f + "tcp syn", tcp(of.ends(), tcp_syn));
        add(f + "tcp data of a known flow", tcp(of.ends(), tcp_ack | tcp_psh, 100));
        Ends unknown = of.ends();
        unknown.source_port = 41000;
        add(f + "tcp data of an unknown flow", tcp(unknown, tcp_ack | tcp_psh, 100));
        add(f + "tcp syn ack of an unknown flow", tcp(unknown, tcp_syn | tcp_ack));
        add(f + "tcp reset", tcp(unknown, tcp_rst));
        add(f + "echo request", echo_request(of.ends(), 7, 1));
        add(f + "icmp of an unknown type", icmp(of.ends(), 200, 3, pattern(32)));
        Bytes quote(4, 0);
        const Bytes quoted = to_bytes(udp({of.receiver, of.sender, 7, 40000}));
        quote.insert(quote.end(), quoted.begin(), quoted.end());
        add(f + "icmp error", icmp(of.ends(), of.name == "v4" ? 3 : 1, 3, quote));
        add(f + "icmp error that quotes nothing", icmp(of.ends(), of.name == "v4" ? 3 : 1, 3, {0, 0, 0, 0}));
        for (const std::uint8_t protocol : {132, 47, 50, 253, 255}) // SCTP, GRE, ESP
            add(f + "protocol " + std::to_string(protocol), other(of.ends(), protocol));
        Packet cut = tcp(of.ends(), tcp_syn);
        cut.payload.resize(10);
        add(f + "tcp header cut short", cut);
        cut = udp(of.ends());
        cut.payload.resize(3);
        add(f + "udp header cut short", cut);
        add(f + "no transport header at all", other(of.ends(), IPPROTO_UDP, 0));
        Packet marked = udp(of.ends());
        marked.traffic_class = 0xbb; // DSCP EF, congestion experienced
        add(f + "traffic class", marked);
    }

    void hop_limits(const Family &of) {
        for (const unsigned hops : {0U, 1U, 2U, 64U, 255U})
            for (Packet packet : {udp(of.ends()), tcp(of.ends(), tcp_syn), echo_request(of.ends(), 8, 1)}) {
                packet.hop_limit = static_cast<std::uint8_t>(hops);
                add(of.name + " protocol " + std::to_string(packet.protocol) + " with hop limit " +
                        std::to_string(hops),
                    packet);
            }
    }

    void sizes(const Family &of) {
        const std::size_t headers = (of.name == "v4" ? kIpv4Bytes : kIpv6Bytes) + 8;
        for (const std::size_t size : {kSmallMtu - 1, kSmallMtu, kSmallMtu + 1, std::size_t{1500}})
            for (const std::uint16_t df : {0x0000, 0x4000}) {
                Packet packet = udp(of.ends(), size - headers);
                packet.fragment = df;
                add(of.name + " " + std::to_string(size) + " bytes, DF " + (df != 0 ? "set" : "not set"), packet);
            }
    }

    void checksums(const Family &of) {
        Packet packet = udp(of.ends());
        packet.payload[6] ^= 0xffU;
        add(of.name + " udp with a wrong checksum", packet);
        packet.payload[6] = packet.payload[7] = 0;
        add(of.name + " udp without a checksum", packet);
        packet = tcp(of.ends(), tcp_syn);
        packet.payload[16] ^= 0xffU;
        add(of.name + " tcp with a wrong checksum", packet);
    }

    void lengths(const Family &of) {
        const Packet right = udp(of.ends());
        const std::size_t header = of.name == "v4" ? kIpv4Bytes : 0;
        const auto length = static_cast<std::uint16_t>(right.payload.size() + header);
        for (const int off : {-200, -41, -9, -1, 1, 2000}) {
            Packet wrong = right;
            wrong.length = static_cast<std::uint16_t>(length + off);
            add(of.name + " length off by " + std::to_string(off), wrong);
        }
        Packet none = right;
        none.length = 0;
        add(of.name + " length 0", none);
        all_.push_back({of.name + " bytes behind the packet", [right](const Side &side) {
                            Bytes padded = frame(side.gateway, side.own, right);
                            padded.insert(padded.end(), 20, 0);
                            return padded;
                        }});
        for (const std::uint8_t version : {0x00, 0x15, 0x44, 0x4f, 0x54, 0x65, 0x75}) {
            Packet wrong = right;
            wrong.version_byte = version;
            add(of.name + " first byte " + std::to_string(version), wrong);
        }
    }

    void destinations(const Family &of) {
        for (const auto &[name, addr] :
             {std::pair{"itself", of.sender}, std::pair{"loopback", of.loopback}, std::pair{"multicast", of.multicast},
              std::pair{"a foreign address", of.foreign}})
            add(of.name + " to " + name, udp({of.sender, addr}));
    }

    void sources(const Family &of) {
        for (const auto &[name, addr] :
             {std::pair{"loopback", of.loopback}, std::pair{"multicast", of.multicast},
              std::pair{"the receiver", of.receiver}, std::pair{"a foreign address", of.foreign}})
            add(of.name + " from " + name, udp({addr, of.receiver}), kSpoofed);
    }

    // Around the packet: other MACs, VLAN tags.
    void frames(const Family &of) {
        const Packet packet = udp(of.ends());
        const auto around = [&](const std::string &name, const std::function<Bytes(const Side &)> &made,
                                const std::string &differs = {}) {
            all_.push_back({of.name + " " + name, made, differs});
        };
        around("to another host's MAC", [packet](const Side &side) {
            return frame({2, 0, 0, 9, 9, 9}, side.own, packet);
        });
        around("to the broadcast MAC", [packet](const Side &side) {
            return frame({0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, side.own, packet);
        });
        around("to a multicast MAC", [packet](const Side &side) {
            return frame({0x01, 0, 0x5e, 0, 0, 9}, side.own, packet);
        });
        around(
            "from another host's MAC",
            [packet](const Side &side) {
                return frame(side.gateway, {2, 0, 0, 9, 9, 9}, packet);
            },
            kSpoofed);
        for (const std::uint16_t type : {ETHERTYPE_VLAN, 0x88a8})
            around("behind VLAN tag " + std::to_string(type), [packet, type](const Side &side) {
                return frames::tagged(frame(side.gateway, side.own, packet), {{type, 5}});
            });
        around("in a frame of the other family", [packet, of](const Side &side) {
            return frame(side.gateway, side.own, of.name == "v4" ? ETHERTYPE_IPV6 : ETHERTYPE_IP, to_bytes(packet));
        });
    }

    void offload(const std::string &name, const Packet &packet, const Offload &left, const std::string &differs = {}) {
        offloaded_.push_back(
            {name, [packet](const Side &side) { return frame(side.gateway, side.own, packet); }, differs, left});
    }

    void checksums_left(const Family &of) {
        const auto leave = [&](const std::string &name, Packet packet, const std::string &differs = {}) {
            const Offload left = leave_checksum(packet);
            offload(of.name + " checksum left to do: " + name, packet, left, differs);
        };
        leave("udp", udp(of.ends()));
        leave("udp without data", udp(of.ends(), 0));
        leave("udp of an odd length", udp(of.ends(), 33));
        leave("tcp syn", tcp(of.ends(), tcp_syn));
        leave("tcp data", tcp(of.ends(), tcp_ack | tcp_psh, 100));
        leave("to itself", udp({of.sender, of.sender}));
        leave("from a foreign address", udp({of.foreign, of.receiver}), kSpoofed);
        for (const unsigned hops : {1U, 2U}) {
            Packet packet = udp(of.ends());
            packet.hop_limit = static_cast<std::uint8_t>(hops);
            leave("hop limit " + std::to_string(hops), packet);
        }
        for (const std::uint16_t df : {0x0000, 0x4000}) {
            Packet packet = udp(of.ends(), kSmallMtu);
            packet.fragment = df;
            leave(std::string("larger than the MTU, DF ") + (df != 0 ? "set" : "not set"), packet);
        }
    }

    // A flow the SYN above began, and datagrams; up to and beyond what the receiver's MTU has room for.
    void segments_left(const Family &of) {
        constexpr std::size_t kSegments = 20;
        const auto leave = [&](const std::string &name, Packet packet, std::size_t bytes,
                               const std::string &differs = {}) {
            const Offload left = leave_segments(packet, bytes);
            offload(of.name + " protocol " + std::to_string(packet.protocol) + " " + name + " of " +
                        std::to_string(bytes) + " bytes",
                    packet, left, differs);
        };
        const auto tcp_data = [&](std::size_t bytes) { return tcp(of.ends(), tcp_ack | tcp_psh, bytes); };
        const auto udp_data = [&](std::size_t bytes) { return udp(of.ends(), bytes); };
        const std::size_t ip = of.name == "v4" ? kIpv4Bytes : kIpv6Bytes;
        for (const auto &data : {std::function<Packet(std::size_t)>(tcp_data), {udp_data}}) {
            leave("segments, the last one short", data(9 * 1000 + 1), 1000);
            leave("many small segments", data(64 * 100), 100);
            Packet dying = data(5000);
            dying.hop_limit = 1;
            leave("segments with hop limit 1", dying, 1000);
        }
        // IPv4 ones that are too large arrive by the host stack, and their flow stays there.
        for (const std::size_t mtu : {std::size_t{1280}, kSmallMtu, kSmallMtu + 1, std::size_t{1500}})
            for (const std::uint16_t df : {0x0000, 0x4000})
                for (const std::uint8_t protocol : {IPPROTO_TCP, IPPROTO_UDP}) {
                    const std::size_t bytes = mtu - ip - (protocol == IPPROTO_TCP ? 20 : 8);
                    Packet packet = protocol == IPPROTO_TCP ? tcp_data(kSegments * bytes) : udp_data(kSegments * bytes);
                    packet.fragment = df;
                    leave(std::string("segments, DF ") + (df != 0 ? "set" : "not set"), packet, bytes);
                }
        leave("segments from a foreign address", tcp({of.foreign, of.receiver}, tcp_ack, 5000), 1000, kSpoofed);
        Ends unknown = of.ends();
        unknown.source_port = 42000;
        leave("segments of an unknown flow", tcp(unknown, tcp_ack, 5000), 1000);
    }

    void ipv4_only(const Family &of) {
        Packet packet = udp(of.ends());
        packet.header_checksum = 0xdead;
        add("v4 wrong header checksum", packet);
        packet.header_checksum = 0;
        add("v4 header checksum 0", packet);
        for (const auto &[name, options] : {std::pair<std::string, Bytes>{"no operation", {1, 1, 1, 1}},
                                            {"record route without room", {7, 7, 8, 0, 0, 0, 0, 0}},
                                            {"router alert", {148, 4, 0, 0}},
                                            {"strict source route", {137, 7, 4, 198, 51, 100, 1, 0}},
                                            {"broken", {7, 200, 4, 0}}}) {
            Packet with = udp(of.ends());
            with.options = options;
            add("v4 option " + name, with);
        }
        for (const std::uint16_t fragment : {0x2000, 0x2010, 0x0010, 0x8000, 0x3fff}) {
            Packet part = udp(of.ends(), 56);
            part.fragment = fragment;
            add("v4 fragment field " + std::to_string(fragment), part);
        }
        for (const char *destination : {"255.255.255.255", "0.0.0.0", "240.0.0.1", "169.254.7.7"})
            if (auto addr = parse_ip(destination))
                add(std::string("v4 to ") + destination, udp({of.sender, *addr}));
        all_.push_back(
            {"not IP at all", [](const Side &side) { return frame(side.gateway, side.own, 0x88b5, pattern(60)); }});
        all_.push_back(
            {"only a link header", [](const Side &side) { return frame(side.gateway, side.own, 0x0800, {}); }});
        all_.push_back({"a header of 19 bytes", [of](const Side &side) {
                            Bytes cut = to_bytes(udp(of.ends()));
                            cut.resize(19);
                            return frame(side.gateway, side.own, 0x0800, cut);
                        }});
    }

    void ipv6_only(const Family &of) {
        const std::uint8_t udp_header = IPPROTO_UDP;
        const auto with = [&](const std::string &name, std::uint8_t type, const Bytes &headers) {
            Packet packet = udp(of.ends(), 56);
            packet.extension = type;
            packet.options = headers;
            add("v6 " + name, packet);
        };
        with("hop-by-hop options", IPPROTO_HOPOPTS, {udp_header, 0, 1, 4, 0, 0, 0, 0});
        with("unknown hop-by-hop option", IPPROTO_HOPOPTS, {udp_header, 0, 0xbe, 4, 0, 0, 0, 0});
        with("destination options", IPPROTO_DSTOPTS, {udp_header, 0, 1, 4, 0, 0, 0, 0});
        with("routing header of type 0", IPPROTO_ROUTING, {udp_header, 0, 0, 0, 0, 0, 0, 0});
        with("atomic fragment", IPPROTO_FRAGMENT, {udp_header, 0, 0, 0, 0, 0, 0, 9});
        with("first fragment", IPPROTO_FRAGMENT, {udp_header, 0, 0, 1, 0, 0, 0, 9});
        with("later fragment", IPPROTO_FRAGMENT, {udp_header, 0, 0, 0x40, 0, 0, 0, 9});
        with("two extension headers", IPPROTO_HOPOPTS,
             {IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0, udp_header, 0, 1, 4, 0, 0, 0, 0});
        with("extension header beyond the end", IPPROTO_DSTOPTS, {udp_header, 200, 1, 4, 0, 0, 0, 0});
        with("hop-by-hop options behind others", IPPROTO_DSTOPTS,
             {IPPROTO_HOPOPTS, 0, 1, 4, 0, 0, 0, 0, udp_header, 0, 1, 4, 0, 0, 0, 0});
        all_.push_back({"v6 from its link-local address", [of](const Side &side) {
                            return frame(side.gateway, side.own, udp({side.link_local, of.receiver}));
                        }});
        all_.push_back({"v6 to the receiver's link-local address", [of](const Side &side) {
                            return frame(side.gateway, side.own, udp({of.sender, side.peer_link_local}));
                        }});
        add("v6 no next header", other(of.ends(), IPPROTO_NONE, 0));
        all_.push_back({"v6 header of 39 bytes", [of](const Side &side) {
                            Bytes cut = to_bytes(udp(of.ends()));
                            cut.resize(39);
                            return frame(side.gateway, side.own, 0x86dd, cut);
                        }});
    }

    std::vector<Case> all_;
    std::vector<Case> offloaded_;
};

} // namespace podlane::test
