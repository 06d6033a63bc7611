// SPDX-License-Identifier: MIT
// Connections that the host's rules let through stay on the fast path when conntrack is queried again, also those that
// it has picked up in their middle; and those of a default route by two uplinks leave by the one that their source
// address is of.
#include "tests/netns/reopened.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
// confirmIntervalMs is a second.
constexpr int kConfirmations = 3;
constexpr std::chrono::milliseconds kBetween{30};

class KeptFast : public Reopened {
  protected:
    struct Sent {
        std::uint64_t fast = 0;
        std::uint64_t unconfirmed = 0;
    };
    [[nodiscard]] Sent sent_by(const Pod &pod) const {
        return {lab_->count(pod, REASON_SENT_DIRECT) + lab_->count(pod, REASON_SENT_UPLINK),
                lab_->count(pod, REASON_HOST_UNCONFIRMED)};
    }
    [[nodiscard]] static bool answered(const Fd &socket) {
        return send_text(socket, "hello") == 0 && receive(socket).text == "hello";
    }
    // Exchanges that the programs confirm so many times, and what a pod sends meanwhile.
    void expect_kept(const std::vector<Fd> &sockets, const std::vector<Pod> &pods, std::uint64_t most_unconfirmed) {
        for (const Fd &socket : sockets)
            for (const Pod &pod : pods)
                ASSERT_TRUE(wait_until([&] {
                    const Sent before = sent_by(pod);
                    EXPECT_TRUE(answered(socket));
                    return sent_by(pod).unconfirmed == before.unconfirmed && sent_by(pod).fast > before.fast;
                }));
        std::vector<Sent> before;
        for (const Pod &pod : pods)
            before.push_back(sent_by(pod));
        std::uint64_t exchanges = 0;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1100 * kConfirmations);
        for (; std::chrono::steady_clock::now() < end; ++exchanges) {
            for (const Fd &socket : sockets)
                ASSERT_TRUE(answered(socket));
            std::this_thread::sleep_for(kBetween);
        }
        for (std::size_t i = 0; i < pods.size(); ++i) {
            const Sent after = sent_by(pods[i]);
            EXPECT_LE(after.unconfirmed - before[i].unconfirmed, most_unconfirmed) << "pod " << i;
            EXPECT_GE(after.fast - before[i].fast + most_unconfirmed, exchanges * sockets.size()) << "pod " << i;
        }
    }
};

TEST_P(KeptFast, OrdinaryConnectionsOfPods) {
    const std::vector<Pod> pods{add_pod(), add_pod()};
    const EchoServer server(pods[1].ns(), ipv4(), kPort);
    std::vector<Fd> sockets;
    for (const Transport transport : {Transport::tcp, Transport::udp})
        sockets.push_back(connected(pods[0].ns(), transport, {addr(pods[1]), kPort}));
    expect_kept(sockets, pods, 0);
}

TEST_P(KeptFast, MasqueradedConnections) {
    rule("-t nat -A POSTROUTING -o up0 -j MASQUERADE");
    const std::vector<Pod> pods{add_pod()};
    const EchoServer server(lab_->outside(), ipv4(), kPort);
    std::vector<Fd> sockets;
    for (const Transport transport : {Transport::tcp, Transport::udp})
        sockets.push_back(connected(pods[0].ns(), transport, {outside_addr(), kPort}));
    expect_kept(sockets, pods, 0);
}

// Which uplink the host stack takes is known without replies by it.
TEST_P(KeptFast, MasqueradedPacketsThatNobodyAnswers) {
    rule("-t nat -A POSTROUTING -o up0 -j MASQUERADE");
    const Pod pod = add_pod();
    const EchoServer server(lab_->outside(), ipv4(), kPort);
    const Fd socket = connected(pod.ns(), Transport::udp, {outside_addr(), kPort});
    ASSERT_TRUE(wait_until([&] {
        const Sent before = sent_by(pod);
        EXPECT_TRUE(answered(socket));
        return sent_by(pod).fast > before.fast;
    }));
    (void)must_run(lab_->outside(), words(iptables() + " -w -A OUTPUT -p udp -j DROP"));
    ASSERT_EQ(lab_->node().podlanectl("path flush --all").rc, 0);
    const Sent before = sent_by(pod);
    std::uint64_t packets = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1100 * kConfirmations);
    for (; std::chrono::steady_clock::now() < end; ++packets) {
        ASSERT_EQ(send_text(socket, "x"), 0);
        std::this_thread::sleep_for(kBetween);
    }
    EXPECT_LE(sent_by(pod).unconfirmed - before.unconfirmed, 2U) << "of " << packets;
}

