// SPDX-License-Identifier: MIT
// Translation by the node's own rules, in iptables and nftables: a ClusterIP whose backend is on the same node ("a
// flow returns the way it came"), masquerading, and hostPort by the real `portmap` plugin.
#include "tests/netns/kube_proxy.hpp"
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kServicePort = 80;
constexpr std::uint16_t kBackendPort = 8080;
constexpr std::uint16_t kHostPort = 8081;
constexpr std::array kTransports = {Transport::tcp, Transport::udp};

enum class Rules { iptables, nftables };

// Parameters: what each lab has, and who writes the rules.
class NatTest : public LabTestOf<std::tuple<LabParameter, Rules>> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return std::get<0>(GetParam()); }
    [[nodiscard]] static bool by_iptables() { return std::get<1>(GetParam()) == Rules::iptables; }
};

std::string nat_name(const testing::TestParamInfo<std::tuple<LabParameter, Rules>> &info) {
    return lab_parameter_text(std::get<0>(info.param)) +
           (std::get<1>(info.param) == Rules::iptables ? "Iptables" : "Nftables");
}
const auto kNatParameters = testing::Combine(lab_parameters(), testing::Values(Rules::iptables, Rules::nftables));

// Pod a_ calls; pod b_ is the backend of the service.
class ClusterIp : public NatTest {
  protected:
    void start(const Json &keys = Json::object()) {
        a_ = add_pod(keys);
        b_ = add_pod(keys);
        service_ = {"a", ip(ipv4() ? "198.18.255.1" : "2001:db8:5e::1"), kServicePort, {addr(b_)}, kBackendPort};
        const KubeProxy proxy({service_}, pod_range());
        if (by_iptables())
            lab_->node().run(iptables() + "-restore", proxy.iptables());
        else
            lab_->node().run("nft -f -", proxy.nftables());
    }
    void start_served(const Json &keys = Json::object()) {
        start(keys);
        server_.emplace(b_.ns(), ipv4(), kBackendPort);
    }
    [[nodiscard]] Endpoint cluster_ip() const { return {service_.cluster_ip, service_.port}; }
    [[nodiscard]] Endpoint backend() const { return {addr(b_), kBackendPort}; }
    [[nodiscard]] Fd call(Transport transport, const Endpoint &to, const Endpoint &local = {}) const {
        return connected(a_.ns(), transport, to, local);
    }

    Pod a_, b_;
    KubeService service_;
    std::optional<EchoServer> server_;
};

TEST_P(ClusterIp, RepliesReachTheCallerTheNodeAndTheBackendItself) {
    start_served();
    for (const Transport transport : kTransports)
        for (int i = 0; i < 10; ++i)
            EXPECT_EQ(ask(a_.ns(), transport, cluster_ip()), 0) << to_string(transport) << " " << i;
    EXPECT_GE(lab_->count(b_, REASON_HOST_UNCONFIRMED), 20U);
    for (const ip_addr &caller : server_->callers())
        EXPECT_EQ(to_string(caller), to_string(addr(a_))) << "the caller's address is not kept";
    for (const Transport transport : kTransports) {
        EXPECT_EQ(ask(lab_->node().ns(), transport, cluster_ip()), 0) << "the node, " << to_string(transport);
        EXPECT_EQ(ask(b_.ns(), transport, cluster_ip()), 0) << "the backend, " << to_string(transport);
    }
    for (const ip_addr &caller : server_->callers())
        EXPECT_NE(to_string(caller), to_string(addr(b_))) << "a hairpin is masqueraded";
}

TEST_P(ClusterIp, DirectTrafficOfTheSamePodsStaysFast) {
    start_served();
    const Fd translated = call(Transport::tcp, cluster_ip());
    const Fd direct = call(Transport::tcp, backend());
    for (int i = 0; i < 20; ++i)
        for (const Fd *socket : {&translated, &direct}) {
            ASSERT_EQ(transfer(*socket, 1000), 0);
            ASSERT_EQ(ask(a_.ns(), Transport::udp, i % 2 == 0 ? cluster_ip() : backend()), 0);
        }
    EXPECT_GE(lab_->count(b_, REASON_SENT_DIRECT), 20U + 20U);
}

// Both look alike to the backend, unless connection tracking gives one of them another port.
TEST_P(ClusterIp, DirectFlowFromThePortOfATranslatedOneIsDistinguished) {
    start_served();
    const Endpoint local{addr(a_), 23456};
    const Fd translated = call(Transport::tcp, cluster_ip(), local);
    const Fd direct = call(Transport::tcp, backend(), local);
    for (const Fd *socket : {&translated, &direct})
        EXPECT_EQ(transfer(*socket, 10000), 0);
}

