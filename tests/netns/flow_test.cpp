// SPDX-License-Identifier: MIT
// Connections that conntrack has confirmed take the fast path, translated as the host translates them; first packets
// and everything that the host's rules refuse take the slow path.
// A node without any rule that needs connection tracking: Podlane's own rule turns it on for the fast path, and goes
// with the network's last pod.
#include "tests/netns/service_test.hpp"

#include <netinet/tcp.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kServicePort = 80;
constexpr std::uint16_t kBackendPort = 8080;
constexpr std::chrono::seconds kConfirmed{1}; // how long an entry holds without a query, by default

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
    EXPECT_EQ(connect_to(socket, {addr(server_), 7}, kRetransmitted), ETIMEDOUT);
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
    const EchoServer server = serve_echo();
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
    const EchoServer server = serve_echo();
    {
        const Fd socket = connected(cluster_ip());
        ASSERT_EQ(transfer(socket, 4 << 20), 0);
        ASSERT_FALSE(require(flows().entries()).empty());
    }
    EXPECT_TRUE(wait_until([&] { return conntrack().find("TIME_WAIT") != std::string::npos; })) << conntrack();
    EXPECT_TRUE(require(flows().entries()).empty());
}

TEST_P(Flow, WithoutLiberalWindowsTcpStaysOnTheSlowPath) {
    const EchoServer server = serve_echo();
    lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0");
    const Fd socket = connected(cluster_ip());
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_EQ(sent_fast(client_), 0U);
}

// The windows that conntrack knows of it are old: with them it would refuse what the connection sends.
TEST_P(Flow, AConnectionStaysFastWhenConntrackChecksWindowsAgain) {
    const EchoServer server = serve_echo();
    track();
    const Fd socket = connected(cluster_ip());
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=0");
    for (const auto end = std::chrono::steady_clock::now() + 3 * kConfirmed; std::chrono::steady_clock::now() < end;)
        ASSERT_EQ(transfer(socket, 100'000), 0);
}

TEST_P(Flow, IpsecPoliciesKeepPacketsOnTheSlowPath) {
    const EchoServer server = serve_echo();
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
    const EchoServer server = serve_echo();
    const Fd socket = connected(cluster_ip(), Transport::udp);
    EXPECT_TRUE(wait_until([&] {
        EXPECT_TRUE(answered(socket));
        return sent_fast(client_) > 0 && sent_fast(server_) > 0;
    })) << sent_fast(client_)
        << " from the client, " << sent_fast(server_) << " from the server";
}

INSTANTIATE_TEST_SUITE_P(Netns, Flow, lab_parameters(), lab_parameter_name);

class Conntrack : public LabTest {
  protected:
    Pod add_pod(Json keys = Json::object()) {
        if (!keys.contains("firstPacket"))
            keys["firstPacket"] = "host";
        return LabTest::add_pod(keys);
    }
    [[nodiscard]] std::string rules() { return lab_->node().run("nft list ruleset"); }
};

TEST_P(Conntrack, IsOnForTheFirstPodAndOffAfterTheLast) {
    const Pod a = add_pod(), b = add_pod();
    EXPECT_THAT(rules(), HasSubstr("ct state invalid"));

    const EchoServer server(b.ns(), ipv4(), 7);
    const Fd socket = connected(a.ns(), Transport::tcp, {addr(b), 7});
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_GE(lab_->count(a, REASON_SENT_DIRECT), 10U);

    ASSERT_EQ(a.chain->del(*a.container).rc, 0);
    EXPECT_THAT(rules(), HasSubstr("ct state invalid"));
    ASSERT_EQ(b.chain->del(*b.container).rc, 0);
    EXPECT_EQ(rules(), "");
}

TEST_P(Conntrack, StaysOffForNetworksThatDoNotFollowIt) {
    (void)add_pod({{"firstPacket", "direct"}});
    (void)add_pod({{"fastPath", "off"}});
    EXPECT_EQ(rules(), "");
}

TEST_P(Conntrack, AFailedAddLeavesNoRule) {
    for (int host = 1; host < 8; ++host) // whichever address it gets
        lab_->node().run("ip route add 198.18.9." + std::to_string(host) + " dev lo");
    const auto container = lab_->node().container();
    Chain chain(lab_->node(), {lab_->node().config({{"firstPacket", "host"}})});
    const Reply reply = chain.add(*container);
    EXPECT_THAT(reply.out, HasSubstr("has a route to"));
    EXPECT_EQ(rules(), "");
}

TEST_P(Conntrack, AFlushedRuleIsRestoredByTheNextAdd) {
    (void)add_pod();
    lab_->node().run("nft flush ruleset");
    (void)add_pod();
    EXPECT_THAT(rules(), HasSubstr("ct state invalid"));
}

TEST_P(Conntrack, MasqueradingKeepsItsTable) {
    const Pod a = add_pod({{"ipMasq", true}});
    EXPECT_THAT(rules(), has_all({"ct state invalid", "masquerade"}));
    ASSERT_EQ(a.chain->del(*a.container).rc, 0);
    EXPECT_THAT(rules(), Not(HasSubstr("podlane")));
}

TEST_P(Conntrack, TheFirstAddLogsRulesThatEstablishedConnectionsDoNotMeet) {
    lab_->node().run("nft -f -", "table inet f { chain c { type filter hook forward priority 0; limit rate 1000/second "
                                 "accept; }\n}\n");
    const std::string log = lab_->node().dir() + "/log";
    const Json keys = {{"log", {{"file", log}, {"level", "warning"}}}};
    (void)add_pod(keys);
    (void)add_pod(keys);
    const std::string text = lab_->node().run("cat " + log);
    const std::string sentence = "chain f c (inet): limit: established connections on the fast path do not meet";
    EXPECT_THAT(text, HasSubstr(sentence));
    EXPECT_EQ(text.find(sentence), text.rfind(sentence)) << "once is enough";
}

INSTANTIATE_TEST_SUITE_P(All, Conntrack, testing::Values(LabParameter{"auto", true}, LabParameter{"auto", false}),
                         lab_family_name);

} // namespace
} // namespace podlane::test
