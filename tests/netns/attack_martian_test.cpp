// SPDX-License-Identifier: MIT
// A host on the uplink sends in the name of what is not there: the node itself, its pods, loopback, what the node's
// routes discard. Beside a strict reverse path filter a pod gets of that what a pod with the fast path off gets, also
// if it converses with the one whose name is used, and the host never gets the pod's answer. Of a connection whose peer
// is discarded later: attack_route_test.cpp.
#include "tests/netns/captured.hpp"
#include "tests/netns/forged.hpp"

namespace podlane::test {
namespace {

using forged::kPort; // of the pods' servers

constexpr std::uint16_t kTheirPort = 40000; // from which forged::packets_from() sends
constexpr std::uint16_t kMarkerPort = 40009;
constexpr std::size_t kMarkerBytes = 64; // more than any forged packet has

// In whose name the host sends.
struct Claim {
    std::string name;
    ip_addr source;
    bool arrives_by_ipv6 = true;           // the kernel has no reverse path filter for IPv6
    const net::Namespace *owner = nullptr; // who has the address, and converses with the pods
    bool is_legal = false;
};

struct Victim {
    std::string mode;
    Pod pod;
    std::shared_ptr<Wire> wire;
    std::shared_ptr<EchoServer> server;
};

using Kinds = std::multiset<std::string>; // of packets

class AttackMartian : public LabTest {
  protected:
    ~AttackMartian() override {
        if (of_other_network_.chain)
            detach_pod(of_other_network_);
    }
    void prepare() override {
        add_up1();
        for (const char *of : {"all", "up0", "up1"})
            lab_->node().run("sysctl -qw net.ipv4.conf." + std::string(of) + ".rp_filter=1");
        for (const auto &[kind, number] : {std::pair{"blackhole", 1}, {"unreachable", 2}, {"prohibit", 3}})
            lab_->node().run(std::string(ipv4() ? "ip route" : "ip -6 route") + " add " + kind + " " +
                             discarded(number) + (ipv4() ? "/26" : "/64"));
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        wire_.emplace(lab_->outside(), "eth0");
        sink_ = open_socket(lab_->outside(), Transport::udp, ipv4(), {outside_addr(), kMarkerPort});
        gateway_ = Wire(lab_->node().ns(), "up0").mac();
        add_victim("host", {{"firstPacket", "host"}});
        add_victim("direct", {{"firstPacket", "direct"}});
        add_victim("off", {{"firstPacket", "host"}, {"fastPath", "off"}});
        of_same_network_ = add_pod(in_cluster({{"firstPacket", "direct"}}));
        add_pod_of_other_network();
    }
    // With "direct" only sources of the cluster take the fast path: all that are routed are.
    [[nodiscard]] static Json in_cluster(Json keys) {
        keys["uplinks"] = {"up0"};
        keys["clusterCIDRs"] = {"198.18.0.0/16", "198.51.100.0/24", "192.0.2.0/24", "203.0.113.0/24", "2001:db8::/32"};
        return keys;
    }
    void add_victim(const std::string &mode, const Json &keys) {
        const Pod pod = add_pod(in_cluster(keys));
        victims_.push_back(
            {mode, pod, std::make_shared<Wire>(pod.wire()), std::make_shared<EchoServer>(pod.ns(), ipv4(), kPort)});
    }
    void add_pod_of_other_network() {
        Json config = lab_->node().config(with_attach({{"uplinks", {"up0"}}, {"firstPacket", "host"}}));
        config["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:a::/64"}}}};
        auto chain = std::make_shared<Chain>(lab_->node(), std::vector<Json>{config}, "1.0.0", "others");
        const auto container = lab_->node().container();
        (void)succeeded(chain->add(*container));
        of_other_network_ = observe(lab_->node(), container);
        of_other_network_.chain = std::move(chain);
    }
    [[nodiscard]] std::string discarded(int number) const {
        return ipv4() ? "198.51.100." + std::to_string(64 * (number - 1))
                      : "2001:db8:b" + std::to_string(number) + "::";
    }
    [[nodiscard]] std::vector<Claim> claims() {
        const auto of = [&](const char *by_ipv4, const char *by_ipv6) { return ip(ipv4() ? by_ipv4 : by_ipv6); };
        const net::Namespace *node = &lab_->node().ns();
        return {{"the node", node_addr(), true, node},
                {"the node on another link", of("192.0.2.1", "2001:db8:2::1"), true, node},
                {"a pod of the network", addr(of_same_network_), true, &of_same_network_.ns()},
                {"a pod of another network", addr(of_other_network_), true, &of_other_network_.ns()},
                {"loopback", of("127.0.0.9", "::1"), false},
                {"a blackholed range", of("198.51.100.9", "2001:db8:b1::9")},
                {"an unreachable range", of("198.51.100.73", "2001:db8:b2::9")},
                {"a prohibited range", of("198.51.100.137", "2001:db8:b3::9")},
                {"a group", of("224.0.0.9", "ff0e::9"), false},
                {"all on the link, or one on a link", of("203.0.113.255", "fe80::9"), false},
                {"nobody", of("0.0.0.0", "::"), false},
                {"itself", outside_addr(), true, &lab_->outside(), true}};
    }
    [[nodiscard]] std::uint64_t fast(const Victim &at) const { return lab_->count(at.pod, REASON_RECEIVED_UPLINK); }
    void converse(const std::vector<Claim> &claims);
    [[nodiscard]] Packet marker_to(const Victim &at) const;
    [[nodiscard]] Kinds arriving(const Victim &at, const Claim &claim);

    const OneCpu one_cpu_; // the servers' threads run there as well
    std::optional<Wire> wire_;
    Fd sink_;
    Mac gateway_{};
    std::vector<Victim> victims_;
    Pod of_same_network_, of_other_network_;
    std::vector<Fd> sockets_; // of conversations
};