// The established connection lives, and the host stack never mixes it up with the one that it translates.
TEST_P(ClusterIp, AnEstablishedDirectFlowOutlivesATranslatedOneFromItsPort) {
    start_served();
    const Endpoint local{addr(a_), 23457};
    const Fd direct = call(Transport::tcp, backend(), local);
    const Fd translated = open_socket(a_.ns(), Transport::tcp, ipv4(), local);
    (void)connect_to(translated, cluster_ip());
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(transfer(direct, 10000), 0);
}

// Of UDP only that the host carried one of them distinguishes the backend's replies.
TEST_P(ClusterIp, DatagramsByServiceAndByAddressTakeTurnsOnOnePort) {
    start_served({{"confirmIntervalMs", 60000}});
    for (int i = 0; i < 6; ++i) {
        const Endpoint target = i % 2 == 0 ? backend() : cluster_ip();
        const Fd socket = call(Transport::udp, target, {addr(a_), 23458});
        ASSERT_EQ(send_text(socket, "query"), 0);
        EXPECT_EQ(receive(socket).text, "query") << to_string(target) << ", " << i;
    }
}

// As people write them: a range that holds pods and Services alike.
TEST_P(ClusterIp, AServiceWithinTheClustersRangesIsTranslated) {
    for (const char *first : {"host", "direct"}) {
        SCOPED_TRACE(first);
        start_served({{"firstPacket", first}, {"clusterCIDRs", {"198.0.0.0/8", "2001:db8::/32"}}});
        EXPECT_EQ(transfer(call(Transport::tcp, cluster_ip()), 1 << 20), 0);
        for (const Transport transport : kTransports)
            EXPECT_EQ(ask(a_.ns(), transport, cluster_ip()), 0) << to_string(transport);
        EXPECT_EQ(lab_->count(a_, REASON_SENT_UPLINK), 0U);
        if (!by_iptables()) // iptables-restore replaces what there is
            lab_->node().run("nft delete table " + std::string(ipv4() ? "ip" : "ip6") + " kube-proxy");
    }
}

// As resolvers do: a few sockets, each asking again and again.
TEST_P(ClusterIp, NameQueriesAreAnswered) {
    start_served();
    for (int socket = 0; socket < 5; ++socket) {
        const Fd resolver = call(Transport::udp, cluster_ip());
        for (int i = 0; i < 10; ++i) {
            ASSERT_EQ(send_text(resolver, "A? " + std::to_string(i)), 0);
            ASSERT_EQ(receive(resolver).text, "A? " + std::to_string(i));
        }
    }
}

TEST_P(ClusterIp, FragmentedDatagramsAreAnsweredWhole) {
    start_served();
    const Fd socket = call(Transport::udp, cluster_ip());
    const std::string big_one(4000, 'f');
    ASSERT_EQ(send_text(socket, big_one), 0);
    EXPECT_EQ(receive(socket).text, big_one);
    // The first fragment named the flow: a short reply is translated too.
    ASSERT_EQ(send_text(socket, "short"), 0);
    EXPECT_EQ(receive(socket).text, "short");
}

TEST_P(ClusterIp, PortUnreachableReachesTheCallersSocket) {
    start(); // nobody listens there
    const Fd socket = call(Transport::udp, cluster_ip());
    ASSERT_EQ(send_text(socket, "anyone?"), 0);
    EXPECT_EQ(receive(socket).error, ECONNREFUSED);
    EXPECT_EQ(ask(a_.ns(), Transport::tcp, cluster_ip()), ECONNREFUSED);
}

TEST_P(ClusterIp, TransfersOutliveALossOfAllPaths) {
    start_served();
    for (const Endpoint &target : {cluster_ip(), backend()}) {
        const Fd socket = call(Transport::tcp, target);
        EXPECT_EQ(transfer(socket, big(), [&] { lab_->erase_paths(); }), 0) << to_string(target);
    }
}

// The first packet after the loss is the backend's: only that it is under way shows that it was translated.
TEST_P(ClusterIp, BackendSpeaksFirstAfterALossOfAllPaths) {
    start();
    const Fd listener = open_socket(b_.ns(), Transport::tcp, ipv4(), backend());
    ASSERT_EQ(listen(listener.get(), 1), 0);
    const Fd client = call(Transport::tcp, cluster_ip());
    const Fd server = accepted(listener);
    lab_->erase_paths();
    ASSERT_EQ(send_text(server, "hello"), 0);
    EXPECT_EQ(receive(client).text, "hello");
}

TEST_P(ClusterIp, HundredsOfFlowsCompleteWithRoomForFewPaths) {
    start_served({{"maxPaths", 64}});
    std::vector<Fd> sockets;
    for (int i = 0; i < (slow() ? 40 : 200); ++i) {
        const Endpoint target = i % 2 == 0 ? cluster_ip() : backend();
        // Ports of their own: the backend cannot distinguish two flows from one port.
        sockets.push_back(call(Transport::tcp, target, {addr(a_), static_cast<std::uint16_t>(20000 + i)}));
        ASSERT_EQ(ask(a_.ns(), Transport::udp, target), 0) << "flow " << i;
    }
    for (int round = 0; round < 2; ++round)
        for (const Fd &socket : sockets)
            ASSERT_EQ(transfer(socket, 3000), 0);
    EXPECT_LE(lab_->path_count(), 64U * 4) << "the memory is as small as it was asked to be";
}

