// SPDX-License-Identifier: MIT
// The kernel's routes to other nodes mean to the fast path what they mean to the host stack.
#include "tests/harness/cluster.hpp"
#include "tests/netns/lab.hpp"
#include "tests/harness/wire.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

// Parameter: IPv4. The pods `fast` and `slow` on node 1 differ in their fast path only; `far` is on node 2.
class Route : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override { cluster_.route_by_hosts(); }

    [[nodiscard]] static bool ipv4() { return GetParam(); }
    Pod add_pod(int node, const Json &more = Json::object()) {
        Json keys = {{"uplinks", {"up*"}}};
        keys.merge_patch(more);
        return cluster_.add_pod(node, keys);
    }
    void route(const std::string &words) const {
        cluster_.node(1).run((ipv4() ? "ip -4 route " : "ip -6 route ") + words);
    }
    [[nodiscard]] static ip_addr addr(const Pod &pod) { return pod.addr(ipv4()); }
    [[nodiscard]] static std::string unused(int number) {
        return ipv4() ? "198.18.200." + std::to_string(number) : "2001:db8:10:200::" + std::to_string(number);
    }
    // Who answered an echo request and what they said, without times: nothing if nobody did.
    [[nodiscard]] static std::string answer(const Pod &pod, const std::string &to, int hop_limit = 64) {
        const Output said = run(pod.ns(), words("ping -n -c 1 -W 2 -t " + std::to_string(hop_limit) + " " + to));
        const auto from = said.out.find("rom ");
        return from == std::string::npos ? "" : said.out.substr(from, said.out.find_first_of("\n", from) - from);
    }
    [[nodiscard]] static int path_mtu(const Fd &socket) {
        int mtu = 0;
        socklen_t size = sizeof(mtu);
        getsockopt(socket.get(), ipv4() ? IPPROTO_IP : IPPROTO_IPV6, ipv4() ? IP_MTU : IPV6_MTU, &mtu, &size);
        return mtu;
    }
    [[nodiscard]] static int pending_error(const Fd &socket) {
        int error = 0;
        socklen_t size = sizeof(error);
        getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
        return error;
    }
    void expect_path_mtu(const Pod &from, const Pod &to, int mtu) const {
        const EchoServer server(to.ns(), ipv4(), kPort);
        const Fd datagrams = open_unfragmented(from.ns(), ipv4());
        ASSERT_EQ(connect_to(datagrams, {addr(to), kPort}), 0);
        ASSERT_EQ(send_text(datagrams, std::string(1440, 'x')), 0);
        EXPECT_TRUE(wait_until([&] { return path_mtu(datagrams) == mtu; })) << path_mtu(datagrams);
        EXPECT_EQ(pending_error(datagrams), EMSGSIZE);
        EXPECT_EQ(send_text(datagrams, "smaller"), 0);
        EXPECT_EQ(receive(datagrams).text, "smaller");
        const Fd socket = connected(from.ns(), Transport::tcp, {addr(to), kPort});
        EXPECT_EQ(transfer(socket, std::size_t{1} << 20U), 0);
    }

    Cluster cluster_{2};
};

TEST_P(Route, FirstPacketWaitsForTheNeighbour) {
    const Pod fast = add_pod(1);
    const Pod far = add_pod(2);
    const EchoServer server(far.ns(), ipv4(), kPort);
    for (const int node : {1, 2})
        cluster_.node(node).run("ip neigh flush dev up0");
    const Fd socket = connected(fast.ns(), Transport::udp, {addr(far), kPort});
    ASSERT_EQ(send_text(socket, "once"), 0);
    EXPECT_EQ(receive(socket).text, "once");
    EXPECT_EQ(cluster_.count(fast, REASON_HOST_NO_NEIGHBOUR), 1U);
    const Fd next = connected(fast.ns(), Transport::udp, {addr(far), kPort});
    ASSERT_EQ(send_text(next, "again"), 0);
    EXPECT_EQ(receive(next).text, "again");
    EXPECT_EQ(cluster_.count(fast, REASON_SENT_UPLINK), 1U);
}

