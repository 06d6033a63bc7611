// SPDX-License-Identifier: MIT
// "A flow returns the way it came": a ClusterIP whose backend is on the same node, by iptables and by nftables.
#include "tests/netns/lab.hpp"
#include "tests/netns/services.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>

namespace podlane::test {
namespace {

constexpr std::uint16_t kServicePort = 80;
constexpr std::uint16_t kBackendPort = 8080;

enum class Rules { iptables, nftables };

// Parameters: what each lab has, and who writes the rules.
class ClusterIp : public LabTestOf<std::tuple<LabParameter, Rules>> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return std::get<0>(GetParam()); }

    void serve(const Pod &backend, std::uint16_t backend_port = kBackendPort) {
        service_ = {ipv4() ? ip("198.18.255.1") : ip("2001:db8:5e::1"), kServicePort, addr(backend), backend_port,
                    pod_range()};
        if (std::get<1>(GetParam()) == Rules::iptables)
            lab_->node().run(iptables() + "-restore", iptables_rules(service_));
        else
            lab_->node().run("nft -f -", nftables_rules(service_));
    }
    [[nodiscard]] Endpoint cluster_ip() const { return {service_.cluster_ip, service_.port}; }

    Service service_;
};

TEST_P(ClusterIp, AnotherPodIsAnsweredByTheSameWay) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    serve(b);
    for (const Transport transport : {Transport::tcp, Transport::udp})
        for (int i = 0; i < 10; ++i)
            EXPECT_EQ(ask(a.ns(), transport, cluster_ip()), 0) << to_string(transport) << " " << i;
    EXPECT_GE(lab_->count(b, REASON_HOST_PATH), 20U);
    EXPECT_EQ(lab_->count(b, REASON_SENT_DIRECT), 0U);
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(addr(a))) << "the caller's address is not kept";
}

TEST_P(ClusterIp, DirectTrafficOfTheSamePodsStaysFast) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    serve(b);
    const Fd translated = open_socket(a.ns(), Transport::tcp, ipv4());
    const Fd direct = open_socket(a.ns(), Transport::tcp, ipv4());
    ASSERT_EQ(connect_to(translated, cluster_ip()), 0);
    ASSERT_EQ(connect_to(direct, {addr(b), kBackendPort}), 0);
    for (int i = 0; i < 20; ++i)
        for (const Fd *socket : {&translated, &direct}) {
            ASSERT_EQ(transfer(*socket, 1000), 0);
            ASSERT_EQ(ask(a.ns(), Transport::udp, i % 2 == 0 ? cluster_ip() : Endpoint{addr(b), kBackendPort}), 0);
        }
    EXPECT_GE(lab_->count(b, REASON_SENT_DIRECT), 20U + 20U);
    EXPECT_GE(lab_->count(b, REASON_HOST_PATH), 20U + 20U);
}

// Both look alike to the backend, unless connection tracking gives one of them another port.
TEST_P(ClusterIp, DirectFlowFromThePortOfATranslatedOneIsToldApart) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    serve(b);
    const Endpoint local{addr(a), 23456};
    const Fd translated = open_socket(a.ns(), Transport::tcp, ipv4(), local);
    const Fd direct = open_socket(a.ns(), Transport::tcp, ipv4(), local);
    ASSERT_EQ(connect_to(translated, cluster_ip()), 0);
    ASSERT_EQ(connect_to(direct, {addr(b), kBackendPort}), 0);
    for (const Fd *socket : {&translated, &direct})
        EXPECT_EQ(transfer(*socket, 10000), 0);
}

TEST_P(ClusterIp, CallingPodReachesItself) {
    const Pod a = add_pod();
    const EchoServer server(a.ns(), ipv4(), kBackendPort);
    serve(a);
    for (const Transport transport : {Transport::tcp, Transport::udp})
        EXPECT_EQ(ask(a.ns(), transport, cluster_ip()), 0) << to_string(transport);
    for (const ip_addr &caller : server.callers())
        EXPECT_NE(to_string(caller), to_string(addr(a))) << "a hairpin is masqueraded";
}

TEST_P(ClusterIp, HostReachesABackend) {
    const Pod b = add_pod();
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    serve(b);
    for (const Transport transport : {Transport::tcp, Transport::udp})
        EXPECT_EQ(ask(lab_->node().ns(), transport, cluster_ip()), 0) << to_string(transport);
}

// As resolvers do: a few sockets, each asking again and again.
TEST_P(ClusterIp, NameQueriesAreAnswered) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const EchoServer server(b.ns(), ipv4(), 53);
    serve(b, 53);
    for (int socket = 0; socket < 5; ++socket) {
        const Fd resolver = open_socket(a.ns(), Transport::udp, ipv4());
        ASSERT_EQ(connect_to(resolver, cluster_ip()), 0);
        for (int i = 0; i < 10; ++i) {
            ASSERT_EQ(send_text(resolver, "A? " + std::to_string(i)), 0);
            ASSERT_EQ(receive(resolver).text, "A? " + std::to_string(i));
        }
    }
    EXPECT_EQ(lab_->count(b, REASON_SENT_DIRECT), 0U);
}

