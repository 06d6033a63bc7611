// SPDX-License-Identifier: MIT
// Connections that conntrack has confirmed take the fast path, translated as the host translates them; first packets
// and everything that the host's rules refuse take the slow path.
#include "tests/netns/service_test.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kServicePort = 80;
constexpr std::uint16_t kBackendPort = 8080;

class Flow : public ServiceTest {
  protected:
    Flow() : ServiceTest(kServicePort, kBackendPort) {}
    // Conntrack, which every rule of a stateful firewall needs.
    void track() { rule("-A FORWARD -m conntrack --ctstate INVALID -j DROP"); }
    [[nodiscard]] std::uint64_t sent_fast(const Pod &pod) const { return lab_->count(pod, REASON_SENT_DIRECT); }
    [[nodiscard]] Flows flows() { return require(open_flows(lab_->node().bpffs(), Access::read_write)); }
    // The conntrack table as text.
    [[nodiscard]] std::string conntrack() { return lab_->node().run("cat /proc/net/nf_conntrack"); }
};

TEST_P(Flow, AServicesEstablishedConnectionIsFastInBothDirections) {
    const EchoServer server(server_.ns(), ipv4(), kBackendPort);
    for (const bool nftables : {false, true}) {
        SCOPED_TRACE(nftables ? "nftables" : "iptables");
        serve(server_, nftables);
        const auto a_before = sent_fast(client_), b_before = sent_fast(server_);
        const Fd socket = connected(cluster_ip());
        ASSERT_EQ(transfer(socket, 1 << 20), 0);
        EXPECT_GE(sent_fast(client_) - a_before, 10U);
        EXPECT_GE(sent_fast(server_) - b_before, 10U);
        lab_->node().run(nftables ? "nft flush ruleset" : iptables() + " -t nat -F");
    }
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(addr(client_))) << "the caller's address is not kept";
}

TEST_P(Flow, FirstPacketsTakeTheSlowPathAndItsRules) {
    const EchoServer server(server_.ns(), ipv4(), 7);
    track();
    lab_->node().run(iptables() + " -A FORWARD -p tcp --dport 7 -j DROP");
    const Fd socket = open_socket(client_.ns(), Transport::tcp, ipv4());
    EXPECT_EQ(connect_to(socket, {addr(server_), 7}), ETIMEDOUT);
    EXPECT_EQ(sent_fast(client_), 0U);
    EXPECT_TRUE(require(flows().entries()).empty());
}

TEST_P(Flow, PodsByTheirOwnAddressesAreFastOnceConfirmed) {
    const EchoServer server(server_.ns(), ipv4(), 7);
    track();
    const Fd socket = connected({addr(server_), 7});
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_GE(sent_fast(client_), 10U);
    EXPECT_GE(sent_fast(server_), 10U);
}

TEST_P(Flow, FlushedEntriesCostNoConnection) {
    const EchoServer server(server_.ns(), ipv4(), kBackendPort);
    serve(server_);
    const Fd socket = connected(cluster_ip());
    for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(transfer(socket, 100'000), 0);
        EXPECT_FALSE(require(flows().entries()).empty());
        for (const auto &[key, value] : require(flows().entries()))
            (void)require(flows().remove(key));
    }
    ASSERT_EQ(transfer(socket, 100'000), 0);
}

TEST_P(Flow, ClosedConnectionsLeaveNoEntryAndEndInConntrack) {
    const EchoServer server(server_.ns(), ipv4(), kBackendPort);
    serve(server_);
    {
        const Fd socket = connected(cluster_ip());
        ASSERT_EQ(transfer(socket, 4 << 20), 0);
        ASSERT_FALSE(require(flows().entries()).empty());
    }
    const auto deadline = std::chrono::steady_clock::now() + patience();
    while (conntrack().find("TIME_WAIT") == std::string::npos && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_NE(conntrack().find("TIME_WAIT"), std::string::npos) << conntrack();
    EXPECT_TRUE(require(flows().entries()).empty());
}

TEST_P(Flow, WithoutLiberalWindowsTcpStaysOnTheSlowPath) {
    const EchoServer server(server_.ns(), ipv4(), kBackendPort);
    serve(server_);
    lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0");
    const Fd socket = connected(cluster_ip());
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_EQ(sent_fast(client_), 0U);
}

TEST_P(Flow, IpsecPoliciesKeepPacketsOnTheSlowPath) {
    const EchoServer server(server_.ns(), ipv4(), kBackendPort);
    serve(server_);
    // Of an address that nobody uses: the node has a policy, and it is the kernel that decides whom it concerns.
    const std::string other = ipv4() ? "192.0.2.99/32" : "2001:db8:99::1/128";
    lab_->node().run("ip xfrm policy add dir fwd src " + other + " dst " + other + " tmpl proto esp mode tunnel");
    const Fd socket = connected(cluster_ip());
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_EQ(sent_fast(client_), 0U);
    lab_->node().run("ip xfrm policy flush");
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_GE(sent_fast(client_), 10U);
}

TEST_P(Flow, AUdpStreamFollowsConntrackOnceItIsAssured) {
    const EchoServer server(server_.ns(), ipv4(), kBackendPort);
    serve(server_);
    const Fd socket = connected(cluster_ip(), Transport::udp);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while ((sent_fast(client_) == 0 || sent_fast(server_) == 0) && std::chrono::steady_clock::now() < deadline) {
        ASSERT_EQ(send_text(socket, "hello"), 0);
        ASSERT_EQ(receive(socket).text, "hello");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_GT(sent_fast(client_), 0U);
    EXPECT_GT(sent_fast(server_), 0U);
}

INSTANTIATE_TEST_SUITE_P(Netns, Flow, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
