// SPDX-License-Identifier: MIT
// Associations of SCTP on a network with an egress route, before there are any: what the host stack delivers, for
// example because a host on another uplink has forged it, does not take those that the pod or a neighbour begins.
#include "tests/packet/sources.hpp"

namespace podlane::packet {
namespace {

constexpr std::uint8_t kInit = 1, kInitAck = 2;
constexpr std::array<std::uint8_t, 7> kChunkTypes{0, kInit, kInitAck, 3, 4, 6, 10}; // DATA to COOKIE ECHO
constexpr std::uint16_t kOwnPort = 5000;

Bytes with_chunk(const Frame &head, const Udp &ports, std::uint8_t chunk) {
    Bytes all = head / ports / bytes(24);
    all.at(all.size() - 20) = chunk; // behind the ports, the tag and the checksum
    return all;
}

class Sctp : public Source {
  protected:
    struct Flow {
        ip_addr own{}, peer{};
        std::uint16_t peer_port = 0;
    };
    [[nodiscard]] static Frame header(const Ethernet &mac, const ip_addr &from, const ip_addr &to) {
        return is_ipv4(to) ? mac / Ipv4{from, to} : mac / Ipv6{from, to};
    }
    [[nodiscard]] static Bytes to_pod(const Ethernet &mac, const Flow &of, std::uint8_t chunk) {
        return with_chunk(header(mac, of.peer, of.own), {of.peer_port, kOwnPort, IPPROTO_SCTP}, chunk);
    }
    void expect_sent(const Flow &of, std::uint8_t chunk, reason why) {
        const Bytes sent =
            with_chunk(header(of_second(), of.own, of.peer), {kOwnPort, of.peer_port, IPPROTO_SCTP}, chunk);
        expect({"sent", sent, why, from_second()});
    }
    // In the name of a peer that nothing has been sent to, or got from; the host stack has taken it from another link.
    Flow deliver(bool ipv4, std::uint8_t chunk) {
        const Flow of{ip(ipv4 ? "192.168.133.20" : "2001:db8:133::20"), ip(ipv4 ? "192.168.133.9" : "2001:db8:133::9"),
                      ++last_port_};
        for (int i = 0; i < 2; ++i)
            expect({"delivered", to_pod({kSecondMac, kHostMac}, of, chunk), REASON_RECEIVED_HOST,
                    How{.program = PODLANE_PROGRAM_TO_POD,
                        .ifindex = second_.ifindex,
                        .came_by = if_nametoindex("plan0")}});
        return of;
    }

    std::uint16_t last_port_ = 20000;
};

TEST_F(Sctp, NothingDeliveredTakesAnAssociationBeforeItBegins) {
    for (const bool ipv4 : {true, false})
        for (const std::uint8_t chunk : kChunkTypes) {
            SCOPED_TRACE(std::string(ipv4 ? "IPv4, chunk " : "IPv6, chunk ") + std::to_string(chunk));
            expect_sent(deliver(ipv4, chunk), kInit, REASON_SENT_WAY);
            const Flow of = deliver(ipv4, chunk);
            expect(
                {"a neighbour's INIT", to_pod({kUplinkMac, kNeighbourMac}, of, kInit), REASON_UPLINK_DELIVERED, in()});
            expect_sent(of, kInitAck, REASON_SENT_WAY);
        }
}

TEST_F(Sctp, AnInitIsRepliedToWhereItCameFrom) {
    for (const bool ipv4 : {true, false})
        expect_sent(deliver(ipv4, kInit), kInitAck, REASON_HOST_PATH);
}

} // namespace
} // namespace podlane::packet
