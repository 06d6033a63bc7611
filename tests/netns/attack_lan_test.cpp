// SPDX-License-Identifier: MIT
// Hosts around a network with its own uplink forge: one on another uplink speaks in the name of a peer whose path is
// evicted, one on the LAN in the name of what the node leads to by a tunnel.
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

class AttackLan : public Lan {
  protected:
    void SetUp() override {
        Lan::SetUp();
        // As on nodes whose networks are routed asymmetrically: the source is not checked for the forger.
        for (const char *where : {"all", "up0"})
            node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
    }
    // A pod with no other interface.
    std::shared_ptr<Container> add_pod_alone(const Json &keys) {
        Attach alone = lan(keys);
        alone.ifname = "eth0";
        auto pod = node().container();
        lab_.add(pod, alone);
        return pod;
    }
    void evict() {
        const Paths paths = require(open_paths(node().bpffs(), Access::read_write));
        for (const path_key &key : require(paths.keys()))
            (void)require(paths.remove(key));
    }
    [[nodiscard]] static bool receives(const Fd &socket, const std::string &text,
                                       std::chrono::milliseconds most = patience()) {
        return wait_until([&] { return receive(socket, 64, std::chrono::milliseconds(50)).text == text; }, most);
    }
    void expect_replies_by_the_lan(const Container &pod, const std::string &ifname);

    // Whether the router, who claims this address, converses with the pod.
    [[nodiscard]] bool converses(const ip_addr &as, const ip_addr &pod) const {
        const std::string claim = to_string(as) + (GetParam() ? "/32" : "/128 nodad") + " dev lo";
        (void)router_->run("ip addr add " + claim);
        const Fd socket = open_socket(router_->ns(), Transport::tcp, GetParam(), {as, 0});
        const bool connects = connect_to(socket, {pod, kPort}, quiet()) == 0;
        (void)router_->run("ip addr del " + claim);
        return connects;
    }
    // By a device that takes the tunnel's ends from the route. False: this kernel has none.
    [[nodiscard]] bool add_tunnel_device() {
        return run(node().ns(), words("ip link add vx0 type vxlan external dstport 4788")).rc == 0 &&
               run(node().ns(), words("ip link set vx0 up")).rc == 0;
    }
    [[nodiscard]] bool route_into_tunnel(const std::string &to) {
        const std::string family = GetParam() ? "ip" : "ip -6";
        const std::string end = SourceLab::on_link(0, 1, true);
        return run(node().ns(), words(family + " route add " + to + " encap ip id 7 dst " + end + " dev vx0")).rc == 0;
    }
};

// A server that is bound to its address, and does not connect. The peer is behind the LAN's router.
void AttackLan::expect_replies_by_the_lan(const Container &pod, const std::string &ifname) {
    const Endpoint own{SourceLab::addr(pod, ifname, GetParam()), kPort}, caller{far_addr(), 30000};
    const std::uint32_t veth = SourceLab::host_veth(pod, ifname);
    const Fd server = open_socket(pod.ns(), Transport::udp, GetParam(), own);
    const Fd client = connected(far_->ns(), Transport::udp, own, caller);
    const Wire forger(lab_.provider(0).ns(), "eth0");
    const Bytes forged =
        frame(Wire(node().ns(), "up0").mac(), forger.mac(), udp({caller.addr, own.addr, caller.port, own.port}));
    const auto forge = [&] {
        const std::uint64_t before = lab_.count(veth, REASON_RECEIVED_HOST);
        forger.send(forged);
        EXPECT_TRUE(wait_until([&] { return lab_.count(veth, REASON_RECEIVED_HOST) > before; }))
            << "the forged datagram does not arrive";
    };
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(send_text(client, "question"), 0);
        EXPECT_TRUE(receives(server, "question"));
        for (const char *reply : {"answer", "another"}) {
            evict();
            forge();
            ASSERT_TRUE(send_datagram(server, caller, reply));
            EXPECT_TRUE(receives(client, reply));
        }
    }
    EXPECT_EQ(frames_from(forger, own.addr), 0U);
    // The test's own foundation.
    evict();
    require(require(open_kept_paths(node().bpffs(), Access::read_write)).update(veth, kept_paths{}));
    forge();
    ASSERT_TRUE(send_datagram(server, caller, "lost"));
    EXPECT_FALSE(receives(client, "lost", std::chrono::milliseconds(300)));
}

TEST_P(AttackLan, ADatagramInTheNameOfAPeerMovesNothingIfItsPathIsEvicted) {
    for (const char *first_packet : {"host", "direct"}) {
        SCOPED_TRACE(first_packet);
        const Json keys = {{"firstPacket", first_packet}};
        expect_replies_by_the_lan(*add_pod_alone(keys), "eth0");
        expect_replies_by_the_lan(*add_pod(keys), "net1");
    }
}

// The host stack's reverse path filter refuses it; IPv6 has none, and replies go into the tunnel.
TEST_P(AttackLan, NobodySpeaksForWhatIsBehindATunnelOfARoute) {
    const ip_addr inside = ip(GetParam() ? "198.51.100.7" : "2001:db8:60::7");
    const ip_addr outside = ip(GetParam() ? "198.18.66.6" : "2001:db8:1e::6");
    node().run("sysctl -qw net.ipv4.conf.all.rp_filter=1");
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), GetParam(), kPort);
    const auto may_converse = [&](const ip_addr &as) { return wait_until([&] { return converses(as, addr(*pod)); }); };
    EXPECT_TRUE(may_converse(inside)) << "it is behind no tunnel yet";
    if (!add_tunnel_device() || !route_into_tunnel(GetParam() ? "198.51.100.0/24" : "2001:db8:60::/64"))
        GTEST_SKIP() << "this kernel has no vxlan, or no routes into a tunnel";
    const std::uint64_t before = lab_.count(uplink(), REASON_HOST_SOURCE_LOCAL);
    EXPECT_TRUE(wait_until([&] { return !converses(inside, addr(*pod)); }));
    EXPECT_FALSE(converses(inside, addr(*pod)));
    EXPECT_GT(lab_.count(uplink(), REASON_HOST_SOURCE_LOCAL), before);
    EXPECT_TRUE(may_converse(outside));
    // The kernel's answer is the same for every source then.
    ASSERT_TRUE(route_into_tunnel("default metric 1"));
    EXPECT_TRUE(may_converse(outside));
    for (const Transport transport : {Transport::tcp, Transport::udp})
        EXPECT_EQ(ask(far_->ns(), transport, {addr(*pod), kPort}), 0) << to_string(transport);
}

INSTANTIATE_TEST_SUITE_P(Family, AttackLan, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
