// SPDX-License-Identifier: MIT
// The routes to other nodes that docs/KUBERNETES.md lists and other tests do not set up, as their tools set them up:
// the largest packets of a pod arrive whole, and take the path that the document says.
#include "tests/harness/cluster.hpp"
#include "tests/harness/test.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr int kTunnelled = 3; // the node that kube-router's tunnels lead to

struct NodeRoute {
    const char *name;
    void (*set_up)(const Cluster &cluster);
    Json keys;
    std::uint32_t mtu;
    bool fast_to_tunnelled = true;
};
void PrintTo(const NodeRoute &route, std::ostream *stream) { *stream << route.name; }

void for_each_pair(const std::function<void(int from, int to)> &visit) {
    for (int from = 1; from <= Cluster::kNodes; ++from)
        for (int to = 1; to <= Cluster::kNodes; ++to)
            if (from != to)
                visit(from, to);
}

// The keys that flannel's plugin adds to the `delegate` of kube-flannel's manifest.
Json delegated(Json keys, unsigned mtu) {
    keys.update({{"mtu", mtu}, {"ipMasq", false}, {"hairpinMode", true}, {"isDefaultGateway", true}});
    keys["ipam"]["routes"] = {{{"dst", Cluster::kPods4}}, {{"dst", Cluster::kPods6}}};
    return keys;
}

void by_flannel_vxlan(const Cluster &cluster) { cluster.route_over_vxlan("flannel.1", "1 dstport 8472"); }
void by_flannel_host_gw(const Cluster &cluster) { cluster.route_by_hosts(); }

// The nodes' default gateway knows the ranges, as a script entered them, and sends no redirects.
void by_route_table(const Cluster &cluster) {
    const Container &router = cluster.outside();
    (void)router.run("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 "
                     "net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0");
    for (int node = 1; node <= Cluster::kNodes; ++node)
        for (const bool ipv4 : {true, false})
            (void)router.run("ip route add " + Cluster::pods(node, ipv4) + " via " + Cluster::node_addr(node, ipv4));
}

// On a link of their own nodes have routes, which its BGP server installs as protocol 17; to a node of another subnet
// they have tunnels, and a table for the pods' packets to the node itself.
void by_kube_router(const Cluster &cluster) {
    for_each_pair([&](int from, int to) {
        const Node &node = cluster.node(from);
        if (from != kTunnelled && to != kTunnelled) {
            for (const bool ipv4 : {true, false})
                node.run("ip route add " + Cluster::pods(to, ipv4) + " via " + Cluster::node_addr(to, ipv4) +
                         " dev up0 proto 17");
            return;
        }
        for (const bool ipv4 : {true, false}) {
            const std::string tunnel = (ipv4 ? "tun-" : "tun6-") + std::to_string(to);
            node.run("ip link add " + tunnel + " type " + (ipv4 ? "ipip" : "ip6tnl mode ip6ip6 encaplimit none") +
                     " local " + Cluster::node_addr(from, ipv4) + " remote " + Cluster::node_addr(to, ipv4) +
                     " dev up0");
            node.run("ip link set " + tunnel + " up");
            node.run("ip route add " + Cluster::pods(to, ipv4) + " dev " + tunnel + " proto 17");
        }
        node.run("ip route add " + Cluster::node_addr(to, true) + " dev tun-" + std::to_string(to) + " table 77");
        node.run("ip rule add from " + Cluster::pods(from, true) + " lookup 77");
    });
}

class NodeRoutes : public testing::TestWithParam<NodeRoute> {
  protected:
    void SetUp() override {
        if (GetParam().set_up == &by_kube_router &&
            run(cluster_.node(1).ns(), words("ip link add probe type ipip remote 203.0.113.9")).rc != 0)
            GTEST_SKIP() << "this kernel has no ipip";
        GetParam().set_up(cluster_);
    }
    void expect_whole(const Pod &from, const Pod &to, bool ipv4) {
        const std::string size = std::to_string(from.mtu - (ipv4 ? 28U : 48U));
        EXPECT_EQ(run(from.ns(), words("ping -n -q -c 1 -W 5 -M do -s " + size + " " + to_string(to.addr(ipv4)))).rc, 0)
            << "a packet as large as the MTU";
        const EchoServer server(to.ns(), ipv4, kPort);
        const Fd socket = connected(from.ns(), Transport::tcp, {to.addr(ipv4), kPort});
        EXPECT_EQ(transfer(socket, std::size_t{2} << 20U), 0);
        ASSERT_EQ(server.callers().size(), 1U);
        EXPECT_EQ(server.callers().front(), from.addr(ipv4)) << "not masqueraded";
    }

    Cluster cluster_;
};

TEST_P(NodeRoutes, CarryPacketsOfTheMtu) {
    constexpr std::uint64_t kMost = 20; // of a transfer on the fast path: its first and last packets
    const Pod from = cluster_.add_pod(1, GetParam().keys);
    EXPECT_EQ(from.mtu, GetParam().mtu);
    for (const int node : {2, kTunnelled}) {
        const Pod to = cluster_.add_pod(node, GetParam().keys);
        for (const bool ipv4 : {true, false}) {
            SCOPED_TRACE(std::to_string(node) + (ipv4 ? ", IPv4" : ", IPv6"));
            const std::uint64_t before = cluster_.count(from, REASON_SENT_UPLINK);
            expect_whole(from, to, ipv4);
            const std::uint64_t sent = cluster_.count(from, REASON_SENT_UPLINK) - before;
            if (node != kTunnelled || GetParam().fast_to_tunnelled)
                EXPECT_GT(sent, kMost) << cluster_.node(1).podlanectl("counter list").out;
            else
                EXPECT_LE(sent, kMost) << cluster_.node(1).podlanectl("counter list").out;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, NodeRoutes,
    testing::Values(NodeRoute{"FlannelVxlan", &by_flannel_vxlan, delegated({{"uplinks", {"flannel.1"}}}, 1450), 1450},
                    NodeRoute{"FlannelHostGw", &by_flannel_host_gw, delegated(Json::object(), 1500), 1500},
                    NodeRoute{"RouteTable", &by_route_table, {{"firstPacket", "host"}}, 1500},
                    NodeRoute{"KubeRouter", &by_kube_router, {{"mtu", 1460}}, 1460, false}),
    [](const testing::TestParamInfo<NodeRoute> &info) { return std::string(info.param.name); });

} // namespace
} // namespace podlane::test
