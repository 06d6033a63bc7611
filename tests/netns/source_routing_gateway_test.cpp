// SPDX-License-Identifier: MIT
// The next hop of a network's egress route: of the lease, of the configuration, of one attachment.
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

// Each address has the gateway of its own range.
TEST_P(Lan, EachAddressHasItsOwnGateway) {
    (void)router_->run("ip addr add 192.168.133.2/24 dev eth0");
    (void)router_->run("ip addr add 2001:db8:133::2/64 dev eth0 nodad");
    const std::string first = GetParam() ? "192.168.133.1" : "2001:db8:133::1";
    const std::string second = GetParam() ? "192.168.133.2" : "2001:db8:133::2";
    Attach two = lan();
    Json range = two.plugins.at(0).at("ipam").at("ranges").at(GetParam() ? 0 : 1).at(0);
    Json other = range;
    range["rangeEnd"] = GetParam() ? "192.168.133.205" : "2001:db8:133::205";
    other.update({{"rangeStart", GetParam() ? "192.168.133.206" : "2001:db8:133::206"}, {"gateway", second}});
    two.plugins[0]["ipam"]["ranges"] = {Json::array({range}), Json::array({other})};
    const auto pod = node().container();
    lab_.add(pod, "eth0", 0);
    lab_.add(pod, two);
    auto own = SourceLab::addrs(*pod, "net1", GetParam());
    ASSERT_EQ(own.size(), 2U);
    if (to_string(own[0]).ends_with("206"))
        std::swap(own[0], own[1]);
    EXPECT_EQ(next_hop(*pod, own[0]), first);
    EXPECT_EQ(next_hop(*pod, own[1]), second);
    const EchoServer server(pod->ns(), GetParam(), kPort);
    for (const ip_addr &one : own)
        for (const char *how : kHows)
            EXPECT_TRUE(gets_answer(far_->ns(), how, one, kPort)) << how << to_string(one);
}

// The egress route is looked up if it is not named: the default route of a table, or the link that has the gateway.
TEST_P(Lan, TheUplinkIsFoundByTableOrGateway) {
    (void)router_->run("ip addr add 192.168.133.2/24 dev eth0");
    (void)router_->run("ip addr add 2001:db8:133::2/64 dev eth0 nodad");
    node().run("ip route add default via 192.168.133.2 dev lan0 onlink table 133");
    node().run("ip -6 route add default via 2001:db8:133::2 dev lan0 onlink table 133");
    node().run("ip route add 192.168.133.2/32 dev lan0");
    const Json gateways = {"192.168.133.2", "2001:db8:133::2"};
    for (const Json &keys :
         {Json{{"uplink", nullptr}, {"table", 133}}, Json{{"uplink", nullptr}, {"gateway", gateways}}}) {
        const auto pod = node().container();
        lab_.add(pod, "eth0", 0);
        lab_.add(pod, lan(keys));
        EXPECT_EQ(next_hop(*pod, addr(*pod)), gateways.at(GetParam() ? 0 : 1)) << keys;
        const EchoServer server(pod->ns(), GetParam(), kPort);
        for (const char *how : kHows)
            EXPECT_TRUE(gets_answer(far_->ns(), how, addr(*pod), kPort)) << how << keys;
        EXPECT_EQ(lab_.check(pod, "net1").rc, 0) << lab_.check(pod, "net1");
        EXPECT_EQ(lab_.del(pod, "net1").rc, 0);
    }
    EXPECT_EQ(lab_.try_add(node().container(), lan({{"uplink", nullptr}, {"table", 134}})).code(), 7);
}

// As multus hands it on: of two attachments to one network, each has the gateway that its cni-args name.
TEST_P(Lan, AnAttachmentHasAGatewayOfItsOwn) {
    (void)router_->run("ip addr add 192.168.133.2/24 dev eth0");
    (void)router_->run("ip addr add 2001:db8:133::2/64 dev eth0 nodad");
    const auto keys_with = [](const std::string &gateway) {
        return Json{{"podMay", {{"gateway", {{"within", {"192.168.133.0/30", "2001:db8:133::/126"}}}}}},
                    {"podMayNot", "refuse"},
                    {"args", {{"cni", {{"podlane/gateway", gateway}}}}}};
    };
    const auto pod = add_pod(keys_with("192.168.133.2,2001:db8:133::2"));
    const auto other = add_pod();
    EXPECT_EQ(next_hop(*pod, addr(*pod)), GetParam() ? "192.168.133.2" : "2001:db8:133::2");
    EXPECT_EQ(next_hop(*other, addr(*other)), GetParam() ? "192.168.133.1" : "2001:db8:133::1");
    for (const auto &one : {pod, other}) {
        const EchoServer server(one->ns(), GetParam(), kPort);
        for (const char *how : kHows)
            EXPECT_TRUE(gets_answer(far_->ns(), how, addr(*one), kPort)) << how;
        EXPECT_EQ(lab_.check(one, "net1").rc, 0) << lab_.check(one, "net1");
        EXPECT_EQ(lab_.del(one, "net1").rc, 0);
    }
    for (const char *wrong : {"192.168.133.9", "192.168.133.0/30", "192.168.133.1,192.168.133.2", "x", ""})
        EXPECT_EQ(lab_.try_add(node().container(), lan(keys_with(wrong))).code(), 7) << wrong;
    Json elsewhere = keys_with("192.168.133.2");
    elsewhere["uplink"] = nullptr;
    EXPECT_EQ(lab_.try_add(node().container(), lan(elsewhere)).code(), 7) << "a pod chooses no uplink";
}

INSTANTIATE_TEST_SUITE_P(Family, Lan, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
