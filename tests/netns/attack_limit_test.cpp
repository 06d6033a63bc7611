// SPDX-License-Identifier: MIT
// Pods that send what might leave the programs before it is charged to a limit.
#include "maps/abi/config.h"
#include "tests/harness/wire.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/forged.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kHeldRate = 1000000, kHeldBurst = 400000; // bits per second, bits
const Json kLimit = {{"egressRate", kHeldRate}, {"egressBurst", kHeldBurst}};
constexpr int kPackets = 1000; // far beyond the burst

class AttackLimit : public testing::Test {
  protected:
    [[nodiscard]] std::uint64_t dropped(const std::string &ifname) const {
        return lab_.count(SourceLab::host_veth(*pod_, ifname), REASON_DROP_EGRESS_LIMIT);
    }

    // 60 kB of TCP that are cut into segments of one byte cost 2,200 frames.
    void send_tiny_segments(const ip_addr &to) {
        const Wire wire(pod_->ns(), "eth0");
        Packet packet = other({SourceLab::addr(*pod_, "eth0", true), to}, IPPROTO_TCP, 20 + 60000);
        packet.payload.at(12) = 0x50;
        packet.payload.at(13) = 0x10; // ACK
        const Bytes sent = frame(PODLANE_HOST_MAC, wire.mac(), packet);
        for (int i = 0; i < kTiny; ++i)
            ASSERT_TRUE(wire.send(sent, {.checksum = true,
                                         .checksum_start = kEthernetBytes + kIpv4Bytes,
                                         .checksum_offset = 16,
                                         .segments = 1, // VIRTIO_NET_HDR_GSO_TCPV4
                                         .segment_bytes = 1}));
    }
    static constexpr int kTiny = 20;

    // As large as the link takes them: of these some arrive.
    void send_full_frames(const ip_addr &to) {
        const Wire wire(pod_->ns(), "eth0");
        const ip_addr own = SourceLab::addr(*pod_, "eth0", true);
        const Bytes sent = frame(PODLANE_HOST_MAC, wire.mac(), udp({own, to}, 1400));
        for (int i = 0; i < kPackets; ++i)
            wire.send(sent);
    }

    // Frames of this sender have arrived, and no more than the limit lets through since then; at once twice the burst,
    // as in other floods. A larger one is not cut into its segments yet, which are more bytes on the wire.
    static void expect_held_since(Clock::time_point start, const Wire &at, const ip_addr &sender) {
        constexpr std::size_t kFullFrame = 1514;
        std::uint64_t bytes = 0;
        EXPECT_TRUE(wait_until([&] {
            for (const Bytes &one : at.arrived()) {
                if (!is_from(one, sender))
                    continue;
                EXPECT_LE(one.size(), kFullFrame);
                bytes += one.size();
            }
            return bytes != 0;
        })) << "within the limit they arrive";
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        EXPECT_LE(static_cast<double>(bytes) * 8,
                  static_cast<double>(kHeldRate) * seconds * 1.05 + static_cast<double>(2 * kHeldBurst))
            << "bits in " << seconds << " s";
    }

