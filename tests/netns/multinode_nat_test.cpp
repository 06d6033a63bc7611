// SPDX-License-Identifier: MIT
// Translated connections work across nodes, from outside the cluster and to the outside, the same
// with the fast path on, kept to the node, and off.
#include "tests/netns/nat_cluster.hpp"

namespace podlane::test {
namespace {

class Services : public Nat {};

TEST_P(Services, BackendsHereElsewhereAndInTheCallerAnswer) {
    const Pod a = add_pod(1);
    const Pod same_node = add_pod(1);
    const Pod other_node = add_pod(2);
    {
        SCOPED_TRACE("a backend on the same node");
        const EchoServer server(same_node.ns(), ipv4(), kBackendPort);
        expect_service(a.ns(), {serve(same_node).cluster_ip, kPort});
        EXPECT_EQ(callers(server), std::set{text(a)});
    }
    {
        SCOPED_TRACE("a backend on another node");
        const EchoServer server(other_node.ns(), ipv4(), kBackendPort);
        const Endpoint service{serve(other_node).cluster_ip, kPort};
        for (int round = 0; round < 2; ++round) { // direct flows between, and after, translated ones
            expect_service(a.ns(), service);
            expect_service(a.ns(), {addr(other_node), kBackendPort});
        }
        EXPECT_EQ(callers(server), std::set{text(a)});
        if (on()) {
            EXPECT_GE(cluster_.count(a, REASON_SENT_UPLINK), 50U) << "direct flows take the fast path";
            EXPECT_GT(cluster_.count(a, REASON_RECEIVED_HOST), 0U) << "first packets of translated flows do not";
        } else {
            EXPECT_EQ(cluster_.count(a, REASON_SENT_UPLINK), 0U);
        }
        expect_service(cluster_.node(1).ns(), service);
        EXPECT_EQ(callers(server), (std::set{text(a), to_string(node_addr(1))}))
            << "the node is masqueraded, as kube-proxy's marks demand";
    }
    SCOPED_TRACE("a backend that calls itself");
    const EchoServer server(a.ns(), ipv4(), kBackendPort);
    expect_service(a.ns(), {serve(a).cluster_ip, kPort});
    EXPECT_FALSE(callers(server).contains(text(a))) << "a hairpin is masqueraded";
}

// As resolvers do: a few sockets, each asking again and again, of a backend here, of one elsewhere, and of another node
// itself (a pod with hostNetwork), whose reply only its flow distinguishes from a request.
TEST_P(Services, NameQueriesAreAnswered) {
    const Pod a = add_pod(1);
    const Pod same_node = add_pod(1);
    const Pod other_node = add_pod(2);
    const EchoServer local(same_node.ns(), ipv4(), 53);
    const EchoServer remote(other_node.ns(), ipv4(), 53);
    const EchoServer node(cluster_.node(2).ns(), ipv4(), 53);
    for (const ip_addr &backend : {addr(same_node), addr(other_node), node_addr(2)}) {
        const KubeService service = serve(backend, 53);
        for (int socket = 0; socket < 3; ++socket) {
            const Fd resolver = connected(a.ns(), Transport::udp, {service.cluster_ip, kPort});
            for (int i = 0; i < 10; ++i) {
                ASSERT_EQ(send_text(resolver, "A? " + std::to_string(i)), 0);
                const Received answer = receive(resolver);
                ASSERT_EQ(answer.text, "A? " + std::to_string(i)) << to_string(backend) << ", error " << answer.error;
            }
        }
    }
}

// A router reports to the caller, who knows the service's address only: the caller's own node, or the one it sends to.
TEST_P(Services, PathMtuOfATranslatedFlowIsLearnt) {
    const Pod a = add_pod(1);
    const Pod narrow_here = add_pod(1, {{"mtu", 1300}});
    const Pod narrow_there = add_pod(2, {{"mtu", 1300}});
    const Pod b = add_pod(3);
    cluster_.node(1).run("ip route replace " + Cluster::pods(3, ipv4()) + " via " + Cluster::node_addr(3, ipv4()) +
                         " mtu lock 1300");
    for (const Pod &backend : {b, narrow_there, narrow_here}) {
        SCOPED_TRACE("backend on node " + std::to_string(backend.node));
        const EchoServer server(backend.ns(), ipv4(), kBackendPort);
        const KubeService service = serve(backend);
        const Fd datagrams = open_unfragmented(a.ns(), ipv4());
        ASSERT_EQ(connect_to(datagrams, {service.cluster_ip, kPort}), 0);
        EXPECT_TRUE(wait_until([&] { return send_text(datagrams, std::string(1400, 'x')) == EMSGSIZE; }));
        const Fd socket = connected(a.ns(), Transport::tcp, {service.cluster_ip, kPort});
        EXPECT_EQ(transfer(socket, 300000), 0);
        a.container->run("ip route flush cache");
        a.container->run("ip -6 route flush cache");
    }
}

TEST_P(Services, TransfersOutliveALossOfAllPaths) {
    const Pod a = add_pod(1);
    const Pod b = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const KubeService service = serve(b);
    for (const Endpoint &target : {Endpoint{service.cluster_ip, kPort}, Endpoint{addr(b), kBackendPort}}) {
        const Fd socket = connected(a.ns(), Transport::tcp, target);
        EXPECT_EQ(transfer(socket, std::size_t{8} << 20U, [&] { cluster_.erase_paths(); }), 0) << to_string(target);
        EXPECT_EQ(transfer(socket, 10000), 0) << "afterwards, " << to_string(target);
    }
}

// The pins are removed and the next ADD loads everything again, to change settings that count at loading only: pods
// from before keep their programs, and the uplink gets new ones, which know nothing of them.
TEST_P(Services, FlowsOutliveNewPrograms) {
    const Pod a = add_pod(1);
    const Pod b = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const KubeService service = serve(b);
    const auto load_again = [&] {
        for (const int node : {1, 2}) {
            cluster_.node(node).run("rm -r " + cluster_.node(node).bpffs() + "/live");
            (void)add_pod(node);
        }
    };
    std::vector<Fd> sockets;
    for (const Endpoint &target : {Endpoint{service.cluster_ip, kPort}, Endpoint{addr(b), kBackendPort}})
        for (const Transport transport : kTransports) {
            sockets.push_back(connected(a.ns(), transport, target));
            ASSERT_EQ(send_text(sockets.back(), "before"), 0);
            ASSERT_EQ(receive(sockets.back()).text, "before");
        }
    EXPECT_EQ(transfer(sockets.front(), std::size_t{8} << 20U, load_again), 0);
    for (const Fd &socket : sockets) {
        EXPECT_EQ(send_text(socket, "after"), 0);
        EXPECT_EQ(receive(socket).text, "after");
    }
    expect_service(a.ns(), {service.cluster_ip, kPort});
}

TEST_P(Services, ManyFlowsCompleteWithRoomForFewPaths) {
    const Pod a = add_pod(1, {{"maxPaths", 64}});
    const Pod b = add_pod(2, {{"maxPaths", 64}});
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const KubeService service = serve(b);
    std::vector<Fd> sockets;
    for (int i = 0; i < 150; ++i) {
        const Endpoint target = i % 2 == 0 ? Endpoint{service.cluster_ip, kPort} : Endpoint{addr(b), kBackendPort};
        sockets.push_back(connected(a.ns(), Transport::tcp, target, {addr(a), static_cast<std::uint16_t>(20000 + i)}));
        ASSERT_EQ(ask(a.ns(), Transport::udp, target), 0) << "flow " << i;
    }
    for (const Fd &socket : sockets)
        ASSERT_EQ(transfer(socket, 2000), 0);
}

INSTANTIATE_TEST_SUITE_P(Rules, Services, testing::ValuesIn(nat_cases({"iptables", "nftables"})), nat_case_name);

class NodePorts : public Nat {};

TEST_P(NodePorts, TheOutsideIsServedMasqueradedUnlessTheBackendIsOnTheNodeAlone) {
    const Pod on_node = add_pod(1);
    const Pod elsewhere = add_pod(2);
    for (const auto &[backend, local] : {std::pair(on_node, false), {elsewhere, false}, {on_node, true}}) {
        SCOPED_TRACE("node " + std::to_string(backend.node) + (local ? ", policy local" : ", policy cluster"));
        const EchoServer server(backend.ns(), ipv4(), kBackendPort);
        open_node_port(1, serve(backend), local);
        expect_service(cluster_.outside().ns(), {node_addr(1), kNodePort});
        EXPECT_EQ(callers(server).contains(Cluster::outside_addr(ipv4())), local);
        EXPECT_EQ(callers(server).size(), 1U);
    }
}

// By either policy; the backend by its own node's port, too; and by a backend elsewhere, if the node that is asked is
// neither the caller's nor the backend's, or one of them.
TEST_P(NodePorts, PodsOfEveryNodeAreServed) {
    const Pod on_node = add_pod(1);
    const Pod same_node = add_pod(1);
    const Pod elsewhere = add_pod(2);
    const Pod third = add_pod(3);
    for (const auto &[backend, local] : {std::pair(on_node, false), {on_node, true}, {elsewhere, false}}) {
        SCOPED_TRACE("node " + std::to_string(backend.node) + (local ? ", policy local" : ", policy cluster"));
        const EchoServer server(backend.ns(), ipv4(), kBackendPort);
        open_node_port(1, serve(backend), local);
        for (const Pod &caller : {same_node, elsewhere, third, backend}) {
            SCOPED_TRACE("a pod of node " + std::to_string(caller.node));
            expect_service(caller.ns(), {node_addr(1), kNodePort});
        }
        if (backend.node != 1) {
            EXPECT_EQ(callers(server), std::set{to_string(node_addr(1))}) << "masqueraded";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Rules, NodePorts, testing::ValuesIn(nat_cases({"iptables", "nftables"})), nat_case_name);

// Cases that do not depend on who writes the rules of services.
class Outside : public Nat {};

TEST_P(Outside, IsServedAHostPort) {
    const Json portmap = {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}};
    const Json mappings = port_mappings(8081, kBackendPort);
    const Pod b = cluster_.add_chain(1, {cluster_.config(1, keys()), portmap}, mappings);
    const Pod same_node = add_pod(1);
    const Pod other_node = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const Endpoint target{node_addr(1), 8081};
    expect_service(cluster_.outside().ns(), target);
    EXPECT_EQ(callers(server), std::set{Cluster::outside_addr(ipv4())});
    expect_service(other_node.ns(), target);
    expect_service(same_node.ns(), target);
    expect_service(b.ns(), target);
}

class Masquerade : public Nat {
  protected:
    [[nodiscard]] static Json masquerading() {
        return GetParam().rules == "ipMasq" ? Json{{"ipMasq", true}} : Json::object();
    }
    void write_rules() const {
        translate_pods_of_node1({"! -d " + all_pods(), "MASQUERADE"},
                                {(ipv4() ? "ip daddr != " : "ip6 daddr != ") + all_pods(), "masquerade"});
    }
};

TEST_P(Masquerade, PodsSpeakWithTheNodesAddressAndLearnThePathsMtu) {
    const Pod a = add_pod(1, masquerading());
    const Pod b = add_pod(2, masquerading());
    write_rules();
    const EchoServer outside(cluster_.outside().ns(), ipv4(), kPort);
    const EchoServer inside(b.ns(), ipv4(), kPort);
    expect_service(a.ns(), {ip(Cluster::outside_addr(ipv4())), kPort});
    EXPECT_TRUE(ping(a.ns(), Cluster::outside_addr(ipv4()), 3));
    EXPECT_EQ(callers(outside), std::set{to_string(node_addr(1))});
    expect_service(a.ns(), {addr(b), kPort});
    EXPECT_EQ(callers(inside), std::set{text(a)}) << "the cluster sees the pod's own address";

    // The outside becomes a router, and reports a small MTU to the node's address.
    const std::string beyond = ipv4() ? "203.0.113." : "2001:db8:cafe::";
    for (const std::string command :
         {"sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
          "ip link add narrow mtu 1300 type veth peer name narrow1 mtu 1300", "ip link set narrow up"})
        (void)cluster_.outside().run(command);
    (void)cluster_.outside().run("ip addr add " + beyond + "1" + (ipv4() ? "/24" : "/64 nodad") + " dev narrow");
    const Fd datagrams = open_unfragmented(a.ns(), ipv4());
    ASSERT_EQ(connect_to(datagrams, {ip(beyond + "9"), kPort}), 0);
    EXPECT_TRUE(wait_until([&] { return send_text(datagrams, std::string(1400, 'x')) == EMSGSIZE; }));
}

INSTANTIATE_TEST_SUITE_P(Rules, Outside, testing::ValuesIn(nat_cases({"portmap"})), nat_case_name);
class NoMasquerade : public Masquerade {};

TEST_P(NoMasquerade, DestinationsSeeThePodsAddress) {
    const std::string outside_text = Cluster::outside_addr(ipv4());
    Json keys = masquerading();
    keys["noMasquerade"] = {ipv4() ? outside_text + "/32" : outside_text + "/128", "192.0.2.0/24"};
    const Pod a = add_pod(1, keys);
    (void)cluster_.outside().run("ip route replace " + Cluster::pods(1, ipv4()) + " via " + to_string(node_addr(1)));
    const EchoServer outside(cluster_.outside().ns(), ipv4(), kPort);
    expect_service(a.ns(), {ip(outside_text), kPort});
    EXPECT_EQ(callers(outside), std::set{text(a)});

    // The newest ADD's list is the network's.
    const Pod later = add_pod(1, masquerading());
    const EchoServer again(cluster_.outside().ns(), ipv4(), kPort + 1);
    expect_service(a.ns(), {ip(outside_text), kPort + 1});
    EXPECT_EQ(callers(again), std::set{to_string(node_addr(1))});
}

INSTANTIATE_TEST_SUITE_P(Rules, Masquerade, testing::ValuesIn(nat_cases({"iptables", "nftables", "ipMasq"})),
                         nat_case_name);
INSTANTIATE_TEST_SUITE_P(Rules, NoMasquerade, testing::ValuesIn(nat_cases({"ipMasq"})), nat_case_name);

} // namespace
} // namespace podlane::test
