// SPDX-License-Identifier: MIT
// Two nodes that route a prefix to each other: what a pod sends there crosses the link between them at most as often
// as its hop limit says, and then both are silent. So it is if the pods' networks have uplinks of their own, with the
// other node as their gateway.
#include "tests/harness/cluster.hpp"
#include "tests/harness/frame.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 9;
constexpr std::size_t kPackets = 100;
constexpr std::size_t kHops = 64; // of a packet from the pod

// Parameter: IPv4.
class AttackLoop : public testing::TestWithParam<bool> {
  protected:
    [[nodiscard]] static bool ipv4() { return GetParam(); }
    // Nobody has it; each node routes it to the other one.
    [[nodiscard]] static ip_addr nowhere() { return ip(ipv4() ? "198.18.200.9" : "2001:db8:10:200::9"); }
    void SetUp() override {
        for (const int node : {1, 2}) {
            cluster_.node(node).run(std::string("ip route add ") +
                                    (ipv4() ? "198.18.200.0/24" : "2001:db8:10:200::/64") + " via " +
                                    Cluster::node_addr(3 - node, ipv4()));
            for (const char *of : {"all", "up0"}) {
                cluster_.node(node).run("sysctl -qw net.ipv4.conf." + std::string(of) + ".rp_filter=0");
                cluster_.node(node).run("sysctl -qw net.ipv4.conf." + std::string(of) + ".send_redirects=0");
            }
        }
        cluster_.route_by_hosts();
    }
    // On the LAN of the nodes' uplinks, with the other node as the gateway.
    Pod add_pod_with_uplink(int node) {
        const std::string first = std::to_string(node * 100);
        const auto range = [&](bool v4) {
            const std::string net = v4 ? "192.0.2." : "2001:db8:f0::";
            return Json::array({{{"subnet", net + (v4 ? "0/24" : "/64")},
                                 {"rangeStart", net + first},
                                 {"rangeEnd", net + std::to_string(node * 100 + 20)},
                                 {"gateway", Cluster::node_addr(3 - node, v4)}}});
        };
        return cluster_.add_pod(node, {{"uplink", "up0"},
                                       {"uplinks", nullptr},
                                       {"clusterCIDRs", nullptr},
                                       {"ipam", {{"ranges", {range(true), range(false)}}}}});
    }
    // Frames to the address that cross the link, in both directions, until none has come for a while.
    void expect_an_end(const std::vector<Pod> &senders, reason sent_by);

    Cluster cluster_;
};

void AttackLoop::expect_an_end(const std::vector<Pod> &senders, reason sent_by) {
    std::vector<Wire> wires;
    for (const int node : {1, 2})
        wires.emplace_back(cluster_.node(node).ns(), "up0");
    const std::size_t most = senders.size() * kPackets * (kHops + 1);
    Bytes address;
    frames::append(address, nowhere());
    std::size_t all = 0;
    // Of a while, or until there are too many.
    const auto cross = [&] {
        const std::size_t before = all;
        for (const Wire &wire : wires)
            (void)wire.until([&](const Bytes &one) { return (all += contains(one, address) ? 1 : 0) > most; }, quiet());
        return all > before && all <= most;
    };
    for (const Pod &from : senders)
        as_hostile(from.ns(), Privilege::none, [&] {
            const Fd socket(::socket(ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
            for (std::size_t i = 0; i < kPackets; ++i)
                (void)send_datagram(socket, {nowhere(), static_cast<std::uint16_t>(kPort + i)}, "round and round");
        });
    EXPECT_TRUE(wait_until([&] { return !cross(); })) << "frames go round still";
    for (const Pod &from : senders)
        EXPECT_GT(cluster_.count(from, sent_by), 0U) << "by the fast path";
    // They did go round; and an error about each comes back, which quotes the address.
    EXPECT_GE(all, senders.size() * kHops / 2);
    EXPECT_LE(all, most);
}

TEST_P(AttackLoop, BetweenTwoNodesEndsByTheHopLimit) {
    expect_an_end({cluster_.add_pod(1, {{"uplinks", {"up0"}}, {"firstPacket", "direct"}}),
                   cluster_.add_pod(2, {{"uplinks", {"up0"}}, {"firstPacket", "direct"}})},
                  REASON_SENT_UPLINK);
}

TEST_P(AttackLoop, BetweenTwoNodesWithUplinksOfTheirOwnEndsByTheHopLimit) {
    expect_an_end({add_pod_with_uplink(1), add_pod_with_uplink(2)}, REASON_SENT_WAY);
}

INSTANTIATE_TEST_SUITE_P(All, AttackLoop, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