// Nobody answers for the next hop's address: the sender gets an ICMP error, as from the host stack.
TEST_P(Route, NextHopThatIsGoneIsReported) {
    const Pod fast = add_pod(1);
    const Pod slow = add_pod(1, {{"fastPath", "off"}});
    const Pod far = add_pod(2);
    const std::string neigh = std::string("net.") + (ipv4() ? "ipv4" : "ipv6") + ".neigh.up0.";
    cluster_.node(1).run("sysctl -qw " + neigh + "mcast_solicit=1 " + neigh + "retrans_time_ms=100");
    cluster_.cable(2, 0, false);
    for (const Pod &from : {slow, fast}) {
        cluster_.node(1).run("ip neigh flush dev up0");
        const Fd socket = open_socket(from.ns(), Transport::tcp, ipv4());
        EXPECT_EQ(connect_to(socket, {addr(far), kPort}), EHOSTUNREACH);
        const Output said = run(from.ns(), words("ping -n -c 3 -i 0.2 -W 2 " + to_string(addr(far))));
        EXPECT_NE(said.out.find("nreachable"), std::string::npos) << said.out;
    }
}

TEST_P(Route, RoutesMtuReachesThePod) {
    const Pod fast = add_pod(1);
    const Pod far = add_pod(2);
    route("replace " + Cluster::pods(2, ipv4()) + " via " + Cluster::node_addr(2, ipv4()) + " mtu lock 1300");
    expect_path_mtu(fast, far, 1300);
    EXPECT_GE(cluster_.count(fast, REASON_HOST_MTU), 1U);
    EXPECT_GE(cluster_.count(fast, REASON_SENT_UPLINK), 20U) << "what fits takes the fast path";
}

TEST_P(Route, ReceiversMtuReachesThePod) {
    const Pod fast = add_pod(1);
    const Pod far = add_pod(2, {{"mtu", 1400}});
    expect_path_mtu(fast, far, 1400);
    EXPECT_GE(cluster_.count(fast, REASON_SENT_UPLINK), 20U);
}

TEST_P(Route, ExpiredHopLimitIsAnsweredByTheSameHop) {
    const Pod fast = add_pod(1);
    const Pod slow = add_pod(1, {{"fastPath", "off"}});
    const Pod far = add_pod(2);
    const Pod far_slow = add_pod(2, {{"fastPath", "off"}});
    for (const int hop_limit : {1, 2, 3}) {
        const std::string expected = answer(slow, to_string(addr(far_slow)), hop_limit);
        const std::string got = answer(fast, to_string(addr(far)), hop_limit);
        EXPECT_FALSE(got.empty());
        if (hop_limit < 3) {
            EXPECT_EQ(got, expected) << "hop limit " << hop_limit;
        }
    }
}

TEST_P(Route, RefusingRoutesRefuse) {
    const Pod fast = add_pod(1);
    const Pod slow = add_pod(1, {{"fastPath", "off"}});
    const std::array kinds = {"unreachable", "prohibit", "blackhole", "throw"};
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        const std::string to = unused(static_cast<int>(i) + 1);
        route("add " + std::string(kinds.at(i)) + " " + with_bits(to));
        EXPECT_EQ(answer(fast, to), answer(slow, to)) << kinds.at(i);
    }
    EXPECT_NE(answer(fast, unused(1)), "");
    EXPECT_EQ(answer(fast, unused(3)), "");
    EXPECT_EQ(cluster_.count(fast, REASON_SENT_UPLINK), 0U);
}

