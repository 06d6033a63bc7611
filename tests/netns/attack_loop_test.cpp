// SPDX-License-Identifier: MIT
// Two nodes that route a prefix to each other: what a pod sends there crosses the link between them at most as often
// as its hop limit says, and then both are silent. So it is if the pods' networks have uplinks of their own, with the
// other node as their gateway. A pod that returns to its gateway what the node sends to it gets it no more often.
#include "tests/harness/cluster.hpp"
#include "tests/harness/frame.hpp"
#include "tests/harness/repeat.hpp"
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

// A pod that returns what it gets: its kernel forwards it, for which it has CAP_NET_ADMIN, or a process sends the same
// frame again, hop limit and all, for which CAP_NET_RAW is enough. The node routes a victim's address to the pod.
class AttackReturn : public LabTest {
  protected:
    void prepare() override {
        for (const char *of : {"all", "default"})
            lab_->node().run("sysctl -qw net.ipv4.conf." + std::string(of) + ".rp_filter=0 net.ipv4.conf." + of +
                             ".send_redirects=0");
        sender_ = add_pod({{"firstPacket", "direct"}});
        hostile_ = add_pod({{"firstPacket", "direct"}, {"allowedSources", {pod_range()}}});
        lab_->node().run((ipv4() ? "ip route add " : "ip -6 route add ") + to_string(victim()) + " via " +
                         to_string(addr(hostile_)) + " dev " + hostile_.host_ifname + " onlink");
    }
    [[nodiscard]] ip_addr victim() const { return ip(ipv4() ? "198.51.100.9" : "2001:db8:77::9"); }
    void forward_by_the_pod() {
        for (const char *setting : {"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
                                    "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.eth0.rp_filter=0"})
            (void)must_run(hostile_.ns(), {"sysctl", "-qw", setting});
    }
    // Sends packets between these ends, and counts how often they come to the hostile pod, until none does.
    void expect_an_end(const Pod &from, const Ends &ends, bool reflects);

    Pod sender_, hostile_;
};

void AttackReturn::expect_an_end(const Pod &from, const Ends &ends, bool reflects) {
    constexpr std::size_t kSent = 20;
    const Wire at_hostile = hostile_.wire();
    const Wire start = from.wire();
    const Bytes needle = pattern(32);
    std::atomic<std::size_t> all = 0;
    const Repeat returning([&] {
        for (Bytes &one : at_hostile.arrived()) {
            if (!is_from(one, ends.source) || !contains(one, needle))
                continue;
            ++all;
            std::swap_ranges(one.begin(), one.begin() + 6, one.begin() + 6); // to whom it came from
            if (reflects)
                at_hostile.send(one);
        }
        usleep(100);
    });
    for (std::size_t i = 0; i < kSent; ++i)
        start.send(frame(from.gateway_mac, from.mac, udp(ends, 32)));
    const auto is_over = [&] {
        const std::size_t before = all;
        return before > 0 && !wait_until([&] { return all > before; }, quiet());
    };
    EXPECT_TRUE(wait_until(is_over)) << "packets go round still";
    EXPECT_GT(all, 2 * kSent) << "they did go round";
    EXPECT_LE(all, kSent * kHops);
    EXPECT_TRUE(ping(sender_.ns(), node_addr()));
}

TEST_P(AttackReturn, EndsByTheHopLimit) {
    {
        SCOPED_TRACE("delivered by the fast path");
        expect_an_end(sender_, {addr(sender_), addr(hostile_)}, true);
        EXPECT_GT(lab_->count(sender_, REASON_SENT_DIRECT), 0U);
    }
    {
        SCOPED_TRACE("to the victim");
        expect_an_end(sender_, {addr(sender_), victim()}, true);
    }
    {
        SCOPED_TRACE("from the pod itself");
        expect_an_end(hostile_, {addr(hostile_), victim()}, true);
    }
    SCOPED_TRACE("forwarded by the pod's kernel");
    forward_by_the_pod();
    expect_an_end(sender_, {addr(sender_), victim()}, false);
}

INSTANTIATE_TEST_SUITE_P(All, AttackReturn, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
