// SPDX-License-Identifier: MIT
// Two nodes that route a prefix to each other: what a pod sends there crosses the link between them at most as often
// as its hop limit says, and then both are silent. So it is if the pods' networks have uplinks of their own, with the
// other node as their gateway. A pod that returns to its gateway what the node sends to it gets it no more often. What
// the gateways of two uplinks of one node return leaves by these no more often either.
#include "tests/harness/cluster.hpp"
#include "tests/harness/frame.hpp"
#include "tests/harness/repeat.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/sources.hpp"

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

// Two uplinks of one node, whose gateways return to it what it sends to nobody; what comes by one, it sends by the
// other. Parameter: IPv4.
class AttackUplinks : public testing::TestWithParam<bool> {
  protected:
    static constexpr int kHopLimit = 8; // of a packet from the pod

    [[nodiscard]] static bool ipv4() { return GetParam(); }
    [[nodiscard]] static ip_addr nowhere() { return ip(ipv4() ? "198.51.100.9" : "2001:db8:77::9"); }
    [[nodiscard]] static std::string up(int number) { return "up" + std::to_string(number); }
    void SetUp() override {
        const std::string route = ipv4() ? "ip route add " : "ip -6 route add ";
        const std::string rule = ipv4() ? "ip rule add pref 900 to " : "ip -6 rule add pref 900 to ";
        for (const int number : {0, 1}) {
            const Container &gateway = lab_.provider(number);
            (void)gateway.run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0");
            (void)gateway.run(route + "default via " + SourceLab::on_link(number, 2, ipv4()));
            lab_.node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf." + up(number) + ".rp_filter=0");
            // No first packet goes directly to the next hop of the default route.
            const std::string next_hop = SourceLab::on_link(number, 3, ipv4());
            (void)gateway.run("ip addr add " + next_hop + (ipv4() ? "/26" : "/64 nodad") + " dev eth0");
            lab_.node().run(route + to_string(nowhere()) + " via " + next_hop + " dev " + up(number) + " table " +
                            std::to_string(100 + number));
            lab_.node().run(rule + to_string(nowhere()) + " iif " + up(number) + " lookup " +
                            std::to_string(101 - number));
            ASSERT_TRUE(ping(lab_.node().ns(), next_hop)) << "the neighbour is known";
        }
    }
    // One of each network; `keys`: on top of its configuration.
    void add_pods(const std::function<Json(int)> &keys) {
        for (const int number : {0, 1})
            lab_.add(pods_.emplace_back(lab_.node().container()), "eth0", number, keys(number));
    }
    // Of what each pod sends, the first copy leaves by its own network's uplink.
    void expect_an_end(reason sent_by);

    SourceLab lab_;
    std::vector<std::shared_ptr<Container>> pods_;
};

void AttackUplinks::expect_an_end(reason sent_by) {
    using Copies = std::map<int, std::size_t>; // by what is left of the hop limit
    constexpr std::size_t kSent = 20;
    Bytes address;
    frames::append(address, nowhere());
    for (const int number : {0, 1}) {
        const Container &from = *pods_.at(static_cast<std::size_t>(number));
        const ip_addr source = SourceLab::addr(from, "eth0", ipv4());
        const std::uint64_t returned = lab_.node().counted(up(1 - number), REASON_UPLINK_SENT_HOST).packets;
        const Wire own(lab_.provider(number).ns(), "eth0"), other(lab_.provider(1 - number).ns(), "eth0");
        as_hostile(from.ns(), Privilege::none, [&] {
            const Fd socket(::socket(ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
            must_not_fail(
                set_option(socket, ipv4() ? IPPROTO_IP : IPPROTO_IPV6, ipv4() ? IP_TTL : IPV6_UNICAST_HOPS, kHopLimit),
                "hop limit");
            for (std::size_t i = 0; i < kSent; ++i)
                EXPECT_TRUE(send_datagram(socket, {nowhere(), static_cast<std::uint16_t>(kPort + i)}, "round"));
        });
        Copies at_own, at_other;
        std::size_t all = 0;
        const auto come = [&] {
            const std::size_t before = all;
            for (const auto &[wire, copies] : {std::pair{&own, &at_own}, std::pair{&other, &at_other}})
                (void)wire->until(
                    [&, to = copies](const Bytes &one) {
                        if (is_from(one, source) && contains(one, address)) {
                            ++(*to)[one.at(kEthernetBytes + (ipv4() ? 8 : 7))];
                            ++all;
                        }
                        return all > kSent * kHopLimit;
                    },
                    quiet());
            return all > before && all <= kSent * kHopLimit;
        };
        EXPECT_TRUE(wait_until([&] { return !come(); })) << "packets go round still";
        // The node lowers it, then a gateway, and so on: no copy is like another.
        EXPECT_EQ(at_own, (Copies{{7, kSent}, {3, kSent}})) << up(number);
        EXPECT_EQ(at_other, (Copies{{5, kSent}, {1, kSent}})) << up(1 - number);
        EXPECT_GT(lab_.count(SourceLab::host_veth(from, "eth0"), sent_by), 0U) << "by the fast path";
        EXPECT_GE(lab_.node().counted(up(1 - number), REASON_UPLINK_SENT_HOST).packets, returned + kSent)
            << "from one uplink to the other by the host stack";
    }
}

TEST_P(AttackUplinks, OfOneNodeEndALoopByTheHopLimit) {
    add_pods([](int) {
        return Json{{"uplinks", {"up0", "up1"}}, {"clusterCIDRs", {with_bits(to_string(nowhere()))}}};
    });
    expect_an_end(REASON_SENT_UPLINK);
}

TEST_P(AttackUplinks, OfTwoNetworksOfTheirOwnEndALoopByTheHopLimit) {
    add_pods([](int number) {
        const auto gateway = [&](bool v4) { return SourceLab::on_link(number, 1, v4); };
        return Json{{"uplink", up(number)}, {"uplinks", nullptr}, {"gateway", {gateway(true), gateway(false)}}};
    });
    expect_an_end(REASON_SENT_WAY);
}

INSTANTIATE_TEST_SUITE_P(All, AttackUplinks, testing::Bool(), family_name);

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
