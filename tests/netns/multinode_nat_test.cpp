// What the host translates works across nodes, the same with the fast path on, kept to the node, and off.
#include "tests/harness/cluster.hpp"
#include "tests/netns/node_ports.hpp"

#include <gtest/gtest.h>

#include <netinet/in.h>

#include <cerrno>
#include <ostream>
#include <set>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 80;
constexpr std::uint16_t kBackendPort = 8080;
constexpr std::uint16_t kNodePort = 30080;
constexpr std::array kTransports = {Transport::tcp, Transport::udp};

struct Case {
    std::string fast_path;
    std::string rules;
    bool ipv4 = true;
};
std::string text_of(const Case &of) { return of.fast_path + "_" + of.rules + (of.ipv4 ? "_v4" : "_v6"); }
void PrintTo(const Case &of, std::ostream *out) { *out << text_of(of); }

std::vector<Case> cases(const std::vector<std::string> &rules) {
    std::vector<Case> all;
    for (const std::string fast_path : {"on", "local", "off"})
        for (const std::string &written : rules)
            for (const bool ipv4 : {true, false})
                all.push_back({fast_path, written, ipv4});
    return all;
}
std::string case_name(const testing::TestParamInfo<Case> &info) { return text_of(info.param); }

std::set<std::string> callers(const EchoServer &server) {
    std::set<std::string> all;
    for (const ip_addr &caller : server.callers())
        all.insert(to_string(caller));
    return all;
}

class Nat : public testing::TestWithParam<Case> {
  protected:
    void SetUp() override { cluster_.route_by_hosts(); }

    [[nodiscard]] bool ipv4() const { return GetParam().ipv4; }
    [[nodiscard]] bool on() const { return GetParam().fast_path == "on"; }
    [[nodiscard]] std::string iptables() const { return ipv4() ? "iptables" : "ip6tables"; }
    [[nodiscard]] ip_addr addr(const Member &pod) const { return pod.addr(ipv4()); }
    [[nodiscard]] std::string text(const Member &pod) const { return to_string(addr(pod)); }
    [[nodiscard]] ip_addr node_addr(int node) const { return to_addr(Cluster::node_addr(node, ipv4())); }
    [[nodiscard]] std::string all_pods() const { return ipv4() ? Cluster::kPods4 : Cluster::kPods6; }
    [[nodiscard]] Json keys(Json more = Json::object()) const {
        more["fastPath"] = GetParam().fast_path;
        return more;
    }
    Member add_pod(int node, const Json &more = Json::object()) { return cluster_.add_pod(node, keys(more)); }
    void rule(int node, const std::string &words) const { cluster_.node(node).run(iptables() + " -w " + words); }

    // On every node, in place of the service before; one backend, as kube-proxy writes it.
    Service serve(const Member &backend, std::uint16_t backend_port = kBackendPort) {
        const Service service{to_addr(ipv4() ? "198.19.0.1" : "2001:db8:5e::1"), kPort, addr(backend), backend_port,
                              all_pods()};
        const std::string table = ipv4() ? "table ip kube-proxy\n" : "table ip6 kube-proxy\n";
        const std::string none = table + "delete " + table;
        for (int node = 1; node <= Cluster::kNodes; ++node) {
            if (GetParam().rules == "iptables")
                cluster_.node(node).run(iptables() + "-restore -w", iptables_rules(service));
            else
                cluster_.node(node).run("nft -f -", none + nftables_rules(service));
        }
        return service;
    }
    void open_node_port(int node, const Service &service, bool local) const {
        const NodePort node_port{kNodePort, local};
        if (GetParam().rules == "iptables")
            cluster_.node(node).run(iptables() + "-restore -w --noflush", iptables_rules(service, node_port));
        else
            cluster_.node(node).run("nft -f -", nftables_rules(service, node_port));
    }
    // Many connections and datagrams, each answered.
    void expect_service(const net::Namespace &from, const Endpoint &target) const {
        for (const Transport transport : kTransports)
            for (int i = 0; i < 5; ++i)
                EXPECT_EQ(ask(from, transport, target), 0) << to_string(transport) << " " << i;
    }

    Cluster cluster_;
};

class Services : public Nat {};

TEST_P(Services, BackendOnTheSameNode) {
    const Member a = add_pod(1);
    const Member b = add_pod(1);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const Service service = serve(b);
    expect_service(a.ns(), {service.cluster_ip, kPort});
    EXPECT_EQ(callers(server), std::set{text(a)});
}

