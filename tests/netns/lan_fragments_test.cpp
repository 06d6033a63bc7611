// SPDX-License-Identifier: MIT
// Pods on a LAN reply in fragments to whom the node leads to by other links: pods of other plugins and hosts of a
// subnet, which no program of Podlane is on, pods of other networks, and the node itself. All fragments take the path
// of a reply that needs none, and none is on the LAN.
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

class LanFragments : public Lan {
  protected:
    void SetUp() override {
        Lan::SetUp();
        Attach alone = lan();
        alone.ifname = "eth0";
        pod_ = node().container();
        lab_.add(pod_, alone);
        second_ = add_pod();
    }
    // A pod that a reference plugin makes, and nobody behind it.
    std::shared_ptr<Container> add_foreign(Json plugin, const std::string &third, const std::string &group) {
        plugin["ipam"] = {
            {"type", "host-local"},
            {"dataDir", node().leases()},
            {"ranges", {{{{"subnet", "198.18." + third + ".0/24"}}}, {{{"subnet", "2001:db8:" + group + "::/64"}}}}},
            {"routes", {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}}}};
        auto made = node().container();
        lab_.add(made, {"eth0", "of-" + plugin.at("type").get<std::string>(), {plugin}});
        return made;
    }
    // A host on a link of the node that leads to nobody else.
    std::shared_ptr<Container> add_host() {
        auto made = node().container("dmz");
        node().run("ip link add dmz0 type veth peer name eth0 netns " + made->path());
        for (const char *command : {"ip addr add 198.51.100.1/24 dev dmz0",
                                    "ip addr add 2001:db8:d::1/64 dev dmz0 nodad", "ip link set dmz0 up"})
            node().run(command);
        for (const char *command :
             {"ip link set lo up", "ip addr add 198.51.100.10/24 dev eth0",
              "ip addr add 2001:db8:d::10/64 dev eth0 nodad", "ip link set eth0 up",
              "ip route add default via 198.51.100.1", "ip -6 route add default via 2001:db8:d::1"})
            (void)made->run(command);
        return made;
    }
    void expect_replies(const net::Namespace &to) {
        const ip_addr own = SourceLab::addr(*pod_, "eth0", GetParam());
        const EchoServer server(pod_->ns(), GetParam(), kPort);
        const Wire lan(switch_->ns(), "port0");
        for (const std::size_t bytes : {3000, 100}) {
            SCOPED_TRACE(bytes);
            for (int i = 0; i < 2; ++i)
                EXPECT_EQ(ask(to, Transport::udp, {own, kPort}, std::string(bytes, 'x')), 0);
            for (const ip_addr &of : {own, addr(*second_)})
                EXPECT_THAT(
                    run(to, words("ping -n -q -c 2 -i 0.2 -W 2 -s " + std::to_string(bytes) + " " + to_string(of))).out,
                    HasSubstr(" 2 received"));
        }
        EXPECT_EQ(
            std::ranges::count_if(lan.arrived(),
                                  [&](const Bytes &one) { return is_from(one, own) || is_from(one, addr(*second_)); }),
            0)
            << "on the LAN";
    }
    // It calls the pod, and the pod calls it back at the address that it had.
    void expect_calls(const net::Namespace &other) {
        const std::string text(3000, 'x');
        const Wire lan(switch_->ns(), "port0");
        const ip_addr own = SourceLab::addr(*pod_, "eth0", GetParam());
        const EchoServer at_pod(pod_->ns(), GetParam(), kPort), at_other(other, GetParam(), kPort);
        ASSERT_EQ(ask(other, Transport::udp, {own, kPort}, text), 0);
        EXPECT_EQ(ask(pod_->ns(), Transport::udp, {at_pod.callers().at(0), kPort}, text), 0);
        EXPECT_EQ(at_other.callers(), std::vector<ip_addr>{own});
        EXPECT_EQ(frames_from(lan, own), 0U) << "on the LAN";
    }

    std::shared_ptr<Container> pod_, second_; // with an interface on the LAN alone, and with another one
};

TEST_P(LanFragments, ReachAPodOfPtp) { expect_replies(add_foreign({{"type", "ptp"}}, "88", "1b")->ns()); }

TEST_P(LanFragments, ReachAPodOfBridge) {
    expect_replies(add_foreign({{"type", "bridge"}, {"bridge", "br2"}, {"isGateway", true}}, "99", "1d")->ns());
}

TEST_P(LanFragments, ReachAHostOnAnotherLink) { expect_replies(add_host()->ns()); }

TEST_P(LanFragments, GoBothWaysWithTheNodeAndAPodOfAnotherNetwork) {
    const auto pod = node().container();
    lab_.add(pod, "eth0", 0);
    for (const net::Namespace *other : {&node().ns(), &pod->ns()}) {
        SCOPED_TRACE(other == &pod->ns() ? "the pod" : "the node");
        expect_replies(*other);
        expect_calls(*other);
    }
}

INSTANTIATE_TEST_SUITE_P(Family, LanFragments, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
