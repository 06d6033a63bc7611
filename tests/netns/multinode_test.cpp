// SPDX-License-Identifier: MIT
// Pods of three nodes reach each other past both host stacks, by the routes that BIRD, a script or VXLAN made.
// The documented example of FRR carries pods' traffic between nodes as BIRD's does.
#include "tests/harness/cluster.hpp"
#include "tests/harness/frr.hpp"
#include "tests/harness/test.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr std::array kFamilies = {true, false};
constexpr std::array kTransports = {Transport::tcp, Transport::udp};

// Packets of a pod that did not take the fast path, though they might have. The host stack resolves next hops.
std::uint64_t slow_sent(const Cluster &cluster, const Pod &pod) {
    std::uint64_t count = 0;
    for (const reason why : {REASON_HOST_NOT_LOCAL, REASON_HOST_PATH, REASON_HOST_UNKNOWN_PATH, REASON_HOST_NO_ROUTE,
                             REASON_HOST_NO_UPLINK, REASON_HOST_MTU, REASON_HOST_FAST_PATH_OFF})
        count += cluster.count(pod, why);
    return count;
}

enum class Routes { hosts, bird, vxlan };

class Multinode : public testing::TestWithParam<Routes> {
  protected:
    void SetUp() override {
        switch (GetParam()) {
        case Routes::hosts:
            return cluster_.route_by_hosts();
        case Routes::vxlan:
            uplink_ = "vx0";
            keys_ = {{"uplinks", {"vx0"}}, {"mtu", 1450}};
            return cluster_.route_over_vxlan();
        case Routes::bird:
            birds_.emplace(cluster_);
            ASSERT_TRUE(birds_->settle(1)) << birds_->ask(1, "show protocols");
        }
    }

    Cluster cluster_;
    std::optional<Birds> birds_;
    std::string uplink_ = "up0";
    Json keys_ = Json::object();
};

TEST_P(Multinode, PodsOfAllNodesReachEachOtherOnTheFastPath) {
    std::vector<Pod> pods;
    std::vector<std::unique_ptr<EchoServer>> servers;
    for (int node = 1; node <= Cluster::kNodes; ++node) {
        pods.push_back(cluster_.add_pod(node, keys_));
        for (const bool ipv4 : kFamilies)
            servers.push_back(std::make_unique<EchoServer>(pods.back().ns(), ipv4, ipv4 ? kPort : kPort + 1));
    }
    for (const Pod &from : pods)
        for (const Pod &to : pods)
            for (const bool ipv4 : kFamilies) {
                if (from.node == to.node)
                    continue;
                EXPECT_TRUE(ping(from.ns(), to_string(to.addr(ipv4)), 2)); // resolves the next hops
                for (const Transport transport : kTransports)
                    EXPECT_EQ(ask(from.ns(), transport,
                                  {to.addr(ipv4), static_cast<std::uint16_t>(ipv4 ? kPort : kPort + 1)}),
                              0)
                        << to_string(transport) << " from node " << from.node << " to " << to_string(to.addr(ipv4));
            }
    for (const Pod &pod : pods) {
        // To and from two others in two families: at least 4 packets of a TCP connection, a datagram; each way, as
        // caller and as called.
        constexpr std::uint64_t kLeast = std::uint64_t{4} * (4 + 1) + std::uint64_t{4} * (3 + 1);
        EXPECT_GE(cluster_.count(pod, REASON_SENT_UPLINK), kLeast);
        EXPECT_GE(cluster_.count(pod, REASON_RECEIVED_UPLINK), kLeast);
        EXPECT_EQ(slow_sent(cluster_, pod), 0U);
        EXPECT_EQ(cluster_.count(pod.node, uplink_, REASON_UPLINK_DELIVERED),
                  cluster_.count(pod, REASON_RECEIVED_UPLINK));
        EXPECT_EQ(cluster_.count(pod.node, uplink_, REASON_UPLINK_SENT), cluster_.count(pod, REASON_SENT_UPLINK));
    }
}

// A whole transfer of `size` bytes in each family.
void expect_transfers(const Pod &from, const Pod &to, std::size_t size) {
    for (const bool ipv4 : kFamilies) {
        const EchoServer server(to.ns(), ipv4, kPort);
        const Fd socket = connected(from.ns(), Transport::tcp, {to.addr(ipv4), kPort});
        EXPECT_EQ(transfer(socket, size), 0);
    }
}

// 40 in each family; each of both uplinks of the sender's node sends more than ten packets of them.
void expect_flows_by_both(const Pod &from, const Pod &to,
                          const std::function<std::uint64_t(const char *uplink)> &sent_by) {
    for (const bool ipv4 : kFamilies) {
        const EchoServer server(to.ns(), ipv4, kPort);
        const std::array before = {sent_by("up0"), sent_by("up1")};
        for (int flow = 0; flow < 40; ++flow)
            ASSERT_EQ(ask(from.ns(), flow % 2 == 0 ? Transport::tcp : Transport::udp, {to.addr(ipv4), kPort}), 0);
        EXPECT_GT(sent_by("up0"), before[0] + 10);
        EXPECT_GT(sent_by("up1"), before[1] + 10);
    }
}

TEST_P(Multinode, TransfersAreWhole) {
    const Pod a = cluster_.add_pod(1, keys_);
    const Pod b = cluster_.add_pod(2, keys_);
    expect_transfers(a, b, std::size_t{4} << 20U);
    EXPECT_EQ(slow_sent(cluster_, a), 0U);
    EXPECT_EQ(slow_sent(cluster_, b), 0U);
}