INSTANTIATE_TEST_SUITE_P(All, ClusterIp, kNatParameters, nat_name);

// Pods reach the outside under the node's address, while they reach each other on the fast path.
class Masquerade : public NatTest {
  protected:
    void masquerade() {
        const std::string ip = ipv4() ? "ip" : "ip6";
        if (by_iptables())
            lab_->node().run(iptables() + " -t nat -A POSTROUTING -s " + pod_range() + " ! -d " + pod_range() +
                             " -j MASQUERADE");
        else
            lab_->node().run("nft -f -", "table " + ip +
                                             " outgoing { chain post { type nat hook postrouting priority 100; " + ip +
                                             " saddr " + pod_range() + " " + ip + " daddr != " + pod_range() +
                                             " masquerade; }\n}\n");
    }
};

TEST_P(Masquerade, OutsideSeesTheNodeAndItsRefusalsReachTheCaller) {
    const Pod a = add_pod();
    const EchoServer outside(lab_->outside(), ipv4(), 7);
    EXPECT_EQ(ask(a.ns(), Transport::udp, {node_addr(), 9}), ECONNREFUSED);
    masquerade();
    for (const Transport transport : kTransports) {
        EXPECT_EQ(ask(a.ns(), transport, {outside_addr(), 7}), 0) << to_string(transport);
        EXPECT_EQ(ask(a.ns(), transport, {outside_addr(), 9}), ECONNREFUSED) << to_string(transport);
    }
    EXPECT_TRUE(ping(a.ns(), outside_addr()));
    ASSERT_EQ(outside.callers().size(), 2U);
    for (const ip_addr &caller : outside.callers())
        EXPECT_EQ(to_string(caller), to_string(node_addr()));
}

TEST_P(Masquerade, TransferOutsideAndDirectTrafficGoOnSideBySide) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    masquerade();
    const EchoServer outside(lab_->outside(), ipv4(), 7);
    const EchoServer inside(b.ns(), ipv4(), 7);
    const Fd out = connected(a.ns(), Transport::tcp, {outside_addr(), 7});
    EXPECT_EQ(transfer(out, big() / 4, [&] { EXPECT_EQ(ask(a.ns(), Transport::tcp, {addr(b), 7}), 0); }), 0);
    EXPECT_GT(lab_->count(a, REASON_SENT_DIRECT), 0U);
    for (const ip_addr &caller : inside.callers())
        EXPECT_EQ(to_string(caller), to_string(addr(a))) << "pods see each other's own addresses";
}

INSTANTIATE_TEST_SUITE_P(All, Masquerade, kNatParameters, nat_name);

class HostPort : public LabTest {
  protected:
    Pod add_served_pod() {
        return lab_->add_pod({lab_->node().config(with_attach()),
                              {{"type", "portmap"}, {"snat", true}, {"capabilities", {{"portMappings", true}}}}},
                             port_mappings(kHostPort, kBackendPort));
    }
    static void expect_served(const std::string &whom, const net::Namespace &from, const ip_addr &addr) {
        for (const Transport transport : kTransports)
            for (int i = 0; i < 3; ++i)
                EXPECT_EQ(ask(from, transport, {addr, kHostPort}), 0)
                    << whom << ", " << to_string(transport) << " to " << to_string(addr);
    }
};

TEST_P(HostPort, OutsideNodeOtherPodsAndThePodItselfAreServed) {
    const Pod served = add_served_pod();
    const Pod other = add_pod();
    const EchoServer server(served.ns(), ipv4(), kBackendPort);
    expect_served("the outside", lab_->outside(), node_addr());
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(outside_addr())) << "under its own address";
    const std::uint64_t before = lab_->count(served, REASON_HOST_UNCONFIRMED);
    expect_served("another pod", other.ns(), node_addr());
    EXPECT_GT(lab_->count(served, REASON_HOST_UNCONFIRMED), before);
    expect_served("the pod itself", served.ns(), node_addr());
    expect_served("the node", lab_->node().ns(), node_addr());
    if (ipv4()) // there is no route_localnet for ::1
        expect_served("the node", lab_->node().ns(), ip("127.0.0.1"));

    const std::uint64_t fast = lab_->count(served, REASON_SENT_DIRECT);
    EXPECT_EQ(ask(other.ns(), Transport::tcp, {addr(served), kBackendPort}), 0);
    EXPECT_GT(lab_->count(served, REASON_SENT_DIRECT), fast) << "it stays fast otherwise";
}

INSTANTIATE_TEST_SUITE_P(All, HostPort, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
