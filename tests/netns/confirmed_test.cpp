// SPDX-License-Identifier: MIT
// Beside rules of iptables and of nftables, established connections of every kind take the fast path, and both ends
// see the addresses that they see without it.
#include "tests/netns/confirmed.hpp"

namespace podlane::test {
namespace {

class ConfirmedService : public ConfirmedTest {};

TEST_P(ConfirmedService, ClusterIpToThisNodeAndToAnother) {
    const Pod caller = add_pod(1);
    for (const int node : {1, 2}) {
        SCOPED_TRACE("backend on node " + std::to_string(node));
        const Pod backend = add_pod(node);
        const EchoServer server(backend.ns(), ipv4(), kBackendPort);
        const Service service = serve(backend);
        expect_confirmed(caller.ns(), {service.cluster_ip, kPort}, {caller, backend});
        expect_confirmed(caller.ns(), {addr(backend), kBackendPort}, {caller, backend});
        EXPECT_EQ(callers(server), std::set{text(caller)});
    }
}

TEST_P(ConfirmedService, NodePortFromOutside) {
    const Pod backend = add_pod(1);
    const EchoServer server(backend.ns(), ipv4(), kBackendPort);
    for (const bool local : {true, false}) {
        SCOPED_TRACE(local ? "DNAT" : "DNAT and masquerade");
        open_node_port(1, serve(backend), local);
        expect_confirmed(cluster_.outside().ns(), {node_addr(1), kNodePort}, {backend});
    }
    EXPECT_EQ(callers(server).size(), 2U);
    EXPECT_TRUE(callers(server).contains(Cluster::outside_addr(ipv4())));
}

TEST_P(ConfirmedService, APodThatCallsItselfStaysOnTheSlowPath) {
    const Pod pod = add_pod(1);
    const EchoServer server(pod.ns(), ipv4(), kBackendPort);
    const Service service = serve(pod);
    for (const Transport transport : kTransports) {
        const Fd socket = open_socket(pod.ns(), transport, ipv4());
        ASSERT_EQ(connect_to(socket, {service.cluster_ip, kPort}), 0);
        EXPECT_EQ(talk(socket, transport), 0) << to_string(transport);
    }
    EXPECT_EQ(path_of(pod).fast, 0U);
    EXPECT_FALSE(callers(server).contains(text(pod))) << "a hairpin is masqueraded";
}

class ConfirmedHostPort : public ConfirmedTest {};

TEST_P(ConfirmedHostPort, FromOutsideAndFromAnotherNode) {
    const Json portmap = {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}};
    Json mappings = Json::array();
    for (const char *protocol : {"tcp", "udp"})
        mappings.push_back({{"hostPort", 8081}, {"containerPort", kBackendPort}, {"protocol", protocol}});
    const Pod backend =
        cluster_.add_chain(1, {cluster_.config(1, host_first()), portmap}, {{"portMappings", mappings}});
    const Pod elsewhere = add_pod(2);
    const EchoServer server(backend.ns(), ipv4(), kBackendPort);
    expect_confirmed(cluster_.outside().ns(), {node_addr(1), 8081}, {backend});
    expect_confirmed(elsewhere.ns(), {node_addr(1), 8081}, {backend});
    EXPECT_EQ(callers(server), (std::set{Cluster::outside_addr(ipv4()), text(elsewhere)}));
}

class ConfirmedOutside : public ConfirmedTest {
  protected:
    void translate_sources() const {
        if (GetParam().rules == "iptables")
            rule(1, "-t nat -A POSTROUTING -s " + Cluster::pods(1, ipv4()) + " -o up0 -j SNAT --to-source " +
                        to_string(node_addr(1)));
        const std::string ip = ipv4() ? "ip" : "ip6";
        if (GetParam().rules == "nftables")
            cluster_.node(1).run("nft -f -", "table " + ip +
                                                 " out { chain out { type nat hook postrouting priority 100; " + ip +
                                                 " saddr " + Cluster::pods(1, ipv4()) + " oifname up0 snat to " +
                                                 to_string(node_addr(1)) + "; }\n}\n");
    }
};

TEST_P(ConfirmedOutside, TranslatedSourcesAndTheirReplies) {
    const Pod pod = add_pod(1, GetParam().rules == "ipMasq" ? Json{{"ipMasq", true}} : Json::object());
    translate_sources();
    const EchoServer server(cluster_.outside().ns(), ipv4(), kPort);
    expect_confirmed(pod.ns(), {ip(Cluster::outside_addr(ipv4())), kPort}, {pod});
    EXPECT_EQ(callers(server), std::set{to_string(node_addr(1))});
}

INSTANTIATE_TEST_SUITE_P(Netns, ConfirmedService, testing::ValuesIn(confirmed_cases({"iptables", "nftables"})),
                         nat_case_name);
INSTANTIATE_TEST_SUITE_P(Netns, ConfirmedHostPort, testing::ValuesIn(confirmed_cases({"portmap"})), nat_case_name);
INSTANTIATE_TEST_SUITE_P(Netns, ConfirmedOutside,
                         testing::ValuesIn(confirmed_cases({"ipMasq", "iptables", "nftables"})), nat_case_name);

} // namespace
} // namespace podlane::test
