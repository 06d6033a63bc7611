// SPDX-License-Identifier: MIT
// A host on the uplink forges packets that conntrack counts as no connection's, or as another zone's, as they would
// leave if they were of a victim's: that the host stack forwards them opens nothing to others in the name of the
// backend.
#include "tests/harness/wire.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/service_test.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 53;
constexpr std::uint16_t kBackendPort = 5300;
constexpr std::uint16_t kOwnPort = 20000;
constexpr int kRounds = 20;

// The Service is the node's, as the API server's is.
class AttackInvalid : public ServiceTest {
  protected:
    AttackInvalid() : ServiceTest(kPort, kBackendPort, {{"uplinks", {"up*"}}}) {}
    void serve_on_node() {
        service_ = {"a", ip(ipv4() ? "198.18.255.1" : "2001:db8:5e::1"), kPort, {node_addr()}, kBackendPort};
        // kube-proxy also drops what conntrack counts as no connection's; portmap and others do not.
        for (const char *protocol : {"udp", "tcp"})
            rule("-t nat -A PREROUTING -p " + std::string(protocol) + " -d " + to_string(service_.cluster_ip) +
                 " --dport " + std::to_string(kPort) + " -j DNAT --to-destination " +
                 (ipv4() ? to_string(node_addr()) : "[" + to_string(node_addr()) + "]") + ":" +
                 std::to_string(kBackendPort));
        rule("-I FORWARD -i up0 -s " + to_string(node_addr()) + " -j DROP"); // as the reverse path filter of IPv4
    }
    // As the victim talks.
    [[nodiscard]] bool is_assured(const Fd &socket) {
        return answered(socket) && std::ranges::any_of(tracked(lab_->node().ns()), [&](const Tracked &one) {
                   return one.source.port == kOwnPort && one.destination.addr == service_.cluster_ip && one.assured;
               });
    }
    [[nodiscard]] static Packet packet(Transport transport, const Ends &ends) {
        return transport == Transport::udp ? udp(ends, 24) : tcp(ends, tcp_ack, 24);
    }
    // Packets of the Service that are no connection's are `broken`.
    void attack(bool broken);
    [[nodiscard]] std::uint64_t delivered() { return lab_->node().counted("up0", REASON_UPLINK_DELIVERED).packets; }
};

void AttackInvalid::attack(bool broken) {
    serve_on_node();
    const EchoServer server(lab_->node().ns(), ipv4(), kBackendPort);
    const Wire wire(lab_->outside(), "eth0");
    const Wire victim = client_.wire();
    const Mac gateway = Wire(lab_->node().ns(), "up0").mac();
    for (const Transport transport : {Transport::udp, Transport::tcp}) {
        SCOPED_TRACE(to_string(transport));
        const Fd socket = connected(cluster_ip(), transport, kOwnPort);
        ASSERT_TRUE(wait_until([&] { return is_assured(socket); }));
        Packet invalid = packet(transport, {service_.cluster_ip, addr(client_), kPort, kOwnPort});
        if (broken)
            invalid.payload[transport == Transport::udp ? 6 : 16] ^= 0x55U;
        const Packet forged = packet(transport, {node_addr(), addr(client_), kBackendPort, kOwnPort});
        victim.forget();
        for (int i = 0; i < kRounds; ++i) {
            if (broken)
                ASSERT_TRUE(answered(socket)) << i;
            else // the socket is the forger's too, as without programs
                ASSERT_EQ(send_text(socket, "hello"), 0) << i;
            for (const Packet &one : {invalid, forged})
                wire.send(frame(gateway, wire.mac(), one));
        }
        if (broken)
            EXPECT_TRUE(answered(socket));
        std::ptrdiff_t arrived = 0;
        EXPECT_TRUE(wait_until([&] {
            arrived +=
                std::ranges::count_if(victim.arrived(), [](const Bytes &one) { return contains(one, pattern(24)); });
            return arrived >= kRounds;
        })) << arrived
            << " that opened nothing";
        EXPECT_EQ(delivered(), 0U);
    }
}

TEST_P(AttackInvalid, OpensNothingInTheNameOfABackend) { attack(true); }

TEST_P(AttackInvalid, OpensNothingFromAnotherZone) {
    rule("-t raw -A PREROUTING -i up0 -j CT --zone 7");
    attack(false);
}

INSTANTIATE_TEST_SUITE_P(All, AttackInvalid, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
