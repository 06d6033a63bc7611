// SPDX-License-Identifier: MIT
// Beside rules of iptables and of nftables, established connections of every kind take the fast path, and both ends
// see the addresses that they see without it.
#include "tests/netns/nat_cluster.hpp"

namespace podlane::test {
namespace {

std::vector<NatCase> confirmed_cases(const std::vector<std::string> &rules) {
    std::vector<NatCase> all;
    for (const std::string &written : rules)
        for (const bool ipv4 : {true, false}) {
            if (kernel_can_tcx())
                all.push_back({"on", written, ipv4, "tcx"});
            if (!kernel_can_tcx() || !slow())
                all.push_back({"on", written, ipv4, "clsact"});
            all.push_back({"off", written, ipv4});
        }
    return all;
}

class ConfirmedTest : public Nat {
  protected:
    static constexpr std::size_t kBytes = 1 << 20;
    static constexpr int kDatagrams = 20;

    struct Path {
        std::uint64_t fast = 0;
        std::uint64_t slow = 0;
    };

    [[nodiscard]] Json host_first(Json more = Json::object()) const {
        more["firstPacket"] = "host";
        return keys(more);
    }
    Pod add_pod(int node, const Json &more = Json::object()) { return cluster_.add_pod(node, host_first(more)); }

    // Packets of a pod, sent and received.
    [[nodiscard]] Path path_of(const Pod &pod) const {
        Path sum;
        for (const reason why :
             {REASON_SENT_DIRECT, REASON_RECEIVED_DIRECT, REASON_SENT_UPLINK, REASON_RECEIVED_UPLINK})
            sum.fast += cluster_.count(pod, why);
        for (const reason why : {REASON_HOST_UNCONFIRMED, REASON_HOST_PATH, REASON_HOST_NOT_LOCAL, REASON_HOST_SELF,
                                 REASON_HOST_FAST_PATH_OFF, REASON_RECEIVED_HOST})
            sum.slow += cluster_.count(pod, why);
        return sum;
    }
    static int exchange(const Fd &socket, int datagrams) {
        for (int i = 0; i < datagrams; ++i) {
            const std::string text = "datagram " + std::to_string(i) + std::string(static_cast<std::size_t>(i), '.');
            if (const int error = send_text(socket, text); error != 0)
                return error;
            const Received answer = receive(socket);
            if (answer.error != 0 || answer.text != text)
                return answer.error != 0 ? answer.error : EBADMSG;
        }
        return 0;
    }
    static int talk(const Fd &socket, Transport transport) {
        return transport == Transport::tcp ? transfer(socket, kBytes) : exchange(socket, kDatagrams);
    }
    // UDP is established when conntrack has seen both directions for 2 s.
    void establish(const Fd &socket, Transport transport, const Pod &pod) const {
        if (transport == Transport::tcp || !on()) {
            ASSERT_EQ(transport == Transport::tcp ? transfer(socket, 1000) : exchange(socket, 1), 0);
            return;
        }
        ASSERT_TRUE(wait_until([&] {
            const Path before = path_of(pod);
            const int error = exchange(socket, 1);
            EXPECT_EQ(error, 0);
            return error != 0 || path_of(pod).slow == before.slow;
        })) << "never confirmed";
    }
    // One connection, to `target`, whose packets are those of all the pods.
    void expect_confirmed(const net::Namespace &from, const Endpoint &target, const std::vector<Pod> &pods) const {
        for (const Transport transport : kTransports) {
            SCOPED_TRACE(to_string(transport));
            const Fd socket = open_socket(from, transport, ipv4());
            ASSERT_EQ(connect_to(socket, target), 0);
            ASSERT_NO_FATAL_FAILURE(establish(socket, transport, pods.front()));
            std::vector<Path> before;
            for (const Pod &pod : pods)
                before.push_back(path_of(pod));
            EXPECT_EQ(talk(socket, transport), 0);
            for (std::size_t i = 0; i < pods.size(); ++i)
                expect_path(before.at(i), path_of(pods.at(i)), "pod " + std::to_string(i));
        }
    }
    void expect_path(const Path &before, const Path &after, const std::string &whose) const {
        constexpr std::uint64_t kNoise = 2; // of the neighbour tables
        constexpr std::uint64_t kLeast = 20;
        EXPECT_LE((on() ? after.slow - before.slow : after.fast - before.fast), on() ? kNoise : 0) << whose;
        EXPECT_GE((on() ? after.fast - before.fast : after.slow - before.slow), kLeast) << whose;
    }
};

class ConfirmedService : public ConfirmedTest {};

TEST_P(ConfirmedService, ClusterIpToThisNodeAndToAnotherIsFastAndToThePodItselfIsNot) {
    const Pod caller = add_pod(1);
    for (const int node : {1, 2}) {
        SCOPED_TRACE("backend on node " + std::to_string(node));
        const Pod backend = add_pod(node);
        const EchoServer server(backend.ns(), ipv4(), kBackendPort);
        const KubeService service = serve(backend);
        expect_confirmed(caller.ns(), {service.cluster_ip, kPort}, {caller, backend});
        expect_confirmed(caller.ns(), {addr(backend), kBackendPort}, {caller, backend});
        EXPECT_EQ(callers(server), std::set{text(caller)});
    }
    SCOPED_TRACE("a pod that calls itself");
    const Pod pod = add_pod(1);
    const EchoServer server(pod.ns(), ipv4(), kBackendPort);
    const KubeService service = serve(pod);
    for (const Transport transport : kTransports) {
        const Fd socket = open_socket(pod.ns(), transport, ipv4());
        ASSERT_EQ(connect_to(socket, {service.cluster_ip, kPort}), 0);
        EXPECT_EQ(talk(socket, transport), 0) << to_string(transport);
    }
    EXPECT_EQ(path_of(pod).fast, 0U);
    EXPECT_FALSE(callers(server).contains(text(pod))) << "a hairpin is masqueraded";
}

TEST_P(ConfirmedService, NodePortFromOutsideIsFast) {
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

class ConfirmedHostPort : public ConfirmedTest {};

TEST_P(ConfirmedHostPort, IsFastFromOutsideAndFromAnotherNode) {
    const Json portmap = {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}};
    const Pod backend =
        cluster_.add_chain(1, {cluster_.config(1, host_first()), portmap}, port_mappings(8081, kBackendPort));
    const Pod elsewhere = add_pod(2);
    const EchoServer server(backend.ns(), ipv4(), kBackendPort);
    expect_confirmed(cluster_.outside().ns(), {node_addr(1), 8081}, {backend});
    expect_confirmed(elsewhere.ns(), {node_addr(1), 8081}, {backend});
    EXPECT_EQ(callers(server), (std::set{Cluster::outside_addr(ipv4()), text(elsewhere)}));
}

class ConfirmedOutside : public ConfirmedTest {
  protected:
    void translate_sources() const {
        const std::string own = to_string(node_addr(1));
        translate_pods_of_node1({"-o up0", "SNAT --to-source " + own}, {"oifname up0", "snat to " + own});
    }
};

TEST_P(ConfirmedOutside, TranslatesSourcesAndTheirRepliesOnTheFastPath) {
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