std::string routes_name(const testing::TestParamInfo<Routes> &info) {
    constexpr std::array kNames = {"Hosts", "Bird", "Vxlan"};
    return kNames.at(static_cast<std::size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Routes, Multinode, testing::Values(Routes::hosts, Routes::bird, Routes::vxlan), routes_name);

// Three nodes on two networks, with BIRD's multipath routes between them.
class TwoUplinks : public testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(birds_.settle(2)) << birds_.ask(1, "show protocols"); }
    Pod add_pod(int node) { return cluster_.add_pod(node, {{"uplinks", {"up*"}}}); }
    [[nodiscard]] std::array<std::uint64_t, 2> sent_by(int node) const {
        return {cluster_.count(node, "up0", REASON_UPLINK_SENT), cluster_.count(node, "up1", REASON_UPLINK_SENT)};
    }

    Cluster cluster_{2};
    Birds birds_{cluster_};
};

TEST_F(TwoUplinks, ManyFlowsUseBoth) {
    const Pod a = add_pod(1);
    const Pod b = add_pod(2);
    expect_flows_by_both(a, b, [&](const char *uplink) { return cluster_.count(1, uplink, REASON_UPLINK_SENT); });
    EXPECT_EQ(slow_sent(cluster_, a), 0U);
}

TEST_F(TwoUplinks, CutLinkIsLeftForTheOther) {
    const Pod a = add_pod(1);
    const Pod b = add_pod(2);
    std::vector<std::unique_ptr<EchoServer>> servers;
    std::vector<Fd> sockets;
    for (const bool ipv4 : kFamilies) {
        servers.push_back(std::make_unique<EchoServer>(b.ns(), ipv4, ipv4 ? kPort : kPort + 1));
        for (int flow = 0; flow < 8; ++flow)
            sockets.push_back(connected(a.ns(), Transport::tcp,
                                        {b.addr(ipv4), static_cast<std::uint16_t>(ipv4 ? kPort : kPort + 1)}));
    }
    cluster_.cable(2, 0, false);
    ASSERT_TRUE(wait_until([&] { return birds_.has_next_hops(1, 2, 1) && birds_.has_next_hops(2, 1, 1); }));
    const auto before = sent_by(1);
    for (const Fd &socket : sockets)
        EXPECT_EQ(transfer(socket, 20000), 0) << "a flow from before the cut";
    for (const Transport transport : kTransports)
        EXPECT_EQ(ask(a.ns(), transport, {b.v4, kPort}), 0) << "a new flow";
    EXPECT_EQ(sent_by(1)[0], before[0]);
    EXPECT_GT(sent_by(1)[1], before[1]);
    cluster_.cable(2, 0, true);
    EXPECT_TRUE(birds_.settle(2)) << "both ways again";
    for (const Fd &socket : sockets)
        EXPECT_EQ(transfer(socket, 20000), 0) << "after the repair";
}

TEST_F(TwoUplinks, RestartOfBirdLosesNoFlow) {
    const Pod a = add_pod(1);
    const Pod b = add_pod(2);
    const EchoServer server(b.ns(), true, kPort);
    const Fd socket = connected(a.ns(), Transport::tcp, {b.v4, kPort});
    EXPECT_EQ(transfer(socket, std::size_t{1} << 20U, [&] { birds_.restart(1); }), 0);
    const auto busy = [&] {
        return transfer(socket, 1000) != 0 ||
               birds_.ask(1, "show status").find("recovery in progress") == std::string::npos;
    };
    EXPECT_TRUE(wait_until(busy, std::chrono::seconds(120))) << birds_.ask(1, "show status");
    ASSERT_TRUE(birds_.settle(2));
    EXPECT_EQ(transfer(socket, 1000), 0);
    EXPECT_EQ(slow_sent(cluster_, a), 0U) << "a route was missed";
    EXPECT_EQ(slow_sent(cluster_, b), 0U) << "a route was missed";
}

TEST(Frr, PodsReachEachOtherOverBothUplinksAndOverOne) {
    if (!Frrs::installed())
        GTEST_SKIP() << "frr is not installed (tools/setup test)";
    Cluster cluster(2);
    const Frrs frrs(cluster);
    ASSERT_TRUE(frrs.settle(2)) << frrs.ask(1, "show bgp summary") << cluster.node(1).run("ip route");
    const Pod a = cluster.add_pod(1, {{"uplinks", {"up*"}}});
    const Pod b = cluster.add_pod(2, {{"uplinks", {"up*"}}});
    const auto sent_by = [&](const char *uplink) { return cluster.count(1, uplink, REASON_UPLINK_SENT); };
    expect_flows_by_both(a, b, sent_by);
    cluster.cable(2, 0, false);
    ASSERT_TRUE(
        wait_until([&] { return cluster.has_next_hops("bgp", 1, 2, 1) && cluster.has_next_hops("bgp", 2, 1, 1); }));
    const std::uint64_t before = sent_by("up0");
    expect_transfers(a, b, std::size_t{1} << 20U);
    EXPECT_EQ(sent_by("up0"), before);
    EXPECT_EQ(cluster.count(a, REASON_HOST_NO_ROUTE), 0U);
    EXPECT_EQ(cluster.count(a, REASON_HOST_NO_UPLINK), 0U);
}

} // namespace
} // namespace podlane::test