    // Large messages of discovery, by a process that has CAP_NET_RAW alone.
    void send_discovery(std::uint8_t type, std::uint8_t hop_limit, const ip_addr &to) {
        const Mac mac = Wire(pod_->ns(), "eth0").mac();
        const ip_addr own = SourceLab::addr(*pod_, "eth0", false);
        const bool is_about_target = type == ND_NEIGHBOR_ADVERT || type == ND_REDIRECT;
        Packet message = neighbour({own, to}, type, 0, type < ND_NEIGHBOR_SOLICIT ? std::nullopt : std::optional(own),
                                   is_about_target ? 2 : 1, mac);
        Bytes option(1408, 0);
        option[0] = 14;
        option[1] = 176; // in units of 8 bytes
        message.payload.insert(message.payload.end(), option.begin(), option.end());
        message.hop_limit = hop_limit;
        set_checksum(message, 2);
        (void)pod_->run("tc qdisc del dev eth0 root"); // as PACKET_QDISC_BYPASS does
        const forged::Forged one{"a message", frame(PODLANE_HOST_MAC, mac, message)};
        forged::send_as(Privilege::net_raw, pod_->ns(), "eth0", std::vector<forged::Forged>(kPackets, one));
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_ = lab_.node().container();
};

// As long as its sender leaves the checksum to be written, a frame cannot be cut: no answer can be made of it.
TEST_F(AttackLimit, ASolicitationThatCannotBeAnsweredIsCharged) {
    Json keys = kLimit;
    keys["antiSpoof"] = false; // else it is dropped
    lab_.add(pod_, "eth0", 0, keys);
    const Wire wire(pod_->ns(), "eth0");
    (void)pod_->run("tc qdisc del dev eth0 root"); // as PACKET_QDISC_BYPASS does for a pod's raw socket
    const Mac gateway_mac = PODLANE_HOST_MAC;
    const ip_addr gateway = link_local_from_mac(gateway_mac);
    Packet query = neighbour({SourceLab::addr(*pod_, "eth0", false), ip(SourceLab::client_addr(0, false))}, 135, 0,
                             gateway, 0, wire.mac());
    Bytes option(1408, 0);
    option[0] = 14;
    option[1] = 176; // in units of 8 bytes
    query.payload.insert(query.payload.end(), option.begin(), option.end());
    const Bytes sent = frame(gateway_mac, wire.mac(), query);

    for (int i = 0; i < kPackets; ++i)
        ASSERT_TRUE(wire.send(sent, {.checksum = true, .checksum_start = 600, .checksum_offset = 0}));

    EXPECT_TRUE(wait_until([&] { return dropped("eth0") >= kPackets / 2; })) << dropped("eth0");
}

// Those that a router alone sends are dropped before. With another hop limit than 255 they are ordinary packets.
TEST_F(AttackLimit, NeighbourDiscoveryByARawSocketIsCharged) {
    const auto victim = lab_.node().container();
    lab_.add(victim, "eth0", 0);
    const Wire at(victim->ns(), "eth0");
    const LimitStates states = require(open_limit_states(lab_.node().bpffs(), Access::read_only));
    for (const int hop_limit : {255, 64})
        for (int type = ND_ROUTER_SOLICIT; type <= ND_REDIRECT; ++type) {
            SCOPED_TRACE("type " + std::to_string(type) + ", hop limit " + std::to_string(hop_limit));
            pod_ = lab_.node().container();
            lab_.add(pod_, "eth0", 0, kLimit);
            const std::uint32_t ifindex = SourceLab::host_veth(*pod_, "eth0");
            const ip_addr own = SourceLab::addr(*pod_, "eth0", false);
            const auto charged = [&] {
                const limit_state state = require(states.find({ifindex, LIMIT_EGRESS})).value();
                return state.packets + state.dropped;
            };
            const std::uint64_t before = charged();
            send_discovery(static_cast<std::uint8_t>(type), static_cast<std::uint8_t>(hop_limit),
                           SourceLab::addr(*victim, "eth0", false));
            if (type == ND_ROUTER_ADVERT || type == ND_REDIRECT) {
                EXPECT_TRUE(wait_until([&] { return lab_.count(ifindex, REASON_DROP_ND_SPOOFED) >= kPackets; }));
                EXPECT_EQ(frames_from(at, own), 0U);
                continue;
            }
            EXPECT_TRUE(wait_until([&] { return charged() >= before + kPackets; })) << charged() - before;
            EXPECT_GE(dropped("eth0"), kPackets / 2);
            const auto is_it = [&](const Bytes &frame) { return is_from(frame, own); };
            EXPECT_TRUE(at.until(is_it, patience())) << "within the limit they arrive";
            EXPECT_LE(frames_from(at, own), kPackets / 2);
        }
}

TEST_F(AttackLimit, APacketTooLargeForThePeerInterfaceIsChargedToItsLimit) {
    Json limited = kLimit;
    limited["mtu"] = 1400;
    for (const bool ipv4 : {true, false}) {
        SCOPED_TRACE(ipv4 ? "IPv4" : "IPv6");
        lab_.add(pod_, "eth0", 0);
        lab_.add(pod_, "net1", 1, limited);
        const ip_addr source = SourceLab::addr(*pod_, "net1", ipv4);
        const ip_addr client = ip(SourceLab::client_addr(1, ipv4));
        const Wire at(lab_.client(1).ns(), "eth0");
        const auto start = Clock::now();
        as_hostile(pod_->ns(), Privilege::none, [&] { send_by("eth0", source, client, 1440, kPackets); });
        EXPECT_TRUE(wait_until([&] { return dropped("net1") >= kPackets / 2; })) << dropped("net1");
        expect_held_since(start, at, source);
        pod_ = lab_.node().container(); // without the backlog of this family
    }
}

// The kernel cuts what claims to be a later fragment as well: each segment has all headers, read or not.
TEST_F(AttackLimit, SegmentsOfAFragmentAreChargedWithTheirHeaders) {
    constexpr std::size_t kTcp = 60, kSegment = 8, kSegments = 100;
    constexpr std::size_t kHeaders = kEthernetBytes + kIpv4Bytes + kTcp;
    lab_.add(pod_, "eth0", 0, {{"egressRate", 1000000000}, {"egressBurst", 4000000}});
    const Wire wire(pod_->ns(), "eth0");
    Packet packet = other({SourceLab::addr(*pod_, "eth0", true), ip(SourceLab::client_addr(0, true))}, IPPROTO_TCP,
                          kTcp + kSegments * kSegment);
    packet.payload.at(12) = 0xf0; // as many words of options as there can be
    packet.fragment = 0x1000;
    const Bytes sent = frame(PODLANE_HOST_MAC, wire.mac(), packet);
    const LimitStates states = require(open_limit_states(lab_.node().bpffs(), Access::read_only));
    const std::uint32_t ifindex = SourceLab::host_veth(*pod_, "eth0");
    const auto charged = [&] { return require(states.find({ifindex, LIMIT_EGRESS})).value().bytes; };
    const std::uint64_t before = charged();

    ASSERT_TRUE(wire.send(sent, {.checksum = true,
                                 .checksum_start = kEthernetBytes + kIpv4Bytes,
                                 .checksum_offset = 16,
                                 .segments = 1, // VIRTIO_NET_HDR_GSO_TCPV4
                                 .segment_bytes = kSegment}));

    EXPECT_TRUE(wait_until([&] { return charged() >= before + sent.size() + (kSegments - 1) * kHeaders; }))
        << charged() - before << " of " << sent.size() + (kSegments - 1) * kHeaders;
}

// A packet that cost more than any backlog was taken for a clock that jumped, and ended the backlog.
TEST_F(AttackLimit, TinySegmentsDoNotEndTheLimitOfTheirSender) {
    const ip_addr client = ip(SourceLab::client_addr(0, true));
    lab_.add(pod_, "eth0", 0, kLimit);
    (void)pod_->run("tc qdisc del dev eth0 root"); // as PACKET_QDISC_BYPASS does
    const Wire at(lab_.client(0).ns(), "eth0");
    const auto start = Clock::now();
    send_tiny_segments(client);
    EXPECT_TRUE(wait_until([&] { return dropped("eth0") >= kTiny; })) << dropped("eth0");
    const std::uint64_t before = dropped("eth0");
    send_full_frames(client);
    EXPECT_TRUE(wait_until([&] { return dropped("eth0") >= before + kPackets / 2; })) << dropped("eth0") - before;
    expect_held_since(start, at, SourceLab::addr(*pod_, "eth0", true));
}

TEST_F(AttackLimit, TinySegmentsDoNotEndTheLimitOfTheirReceiver) {
    for (const char *limiter : {"auto", "bucket"}) {
        SCOPED_TRACE(limiter);
        const auto victim = lab_.node().container();
        lab_.add(pod_, "eth0", 0);
        lab_.add(victim, "eth0", 0, {{"ingressRate", kHeldRate}, {"ingressBurst", kHeldBurst}, {"limiter", limiter}});
        const ip_addr receiver = SourceLab::addr(*victim, "eth0", true);
        const LimitStates states = require(open_limit_states(lab_.node().bpffs(), Access::read_only));
        const std::uint32_t ifindex = SourceLab::host_veth(*victim, "eth0");
        const auto lost = [&] { return require(states.find({ifindex, LIMIT_INGRESS})).value().dropped; };
        const Wire at(victim->ns(), "eth0");
        const auto start = Clock::now();
        send_tiny_segments(receiver);
        EXPECT_TRUE(wait_until([&] { return lost() >= kTiny; })) << lost();
        const std::uint64_t before = lost();
        send_full_frames(receiver);
        EXPECT_TRUE(wait_until([&] { return lost() >= before + kPackets / 2; })) << lost() - before;
        expect_held_since(start, at, SourceLab::addr(*pod_, "eth0", true));
        pod_ = lab_.node().container();
    }
}

} // namespace
} // namespace podlane::test