// Until conntrack counts the conversations as established, and those that may take the fast path do.
void AttackMartian::converse(const std::vector<Claim> &claims) {
    for (const Claim &one : claims)
        for (const Victim &with : victims_)
            if (one.owner != nullptr)
                sockets_.push_back(
                    connected(*one.owner, Transport::udp, {addr(with.pod), kPort}, {one.source, kTheirPort}));
    const auto exchange = [](const Fd &socket) { return send_text(socket, "x") == 0 && receive(socket).text == "x"; };
    ASSERT_TRUE(wait_until(
        [&] { return std::ranges::all_of(sockets_, exchange) && fast(victims_[0]) > 0 && fast(victims_[1]) > 0; }));
}

// By the slow path, behind all that was sent before.
Packet AttackMartian::marker_to(const Victim &at) const {
    Packet packet = udp({outside_addr(), addr(at.pod), kMarkerPort, kPort}, kMarkerBytes);
    if (!ipv4())
        return forged::behind(packet, {IPPROTO_DSTOPTS});
    packet.options = {1, 1, 1, 1};
    return packet;
}

// The kinds of packets in that name that reach the pod. None of its answers reaches the host, unless the name is its
// own: the answer to the last packet comes behind them.
Kinds AttackMartian::arriving(const Victim &at, const Claim &claim) {
    std::set<std::string> sent;
    at.wire->forget();
    wire_->forget();
    for (const Packet &packet : forged::packets_from(claim.source, addr(at.pod))) {
        const Bytes one = frame(gateway_, wire_->mac(), packet);
        sent.insert(kind_of(one));
        wire_->send(one);
    }
    wire_->send(frame(gateway_, wire_->mac(), marker_to(at)));
    const auto is_marker_from = [](const ip_addr &source) {
        return [source](const Bytes &one) { return is_from(one, source) && contains(one, pattern(kMarkerBytes)); };
    };
    const auto at_pod = at.wire->until(is_marker_from(outside_addr()), patience());
    const auto at_host = wire_->until(is_marker_from(addr(at.pod)), patience());
    Kinds arrived;
    if (!at_pod || !at_host) {
        ADD_FAILURE() << at.mode << ": the marker is lost";
        return arrived;
    }
    for (const Bytes &one : *at_pod)
        if (is_from(one, claim.source) && sent.contains(kind_of(one)))
            arrived.insert(kind_of(one));
    const auto answers = std::ranges::count_if(*at_host, [&](const Bytes &one) { return is_from(one, addr(at.pod)); });
    EXPECT_EQ(answers > 0, claim.is_legal) << at.mode << ": " << answers << " answers reach the host";
    return arrived;
}

TEST_P(AttackMartian, ReachesAPodAsWithoutTheFastPath) {
    const std::vector<Claim> all = claims();
    ASSERT_NO_FATAL_FAILURE(converse(all));
    for (const Claim &claim : all) {
        SCOPED_TRACE("in the name of " + claim.name);
        const Kinds without = arriving(victims_[2], claim);
        EXPECT_EQ(without.empty(), !claim.is_legal && (ipv4() || !claim.arrives_by_ipv6));
        if (claim.is_legal) {
            EXPECT_EQ(without.size(), forged::packets_from(claim.source, claim.source).size());
        }
        for (const Victim *with : {&victims_[0], &victims_[1]}) {
            const std::uint64_t before = fast(*with);
            EXPECT_EQ(arriving(*with, claim), without) << with->mode;
            if (claim.is_legal) {
                EXPECT_GT(fast(*with), before) << with->mode << ": the fast path carries none of it";
            }
        }
    }
    EXPECT_EQ(fast(victims_[2]), 0U) << "off";
}

INSTANTIATE_TEST_SUITE_P(All, AttackMartian, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