TEST_P(Services, BackendOnAnotherNode) {
    const Member a = add_pod(1);
    const Member b = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const Service service = serve(b);
    for (int round = 0; round < 2; ++round) { // direct flows between, and after, translated ones
        expect_service(a.ns(), {service.cluster_ip, kPort});
        expect_service(a.ns(), {addr(b), kBackendPort});
    }
    EXPECT_EQ(callers(server), std::set{text(a)});
    if (on()) {
        EXPECT_GE(cluster_.count(a, REASON_SENT_UPLINK), 50U) << "direct flows take the fast path";
        EXPECT_GE(cluster_.count(a, REASON_RECEIVED_HOST), 50U) << "answers of translated flows do not";
    } else {
        EXPECT_EQ(cluster_.count(a, REASON_SENT_UPLINK), 0U);
    }
}

TEST_P(Services, CallerIsTheBackend) {
    const Member a = add_pod(1);
    const EchoServer server(a.ns(), ipv4(), kBackendPort);
    expect_service(a.ns(), {serve(a).cluster_ip, kPort});
    EXPECT_FALSE(callers(server).contains(text(a))) << "a hairpin is masqueraded";
}

TEST_P(Services, NodeAsksARemoteBackend) {
    const Member b = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    expect_service(cluster_.node(1).ns(), {serve(b).cluster_ip, kPort});
    EXPECT_EQ(callers(server), std::set{to_string(node_addr(1))}) << "masqueraded, as kube-proxy's marks demand";
}

TEST_P(Services, NodePortForTheCluster) {
    const Member on_node = add_pod(1);
    const Member elsewhere = add_pod(2);
    for (const Member &backend : {on_node, elsewhere}) {
        const EchoServer server(backend.ns(), ipv4(), kBackendPort);
        open_node_port(1, serve(backend), false);
        expect_service(cluster_.outside().ns(), {node_addr(1), kNodePort});
        EXPECT_FALSE(callers(server).contains(Cluster::outside_addr(ipv4()))) << "masqueraded";
        EXPECT_EQ(callers(server).size(), 1U);
    }
}

TEST_P(Services, NodePortForTheNodeKeepsTheCaller) {
    const Member b = add_pod(1);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    open_node_port(1, serve(b), true);
    expect_service(cluster_.outside().ns(), {node_addr(1), kNodePort});
    EXPECT_EQ(callers(server), std::set{Cluster::outside_addr(ipv4())});
}

TEST_P(Services, PodsReachNodePortsOfOtherNodes) {
    const Member a = add_pod(2);
    const Member b = add_pod(1);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    open_node_port(1, serve(b), true);
    expect_service(a.ns(), {node_addr(1), kNodePort});
}

// As resolvers do: a few sockets, each asking again and again, of a backend here and of one elsewhere.
TEST_P(Services, NameQueriesAreAnswered) {
    const Member a = add_pod(1);
    for (const int node : {1, 2}) {
        const Member b = add_pod(node);
        const EchoServer server(b.ns(), ipv4(), 53);
        const Service service = serve(b, 53);
        for (int socket = 0; socket < 3; ++socket) {
            const Fd resolver = open_socket(a.ns(), Transport::udp, ipv4());
            ASSERT_EQ(connect_to(resolver, {service.cluster_ip, kPort}), 0);
            for (int i = 0; i < 10; ++i) {
                ASSERT_EQ(send_text(resolver, "A? " + std::to_string(i)), 0);
                const Received answer = receive(resolver);
                ASSERT_EQ(answer.text, "A? " + std::to_string(i)) << "node " << node << ", error " << answer.error;
            }
        }
    }
}

// The narrow part is between the nodes: one router tells the caller, who knows the service's address only.
TEST_P(Services, PathMtuOfATranslatedFlowIsLearnt) {
    const Member a = add_pod(1);
    const Member b = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const Service service = serve(b);
    cluster_.node(1).run("ip route replace " + Cluster::pods(2, ipv4()) + " via " + Cluster::node_addr(2, ipv4()) +
                         " mtu lock 1300");
    const Fd datagrams = open_socket(a.ns(), Transport::udp, ipv4());
    set_option(datagrams, ipv4() ? IPPROTO_IP : IPPROTO_IPV6, ipv4() ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
               ipv4() ? IP_PMTUDISC_DO : IPV6_PMTUDISC_DO);
    ASSERT_EQ(connect_to(datagrams, {service.cluster_ip, kPort}), 0);
    EXPECT_TRUE(wait_until([&] { return send_text(datagrams, std::string(1400, 'x')) == EMSGSIZE; }));
    const Fd socket = open_socket(a.ns(), Transport::tcp, ipv4());
    ASSERT_EQ(connect_to(socket, {service.cluster_ip, kPort}), 0);
    EXPECT_EQ(transfer(socket, 300000), 0);
}

