// SPDX-License-Identifier: MIT
// Who comes from outside the cluster, or goes there, with the fast path on, kept to the node, and off.
#include "tests/netns/nat_cluster.hpp"

#include <netinet/in.h>

#include <cerrno>

namespace podlane::test {
namespace {

class NodePorts : public Nat {};

TEST_P(NodePorts, NodePortForTheCluster) {
    const Pod on_node = add_pod(1);
    const Pod elsewhere = add_pod(2);
    for (const Pod &backend : {on_node, elsewhere}) {
        const EchoServer server(backend.ns(), ipv4(), kBackendPort);
        open_node_port(1, serve(backend), false);
        expect_service(cluster_.outside().ns(), {node_addr(1), kNodePort});
        EXPECT_FALSE(callers(server).contains(Cluster::outside_addr(ipv4()))) << "masqueraded";
        EXPECT_EQ(callers(server).size(), 1U);
    }
}

TEST_P(NodePorts, NodePortForTheNodeKeepsTheCaller) {
    const Pod b = add_pod(1);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    open_node_port(1, serve(b), true);
    expect_service(cluster_.outside().ns(), {node_addr(1), kNodePort});
    EXPECT_EQ(callers(server), std::set{Cluster::outside_addr(ipv4())});
}

// Of their own node and of another, with either policy; the backend by its own node's port, too.
TEST_P(NodePorts, PodsAreServed) {
    const Pod b = add_pod(1);
    const Pod same_node = add_pod(1);
    const Pod other_node = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    for (const bool local : {false, true}) {
        SCOPED_TRACE(local ? "local" : "cluster");
        open_node_port(1, serve(b), local);
        for (const Pod &caller : {same_node, other_node, b})
            expect_service(caller.ns(), {node_addr(1), kNodePort});
    }
}

// The node that is asked is neither the caller's nor the backend's, or one of them.
TEST_P(NodePorts, PodsAreServedByABackendElsewhere) {
    const Pod b = add_pod(2);
    const Pod on_its_way = add_pod(1);
    const Pod elsewhere = add_pod(3);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    open_node_port(1, serve(b), false);
    for (const Pod &caller : {on_its_way, elsewhere, b})
        expect_service(caller.ns(), {node_addr(1), kNodePort});
    EXPECT_EQ(callers(server), std::set{to_string(node_addr(1))}) << "masqueraded";
}

INSTANTIATE_TEST_SUITE_P(Rules, NodePorts, testing::ValuesIn(nat_cases({"iptables", "nftables"})), nat_case_name);

// What does not depend on who writes the rules of services.
class Outside : public Nat {};

TEST_P(Outside, HostPort) {
    const Json portmap = {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}};
    const Json mappings = {{"portMappings",
                            {{{"hostPort", 8081}, {"containerPort", kBackendPort}, {"protocol", "tcp"}},
                             {{"hostPort", 8081}, {"containerPort", kBackendPort}, {"protocol", "udp"}}}}};
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
        if (GetParam().rules == "iptables")
            rule(1, "-t nat -A POSTROUTING -s " + Cluster::pods(1, ipv4()) + " ! -d " + all_pods() + " -j MASQUERADE");
        const std::string ip = ipv4() ? "ip" : "ip6";
        if (GetParam().rules == "nftables")
            cluster_.node(1).run("nft -f -", "table " + ip +
                                                 " out { chain out { type nat hook postrouting priority 100; " + ip +
                                                 " saddr " + Cluster::pods(1, ipv4()) + " " + ip +
                                                 " daddr != " + all_pods() + " masquerade; }\n}\n");
    }
};

TEST_P(Masquerade, PodsSpeakWithTheNodesAddress) {
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
}

// The outside is a router here, and tells the node's address that the way on is narrow.
TEST_P(Masquerade, PathMtuIsLearnt) {
    const Pod a = add_pod(1, masquerading());
    write_rules();
    const std::string beyond = ipv4() ? "203.0.113." : "2001:db8:cafe::";
    for (const std::string command :
         {"sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
          "ip link add narrow mtu 1300 type veth peer name narrow1 mtu 1300", "ip link set narrow up"})
        (void)cluster_.outside().run(command);
    (void)cluster_.outside().run("ip addr add " + beyond + "1" + (ipv4() ? "/24" : "/64 nodad") + " dev narrow");
    const Fd datagrams = open_unfragmented(a.ns());
    ASSERT_EQ(connect_to(datagrams, {ip(beyond + "9"), kPort}), 0);
    EXPECT_TRUE(wait_until([&] { return send_text(datagrams, std::string(1400, 'x')) == EMSGSIZE; }));
}

INSTANTIATE_TEST_SUITE_P(Rules, Outside, testing::ValuesIn(nat_cases({"portmap"})), nat_case_name);
INSTANTIATE_TEST_SUITE_P(Rules, Masquerade, testing::ValuesIn(nat_cases({"iptables", "nftables", "ipMasq"})),
                         nat_case_name);

} // namespace
} // namespace podlane::test
