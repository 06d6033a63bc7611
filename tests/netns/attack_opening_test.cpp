// SPDX-License-Identifier: MIT
// A hostile host on the uplink replies to a pod's SYN in the name of the peer, before the peer does, with segments of
// all kinds and numbers of its own choice. Beside strict rules the connection begins and lives all the same.
#include "tests/netns/conntrack.hpp"
#include "tests/netns/segments.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7000;
constexpr std::uint16_t kFirstPort = 40123;
constexpr std::array<int, 5> kForged = {tcp_rst, tcp_rst | tcp_ack, tcp_syn | tcp_ack, tcp_ack, tcp_fin | tcp_ack};
// The time-out of a connection that conntrack takes for closed, in seconds, as set here.
constexpr std::uint64_t kClosed = 1;

class AttackOpening : public LabTest {
  protected:
    void prepare() override {
        pod_ = add_pod({{"firstPacket", "host"}});
        lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_tcp_timeout_close=" + std::to_string(kClosed));
        for (const std::string &rule :
             {std::string("-P FORWARD DROP"), std::string("-A FORWARD -m conntrack --ctstate INVALID -j DROP"),
              std::string("-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"),
              "-A FORWARD -i " + pod_.host_ifname + " -j ACCEPT"})
            lab_->node().run(iptables() + " -w " + rule);
        listener_ = open_socket(lab_->outside(), Transport::tcp, ipv4(), {outside_addr(), kPort});
        ASSERT_EQ(listen(listener_.get(), kForged.size()), 0);
    }
    [[nodiscard]] std::size_t count_in(const std::string &state) {
        return static_cast<std::size_t>(
            std::ranges::count_if(tracked(lab_->node().ns()), [&](const Tracked &one) { return one.state == state; }));
    }
    // In the name of the peer, with numbers from all over their range.
    void forge(std::uint16_t port, std::uint8_t flags) {
        const Wire wire(lab_->outside(), "eth0");
        const Mac gateway = Wire(lab_->node().ns(), "up0").mac();
        Packet packet = tcp({outside_addr(), addr(pod_), kPort, port}, flags);
        for (std::uint32_t part = 0; part < 4; ++part) {
            put_numbers(packet, {0x13572468 + (part << 30U), 0x17531357 - (part << 30U)});
            wire.send(frame(gateway, wire.mac(), packet));
        }
    }

    Pod pod_;
    Fd listener_;
};

// Without a route to the pod the peer replies to no SYN.
TEST_P(AttackOpening, ChangesNoConnection) {
    std::vector<Fd> clients, servers;
    for (std::uint16_t i = 0; i < kForged.size(); ++i) {
        const auto port = static_cast<std::uint16_t>(kFirstPort + i);
        clients.push_back(open_socket(pod_.ns(), Transport::tcp, ipv4(), {{}, port}));
        ASSERT_EQ(connect_to(clients.back(), {outside_addr(), kPort}, std::chrono::milliseconds(0)), ETIMEDOUT);
    }
    ASSERT_TRUE(wait_until([&] { return count_in("SYN_SENT") == kForged.size(); }));
    for (std::uint16_t i = 0; i < kForged.size(); ++i)
        forge(static_cast<std::uint16_t>(kFirstPort + i), static_cast<std::uint8_t>(kForged.at(i)));
    EXPECT_TRUE(ping(lab_->outside(), node_addr())); // the node has got them
    (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
    for (std::size_t i = 0; i < kForged.size(); ++i)
        EXPECT_EQ(send_text(clients.at(i), "hello"), 0) << "after forged flags " << kForged.at(i);
    for (std::size_t i = 0; i < kForged.size(); ++i) {
        servers.push_back(accepted(listener_));
        EXPECT_EQ(receive(servers.back()).text, "hello");
    }
    ASSERT_TRUE(wait_until([&] { return count_in("ESTABLISHED") == kForged.size(); }));
    // In this time an entry that conntrack takes for closed is gone; then the peer is the first to send.
    EXPECT_FALSE(wait_until([&] { return count_in("ESTABLISHED") != kForged.size(); },
                            std::chrono::seconds(kClosed) + 2 * quiet()));
    for (const Fd &server : servers)
        EXPECT_EQ(send_text(server, "push"), 0);
    for (const Fd &client : clients) {
        EXPECT_EQ(receive(client).text, "push");
        EXPECT_EQ(send_text(client, "response"), 0);
    }
    for (const Fd &server : servers)
        EXPECT_EQ(receive(server).text, "response");
}

INSTANTIATE_TEST_SUITE_P(All, AttackOpening, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