TEST_P(Services, TransfersOutliveALossOfAllPaths) {
    const Member a = add_pod(1);
    const Member b = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const Service service = serve(b);
    for (const Endpoint &target : {Endpoint{service.cluster_ip, kPort}, Endpoint{addr(b), kBackendPort}}) {
        const Fd socket = open_socket(a.ns(), Transport::tcp, ipv4());
        ASSERT_EQ(connect_to(socket, target), 0);
        EXPECT_EQ(transfer(socket, std::size_t{8} << 20U, [&] { cluster_.erase_paths(); }), 0) << to_string(target);
        EXPECT_EQ(transfer(socket, 10000), 0) << "afterwards, " << to_string(target);
    }
}

TEST_P(Services, ManyFlowsCompleteWithRoomForFewPaths) {
    const Member a = add_pod(1, {{"maxPaths", 64}});
    const Member b = add_pod(2, {{"maxPaths", 64}});
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const Service service = serve(b);
    std::vector<Fd> sockets;
    for (int i = 0; i < 150; ++i) {
        const Endpoint target = i % 2 == 0 ? Endpoint{service.cluster_ip, kPort} : Endpoint{addr(b), kBackendPort};
        sockets.push_back(
            open_socket(a.ns(), Transport::tcp, ipv4(), {addr(a), static_cast<std::uint16_t>(20000 + i)}));
        ASSERT_EQ(connect_to(sockets.back(), target), 0) << "flow " << i;
        ASSERT_EQ(ask(a.ns(), Transport::udp, target), 0) << "flow " << i;
    }
    for (const Fd &socket : sockets)
        ASSERT_EQ(transfer(socket, 2000), 0);
}

INSTANTIATE_TEST_SUITE_P(Rules, Services, testing::ValuesIn(cases({"iptables", "nftables"})), case_name);

// What does not depend on who writes the rules of services.
class Outside : public Nat {};

TEST_P(Outside, HostPort) {
    const Json portmap = {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}};
    const Json mappings = {{"portMappings",
                            {{{"hostPort", 8081}, {"containerPort", kBackendPort}, {"protocol", "tcp"}},
                             {{"hostPort", 8081}, {"containerPort", kBackendPort}, {"protocol", "udp"}}}}};
    const Member b = cluster_.add_chain(1, {cluster_.config(1, keys()), portmap}, mappings);
    const Member same_node = add_pod(1);
    const Member other_node = add_pod(2);
    const EchoServer server(b.ns(), ipv4(), kBackendPort);
    const Endpoint target{node_addr(1), 8081};
    expect_service(cluster_.outside().ns(), target);
    EXPECT_EQ(callers(server), std::set{Cluster::outside_addr(ipv4())});
    expect_service(other_node.ns(), target);
    expect_service(same_node.ns(), target);
    expect_service(b.ns(), target);
}

class Masquerade : public Nat {};

TEST_P(Masquerade, PodsSpeakWithTheNodesAddress) {
    const bool ours = GetParam().rules == "ipMasq";
    const Member a = add_pod(1, ours ? Json{{"ipMasq", true}} : Json::object());
    const Member b = add_pod(2, ours ? Json{{"ipMasq", true}} : Json::object());
    if (GetParam().rules == "iptables")
        rule(1, "-t nat -A POSTROUTING -s " + Cluster::pods(1, ipv4()) + " ! -d " + all_pods() + " -j MASQUERADE");
    if (GetParam().rules == "nftables") {
        const std::string ip = ipv4() ? "ip" : "ip6";
        cluster_.node(1).run("nft -f -", "table " + ip + " out { chain out { type nat hook postrouting priority 100; " +
                                             ip + " saddr " + Cluster::pods(1, ipv4()) + " " + ip +
                                             " daddr != " + all_pods() + " masquerade; }\n}\n");
    }
    const EchoServer outside(cluster_.outside().ns(), ipv4(), kPort);
    const EchoServer inside(b.ns(), ipv4(), kPort);
    expect_service(a.ns(), {to_addr(Cluster::outside_addr(ipv4())), kPort});
    EXPECT_TRUE(ping(a.ns(), Cluster::outside_addr(ipv4()), 3));
    EXPECT_EQ(callers(outside), std::set{to_string(node_addr(1))});
    expect_service(a.ns(), {addr(b), kPort});
    EXPECT_EQ(callers(inside), std::set{text(a)}) << "the cluster sees the pod's own address";
}

INSTANTIATE_TEST_SUITE_P(Rules, Outside, testing::ValuesIn(cases({"portmap"})), case_name);
INSTANTIATE_TEST_SUITE_P(Rules, Masquerade, testing::ValuesIn(cases({"iptables", "nftables", "ipMasq"})), case_name);

} // namespace
} // namespace podlane::test
