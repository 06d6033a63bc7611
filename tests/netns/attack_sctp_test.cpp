// SPDX-License-Identifier: MIT
// On a network with its own uplink, a host on another one forges packets of SCTP in the name of a peer on the LAN,
// before there is any association: those that the pod and the peer begin afterwards stay on the LAN.
#include "maps/abi/config.h"
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPodPort = 5001;
constexpr std::uint8_t kInit = 1, kInitAck = 2;

// RFC 9260, appendix A.
std::uint32_t crc32c(const Bytes &of) {
    std::uint32_t crc = 0xffffffff;
    for (const std::uint8_t byte : of) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit)
            crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
    }
    return ~crc;
}

// One chunk with 16 bytes behind its header, as of an INIT, of which the last is `mark`.
Packet sctp(const Ends &ends, std::uint8_t chunk, std::uint8_t mark = 0) {
    Packet packet = udp(ends, 24);
    packet.protocol = IPPROTO_SCTP;
    Bytes &bytes = packet.payload;
    std::fill_n(bytes.begin() + 4, 8, std::uint8_t{0});
    bytes.at(7) = chunk == kInit ? 0 : 1; // the tag
    for (const auto &[at, value] : {std::pair<std::size_t, std::uint8_t>{12, chunk}, {13, 0}, {14, 0}, {15, 20}})
        bytes.at(at) = value;
    bytes.back() = mark;
    const std::uint32_t sum = crc32c(bytes);
    for (unsigned i = 0; i < 4; ++i)
        bytes.at(8 + i) = static_cast<std::uint8_t>(sum >> (8 * i));
    return packet;
}

class AttackSctp : public Lan {
  protected:
    void SetUp() override {
        Lan::SetUp();
        // As on nodes whose networks are routed asymmetrically: the source is not checked for the forger.
        for (const char *where : {"all", "up0"})
            node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
        forger_.emplace(lab_.provider(0).ns(), "eth0");
        peer_.emplace(host_->ns(), "eth0");
        other_uplink_ = Wire(node().ns(), "up0").mac();
        own_uplink_ = Wire(node().ns(), "lan0").mac();
    }
    void start(const char *first_packet) {
        pod_ = add_pod({{"firstPacket", first_packet}});
        at_pod_.emplace(pod_->ns(), "net1");
    }
    [[nodiscard]] Ends to_peer(std::uint16_t port) const { return {addr(*pod_), host_addr(), kPodPort, port}; }
    [[nodiscard]] Ends from_peer(std::uint16_t port) const { return {host_addr(), addr(*pod_), port, kPodPort}; }
    // From a port that nothing has been sent to. Twice: conntrack may know the first.
    std::uint16_t forge(std::uint8_t chunk) {
        const std::uint32_t veth = SourceLab::host_veth(*pod_, "net1");
        const std::uint64_t before = lab_.count(veth, REASON_RECEIVED_HOST);
        const Bytes forged = frame(other_uplink_, forger_->mac(), sctp(from_peer(++last_port_), chunk));
        for (int i = 0; i < 2; ++i)
            forger_->send(forged);
        EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_RECEIVED_HOST) >= before + 2; }))
            << "the forged packets do not arrive";
        return last_port_;
    }
    void expect_at(const Wire &wire, const Packet &packet, const char *what) {
        EXPECT_TRUE(wire.until([&](const Bytes &one) { return contains(one, packet.payload); }, patience())) << what;
    }
    void expect_by_lan(const Packet &sent, const char *what) {
        at_pod_->send(frame(PODLANE_HOST_MAC, at_pod_->mac(), sent));
        expect_at(*peer_, sent, what);
        for (const Bytes &one : forger_->arrived())
            EXPECT_FALSE(contains(one, sent.payload)) << what << " reaches the forger";
    }

    std::optional<Wire> forger_, peer_, at_pod_;
    Mac other_uplink_{}, own_uplink_{};
    std::shared_ptr<Container> pod_;
    std::uint16_t last_port_ = 20000;
};

TEST_P(AttackSctp, NothingForgedBeforeAnAssociationTakesItFromTheLan) {
    for (const char *first_packet : {"host", "direct"}) {
        start(first_packet);
        for (const std::uint8_t chunk : {0, 1, 3, 4, 6, 10}) { // DATA, INIT, SACK, HEARTBEAT, ABORT, COOKIE ECHO
            SCOPED_TRACE(std::string(first_packet) + ", chunk " + std::to_string(chunk));
            expect_by_lan(sctp(to_peer(forge(chunk)), kInit), "the pod's INIT");
            const std::uint16_t port = forge(chunk);
            const Packet begins = sctp(from_peer(port), kInit, 1); // not as one that was forged
            peer_->send(frame(own_uplink_, peer_->mac(), begins));
            expect_at(*at_pod_, begins, "the peer's INIT");
            expect_by_lan(sctp(to_peer(port), kInitAck), "the pod's INIT ACK");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Family, AttackSctp, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