// By what a rule can select packets: who sent them, the pod's host-side veth (as VRFs do it), protocol and port.
TEST_P(Route, RulesAreHonoured) {
    const Pod first = add_pod(1);
    const Pod second = add_pod(1);
    const Pod far = add_pod(2);
    const EchoServer server(far.ns(), ipv4(), kPort);
    route("add table 100 " + Cluster::pods(2, ipv4()) + " via " + Cluster::node_addr(2, ipv4(), 1));
    const auto sent_by = [&](const char *uplink) { return cluster_.count(1, uplink, REASON_UPLINK_SENT); };
    const auto all_sent_by = [&](const char *uplink) { // the last ACK of a connection comes after its answer
        std::uint64_t last = 0;
        EXPECT_TRUE(wait_until([&] { return std::exchange(last, sent_by(uplink)) == sent_by(uplink); }));
        return last;
    };
    for (const std::string &selector :
         {"from " + to_string(addr(second)), "iif " + second.host_ifname,
          "from " + to_string(addr(second)) + " ipproto tcp dport " + std::to_string(kPort)}) {
        SCOPED_TRACE(selector);
        const std::string rule = (ipv4() ? "ip -4 rule " : "ip -6 rule ");
        cluster_.node(1).run(rule + "add " + selector + " lookup 100");
        const std::array before = {sent_by("up0"), sent_by("up1")};
        ASSERT_EQ(ask(first.ns(), Transport::tcp, {addr(far), kPort}), 0);
        const std::uint64_t by_first = all_sent_by("up0");
        EXPECT_GT(by_first, before[0]);
        EXPECT_EQ(sent_by("up1"), before[1]);
        ASSERT_EQ(ask(second.ns(), Transport::tcp, {addr(far), kPort}), 0);
        EXPECT_GT(sent_by("up1"), before[1]);
        EXPECT_EQ(sent_by("up0"), by_first);
        cluster_.node(1).run(rule + "del " + selector + " lookup 100");
    }
}

TEST_P(Route, InterfaceThatIsNoUplinkIsLeftToTheHost) {
    const Pod fast = add_pod(1, {{"uplinks", {"up0"}}});
    const Pod far = add_pod(2);
    const EchoServer server(far.ns(), ipv4(), kPort);
    route("replace " + Cluster::pods(2, ipv4()) + " via " + Cluster::node_addr(2, ipv4(), 1));
    EXPECT_EQ(ask(fast.ns(), Transport::tcp, {addr(far), kPort}), 0);
    EXPECT_GT(cluster_.count(fast, REASON_HOST_NO_UPLINK), 0U);
    EXPECT_EQ(cluster_.count(fast, REASON_SENT_UPLINK), 0U);
}

INSTANTIATE_TEST_SUITE_P(Family, Route, testing::Bool(), family_name);

// The mark that distinguishes our packets from the host's ends at the uplink: a tunnel's outer packet inherits marks,
// and passes the host's hooks after the uplink's programs.
class Marks : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Marks, NoneLeavesTheUplink) {
    Cluster cluster;
    cluster.route_over_vxlan();
    const Json keys = {{"uplinks", {"vx0"}}, {"mtu", 1450}, {"mark", GetParam()}, {"attach", "clsact"}};
    const Pod a = cluster.add_pod(1, keys);
    const Pod b = cluster.add_pod(2, keys);
    const std::string bit = std::to_string(GetParam());
    cluster.node(1).run("nft -f -", "table ip t { chain out { type filter hook postrouting priority 0;\n"
                                    "udp dport 4789 counter name sent\n"
                                    "udp dport 4789 meta mark & " +
                                        bit + " == " + bit + " counter name marked\n}\n" +
                                        "counter sent { }\ncounter marked { }\n}\n");
    const auto counted = [&](const char *name) {
        const Json all = Json::parse(cluster.node(1).run(std::string("nft -j list counter ip t ") + name));
        return all.at("nftables").at(1).at("counter").at("packets").get<std::uint64_t>();
    };
    const EchoServer server(b.ns(), true, kPort);
    for (int i = 0; i < 5; ++i)
        ASSERT_EQ(ask(a.ns(), Transport::tcp, {b.v4, kPort}), 0);
    EXPECT_GE(cluster.count(1, "vx0", REASON_UPLINK_SENT), 15U);
    EXPECT_GE(counted("sent"), cluster.count(1, "vx0", REASON_UPLINK_SENT));
    EXPECT_EQ(counted("marked"), 0U);
    // The test sees marks at all: without the program that clears it, the bit stays.
    cluster.node(1).run("tc filter del dev vx0 egress");
    ASSERT_EQ(ask(a.ns(), Transport::udp, {b.v4, kPort}), 0);
    EXPECT_GT(counted("marked"), 0U);
}

INSTANTIATE_TEST_SUITE_P(Bit, Marks, testing::Values(0x1000U, 1U));

} // namespace
} // namespace podlane::test
