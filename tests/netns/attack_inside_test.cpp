// SPDX-License-Identifier: MIT
// Nobody on a LAN speaks in the name of pods behind the node, nor do packets to these leave by the LAN: pods behind
// bridges of other plugins, and pods of other nodes.
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

class Inside : public Lan {
  protected:
    void SetUp() override {
        Lan::SetUp();
        chained_ = add_behind("br1", "77", "1a", Json{{"type", "podlane"}, {"bpffs", node().bpffs()}});
        foreign_ = add_behind("br2", "88", "1b");
    }
    // A pod that the `bridge` plugin makes, and maybe Podlane behind it.
    std::shared_ptr<Container> add_behind(const std::string &bridge, const std::string &third, const std::string &group,
                                          const Json &chained = nullptr) {
        std::vector<Json> plugins{
            {{"type", "bridge"},
             {"bridge", bridge},
             {"isDefaultGateway", true},
             {"ipam",
              {{"type", "host-local"},
               {"dataDir", node().leases()},
               {"ranges",
                {{{{"subnet", "198.18." + third + ".0/24"}}}, {{{"subnet", "2001:db8:" + group + "::/64"}}}}}}}}};
        if (!chained.is_null())
            plugins.push_back(chained);
        auto pod = node().container();
        lab_.add(pod, {"eth0", "of-" + bridge, plugins});
        return pod;
    }
    [[nodiscard]] static ip_addr cluster_addr(const Container &pod) { return SourceLab::addr(pod, "eth0", GetParam()); }
    // Whether the router, who claims this address, converses with the pod.
    [[nodiscard]] bool converses(const ip_addr &as, const ip_addr &pod) const {
        const std::string claim = to_string(as) + (GetParam() ? "/32" : "/128 nodad") + " dev lo";
        (void)router_->run("ip addr add " + claim);
        const Fd socket = open_socket(router_->ns(), Transport::tcp, GetParam(), {as, 0});
        const bool connects = connect_to(socket, {pod, kPort}, quiet()) == 0;
        (void)router_->run("ip addr del " + claim);
        return connects;
    }
    [[nodiscard]] bool may_converse(const ip_addr &as, const ip_addr &pod) const {
        return wait_until([&] { return converses(as, pod); });
    }

    // An address that is nobody's, so that the router may converse in its name.
    [[nodiscard]] static ip_addr moving() { return ip(GetParam() ? "198.18.66.6" : "2001:db8:1e::6"); }
    void use_by_lan(const Container &pod) const {
        (void)router_->run("ip addr add " + to_string(moving()) + (GetParam() ? "/32" : "/128 nodad") + " dev lo");
        const Fd tcp = open_socket(router_->ns(), Transport::tcp, GetParam(), {moving(), kPort});
        ASSERT_EQ(connect_to(tcp, {addr(pod), kPodPort}), ECONNREFUSED);
        const Fd received = open_socket(pod.ns(), Transport::udp, GetParam(), {addr(pod), kPodPort});
        const Fd udp = open_socket(router_->ns(), Transport::udp, GetParam(), {moving(), kPort});
        ASSERT_EQ(connect_to(udp, {addr(pod), kPodPort}), 0);
        ASSERT_EQ(send_text(udp, "hello"), 0);
        ASSERT_EQ(receive(received).text, "hello");
    }
    void expect_followed(const Container &pod, const net::Namespace &owner) const {
        const EchoServer server(owner, GetParam(), kPort);
        const Endpoint from{addr(pod), kPodPort}, to{moving(), kPort};
        ASSERT_TRUE(wait_until([&] { // the kernel makes an IPv6 address its own in a worker
            return run(owner, words("ip route get " + to_string(moving()))).out.starts_with("local");
        }));
        EXPECT_EQ(ask(pod.ns(), Transport::tcp, to, "hello", from), 0) << "at once";
        const Fd udp = open_socket(pod.ns(), Transport::udp, GetParam(), from);
        ASSERT_EQ(connect_to(udp, to), 0);
        EXPECT_TRUE(wait_until([&] {
            (void)send_text(udp, "hello");
            return receive(udp, 5, std::chrono::milliseconds(100)).text == "hello";
        }));
    }
    static constexpr std::uint16_t kPodPort = 41000;

    std::shared_ptr<Container> chained_, foreign_;
};

TEST_P(Inside, NobodyOnTheLanSpeaksForPodsBehindBridges) {
    const auto pod = add_pod();
    const EchoServer server(pod->ns(), GetParam(), kPort);
    for (const auto &one : {chained_, foreign_}) {
        SCOPED_TRACE(one == chained_ ? "chained" : "foreign");
        EXPECT_FALSE(converses(cluster_addr(*one), addr(*pod)));
        for (const Transport transport : {Transport::tcp, Transport::udp}) // nor does the attempt harm it
            EXPECT_EQ(ask(one->ns(), transport, {addr(*pod), kPort}), 0);
    }
    EXPECT_EQ(ask(far_->ns(), Transport::tcp, {addr(*pod), kPort}), 0);
}

// A link of the node that no network calls an uplink is inside; a default route's is not, nor is one of a network.
TEST_P(Inside, HostsOnOtherUplinksAreReachedByTheLan) {
    const auto pod = add_pod({{"clusterCIDRs", {"203.0.113.0/24"}}});
    lab_.add(node().container(), "eth0", 1);
    const EchoServer server(pod->ns(), GetParam(), kPort);
    for (const int provider : {0, 1})
        EXPECT_TRUE(may_converse(ip(SourceLab::on_link(provider, 1, GetParam())), addr(*pod))) << provider;
    EXPECT_TRUE(may_converse(ip(SourceLab::client_addr(0, GetParam())), addr(*pod))) << "behind the default route";
}