// Of these nobody knows whether the rules let the other direction through: it shows again with each query.
TEST_P(KeptFast, AConnectionThatConntrackPicksUpInItsMiddle) {
    const std::vector<Pod> pods{add_pod(), add_pod()};
    const Talkers both = Reopened::pods(pods[0], pods[1]);
    const EchoServer server(pods[1].ns(), ipv4(), kOwnPort);
    std::vector<Fd> sockets;
    sockets.push_back(connected(pods[0].ns(), Transport::tcp, {addr(pods[1]), kOwnPort}, {addr(pods[0]), kOwnPort}));
    ASSERT_TRUE(wait_until([&] {
        EXPECT_TRUE(answered(sockets[0]));
        return is_cached(both, Transport::tcp);
    }));
    delete_entry(both, Transport::tcp);
    ASSERT_TRUE(wait_until([&] {
        EXPECT_TRUE(answered(sockets[0]));
        return is_assured(both, Transport::tcp);
    }));
    expect_kept(sockets, pods, kConfirmations + 1);
}

INSTANTIATE_TEST_SUITE_P(All, KeptFast, lab_parameters(), lab_parameter_name);

// A default route by two uplinks, chosen by addresses and ports: after its translation a packet may hash to the other.
class Multipath : public KeptFast {
  protected:
    static constexpr std::size_t kFlows = 16;

    void prepare() override {
        far_ = lab_->node().container("far");
        lab_->node().run("ip link add up1 type veth peer name eth0 netns " + far_->path());
        for (const auto &[where, link, host] :
             {std::tuple{&lab_->node().ns(), "up1", "2"}, std::tuple{&far_->ns(), "eth0", "1"}}) {
            const std::string on_link = std::string(" dev ") + link;
            (void)must_run(*where, words(std::string("ip addr add 192.0.2.") + host + "/24" + on_link));
            (void)must_run(*where, words(std::string("ip addr add 2001:db8:f1::") + host + "/64 nodad" + on_link));
            (void)must_run(*where, words(std::string("ip link set ") + link + " up"));
        }
        for (const net::Namespace *where : {&lab_->outside(), &far_->ns()}) {
            (void)must_run(*where, words("ip link set lo up"));
            (void)must_run(*where,
                           words("ip addr add " + to_string(server_addr()) + (ipv4() ? "" : " nodad") + " dev lo"));
            servers_.push_back(std::make_unique<EchoServer>(*where, ipv4(), kPort));
            const std::string node =
                where == &far_->ns() ? (ipv4() ? "192.0.2.2" : "2001:db8:f1::2") : to_string(node_addr());
            (void)must_run(*where, words("ip route add " + node + " dev eth0 src " + to_string(server_addr())));
        }
        lab_->node().run(std::string(ipv4() ? "ip" : "ip -6") + " route replace default nexthop via " +
                         to_string(outside_addr()) + " dev up0 nexthop via " +
                         (ipv4() ? "192.0.2.1" : "2001:db8:f1::1") + " dev up1");
        lab_->node().run("sysctl -qw net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1");
        rule("-t nat -A POSTROUTING -s " + pod_range() + " -o up+ -j MASQUERADE");
        pod_ = add_pod({{"uplinks", {"up0", "up1"}}});
    }
    [[nodiscard]] ip_addr server_addr() const { return ip(ipv4() ? "198.51.100.1" : "2001:db8:f7::1"); }
    void expect_all_answered(Transport transport);

    std::shared_ptr<Container> far_;
    std::vector<std::unique_ptr<EchoServer>> servers_;
    Pod pod_;
};

// A byte by each of the connections at a time, and as many back.
void Multipath::expect_all_answered(Transport transport) {
    std::vector<Fd> sockets;
    for (std::size_t i = 0; i < kFlows; ++i)
        sockets.push_back(connected(pod_.ns(), transport, {server_addr(), kPort}));
    std::vector<std::size_t> back(kFlows);
    const auto receive_all = [&] {
        for (std::size_t i = 0; i < kFlows; ++i)
            for (Received one; (one = receive(sockets[i], 100, std::chrono::milliseconds(0))).text.size() > 0;)
                back[i] += one.text.size();
    };
    std::size_t rounds = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500 * kConfirmations);
    for (; std::chrono::steady_clock::now() < end; ++rounds) {
        for (const Fd &socket : sockets)
            (void)send_text(socket, "x");
        std::this_thread::sleep_for(kBetween);
        receive_all();
    }
    const std::vector<std::size_t> all(kFlows, rounds);
    (void)wait_until(
        [&] {
            receive_all();
            return back == all;
        },
        4 * quiet());
    EXPECT_EQ(back, all);
    for (const auto &server : servers_)
        EXPECT_FALSE(server->callers().empty()) << "both uplinks are in use";
    EXPECT_GT(lab_->count(pod_, REASON_SENT_UPLINK), rounds) << "on the fast path";
}

TEST_P(Multipath, AllMasqueradedTcpConnectionsGoOn) { expect_all_answered(Transport::tcp); }
TEST_P(Multipath, AllMasqueradedUdpFlowsAreAnswered) { expect_all_answered(Transport::udp); }

INSTANTIATE_TEST_SUITE_P(All, Multipath, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