TEST_P(ClusterIp, FragmentedDatagramsAreAnsweredWhole) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    serve(b);
    const Fd socket = open_socket(a.ns(), Transport::udp, ipv4());
    ASSERT_EQ(connect_to(socket, cluster_ip()), 0);
    const std::string big_one(4000, 'f');
    ASSERT_EQ(send_text(socket, big_one), 0);
    EXPECT_EQ(receive(socket).text, big_one);
    // The first fragment named the flow: a short answer finds its way too.
    EXPECT_TRUE(lab_->has_path(b, PATH_HOST));
    ASSERT_EQ(send_text(socket, "short"), 0);
    EXPECT_EQ(receive(socket).text, "short");
}

TEST_P(ClusterIp, PortUnreachableReachesTheCallersSocket) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    serve(b); // nobody listens there
    const Fd socket = open_socket(a.ns(), Transport::udp, ipv4());
    ASSERT_EQ(connect_to(socket, cluster_ip()), 0);
    ASSERT_EQ(send_text(socket, "anyone?"), 0);
    EXPECT_EQ(receive(socket).error, ECONNREFUSED);
    EXPECT_EQ(ask(a.ns(), Transport::tcp, cluster_ip()), ECONNREFUSED);
}

TEST_P(ClusterIp, TransfersOutliveALossOfAllPaths) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    serve(b);
    for (const Endpoint &target : {cluster_ip(), Endpoint{addr(b), kBackendPort}}) {
        const Fd socket = open_socket(a.ns(), Transport::tcp, ipv4());
        ASSERT_EQ(connect_to(socket, target), 0);
        EXPECT_EQ(transfer(socket, big(), [&] { lab_->erase_paths(); }), 0) << to_string(target);
    }
}

// The first packet after the loss is the backend's: nothing but its being under way tells that it was translated.
TEST_P(ClusterIp, BackendSpeaksFirstAfterALossOfAllPaths) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    serve(b);
    const Fd listener = open_socket(b.ns(), Transport::tcp, ipv4(), {addr(b), kBackendPort});
    ASSERT_EQ(listen(listener.get(), 1), 0);
    const Fd client = open_socket(a.ns(), Transport::tcp, ipv4());
    ASSERT_EQ(connect_to(client, cluster_ip()), 0);
    Fd backend;
    ASSERT_TRUE(wait_until([&] {
        backend = Fd(accept(listener.get(), nullptr, nullptr));
        return static_cast<bool>(backend);
    }));
    lab_->erase_paths();
    ASSERT_EQ(send_text(backend, "hello"), 0);
    EXPECT_EQ(receive(client).text, "hello");
    EXPECT_EQ(lab_->count(b, REASON_SENT_DIRECT), 0U);
}

TEST_P(ClusterIp, HundredsOfFlowsCompleteWithRoomForFewPaths) {
    const int flows = slow() ? 40 : 200;
    const Pod a = add_pod({{"maxPaths", 64}});
    const Pod b = add_pod({{"maxPaths", 64}});
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    serve(b);
    std::vector<Fd> sockets;
    for (int i = 0; i < flows; ++i) {
        const Endpoint target = i % 2 == 0 ? cluster_ip() : Endpoint{addr(b), kBackendPort};
        // Ports of their own: the backend cannot tell two flows from one port apart.
        const auto port = static_cast<std::uint16_t>(20000 + i);
        sockets.push_back(open_socket(a.ns(), Transport::tcp, ipv4(), {addr(a), port}));
        ASSERT_EQ(connect_to(sockets.back(), target), 0) << "flow " << i;
        ASSERT_EQ(ask(a.ns(), Transport::udp, target), 0) << "flow " << i;
    }
    for (int round = 0; round < 2; ++round)
        for (const Fd &socket : sockets)
            ASSERT_EQ(transfer(socket, 3000), 0);
    EXPECT_LE(lab_->path_count(), 64U * 4) << "the memory is as small as it was asked to be";
}

INSTANTIATE_TEST_SUITE_P(All, ClusterIp,
                         testing::Combine(lab_parameters(), testing::Values(Rules::iptables, Rules::nftables)),
                         [](const auto &info) {
                             const auto rules = std::get<1>(info.param) == Rules::iptables ? "Iptables" : "Nftables";
                             return lab_parameter_text(std::get<0>(info.param)) + rules;
                         });

} // namespace
} // namespace podlane::test