TEST_P(Inside, ClusterRangesAreInsideIfTheyHaveARouteOfTheirOwn) {
    const std::string range = GetParam() ? "198.18.200.0/24" : "2001:db8:1c::/64";
    const ip_addr elsewhere = ip(GetParam() ? "198.18.200.7" : "2001:db8:1c::7");
    const auto pod = add_pod({{"clusterCIDRs", {range}}});
    const EchoServer server(pod->ns(), GetParam(), kPort);
    const bool has_one_default_route = GetParam();
    EXPECT_TRUE(!has_one_default_route || may_converse(elsewhere, addr(*pod))) << "it has no route of its own yet";
    node().run((GetParam() ? "ip route add " : "ip -6 route add ") + range + " via " +
               SourceLab::on_link(0, 9, GetParam()));
    EXPECT_TRUE(wait_until([&] { return !converses(elsewhere, addr(*pod)); }));
}

TEST_P(Inside, ThePodReachesPodsBehindBridgesOnTheNode) {
    const auto pod = add_pod();
    const Wire lan(switch_->ns(), "port0");
    const EchoServer server(chained_->ns(), GetParam(), kPort);
    for (const Transport transport : {Transport::tcp, Transport::udp})
        EXPECT_EQ(ask(pod->ns(), transport, {cluster_addr(*chained_), kPort}, "hello", {addr(*pod), 0}), 0);
    EXPECT_EQ(run(pod->ns(), words("ping -c 1 -W 2 -s 3000 -I " + to_string(addr(*pod)) + " " +
                                   to_string(cluster_addr(*chained_))))
                  .rc,
              0)
        << "in fragments";
    EXPECT_EQ(frames_from(lan, addr(*pod)), 0U);
}

// Nor does one who spoke in a pod's name before the pod was there, or while it restarts, keep the flows.
TEST_P(Inside, FlowsFollowAnAddressThatBecomesAPods) {
    const auto pod = add_pod();
    use_by_lan(*pod);
    const std::string prefix = to_string(moving()) + (GetParam() ? "/24" : "/64");
    const Json ipam = {{"type", "static"}, {"addresses", {{{"address", prefix}}}}};
    const auto owner = node().container();
    lab_.add(owner, {"eth0", "moving", {node().config({{"ipam", ipam}})}});
    expect_followed(*pod, owner->ns());
}

TEST_P(Inside, FlowsFollowAnAddressThatBecomesTheNodes) {
    const auto pod = add_pod();
    use_by_lan(*pod);
    node().run("ip addr add " + to_string(moving()) + (GetParam() ? "/32" : "/128 nodad") + " dev lo");
    expect_followed(*pod, node().ns());
}

// A pod behind a bridge is a pod of this node: only its groups count, whatever the cluster's ranges are.
TEST_P(Inside, IsolationKnowsPodsBehindBridges) {
    const Json ranges = {"198.18.0.0/16", "2001:db8:10::/44"};
    const auto isolated = node().container(), of_group = node().container();
    lab_.add(isolated, "eth0", 0, {{"isolation", "network"}, {"clusterCIDRs", ranges}});
    lab_.add(of_group, "eth0", 1, {{"isolation", "group"}, {"groups", {"name:tenant-a"}}});
    const auto member = add_behind("br3", "99", "1d",
                                   Json{{"type", "podlane"}, {"bpffs", node().bpffs()}, {"groups", {"name:tenant-a"}}});
    for (const Container *pod : {isolated.get(), of_group.get()}) {
        const EchoServer server(pod->ns(), GetParam(), kPort);
        for (const auto &sender : {chained_, member}) {
            const bool shares = pod == of_group.get() && sender == member;
            const Fd socket = open_socket(sender->ns(), Transport::tcp, GetParam());
            const Endpoint to{cluster_addr(*pod), kPort};
            EXPECT_EQ(connect_to(socket, to, shares ? patience() : quiet()), shares ? 0 : ETIMEDOUT);
        }
    }
}

// All who are behind a bridge come by it, whomever they claim to be.
TEST_P(Inside, NobodyBehindABridgeIsTakenForAPodThatIsNot) {
    node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.br2.rp_filter=0");
    const Json keys = {{"isolation", "group"}, {"groups", {"name:tenant-a"}}};
    const auto isolated = node().container(), of_group = node().container();
    lab_.add(isolated, "eth0", 0, keys);
    lab_.add(of_group, "eth0", 0, keys);
    const ip_addr as = cluster_addr(*of_group);
    (void)foreign_->run("ip addr add " + to_string(as) + (GetParam() ? "/32" : "/128 nodad") + " dev lo");
    const Fd socket = open_socket(foreign_->ns(), Transport::udp, GetParam(), {as, 0});
    ASSERT_EQ(connect_to(socket, {cluster_addr(*isolated), kPort}), 0);
    const auto dropped = [&] { return lab_.count(SourceLab::host_veth(*isolated, "eth0"), REASON_DROP_ISOLATION); };
    ASSERT_EQ(dropped(), 0U);
    ASSERT_EQ(send_text(socket, "forged"), 0);
    EXPECT_TRUE(wait_until([&] { return dropped() == 1; }));
}

INSTANTIATE_TEST_SUITE_P(Family, Inside, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
