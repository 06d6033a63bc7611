// SPDX-License-Identifier: MIT
// The ways to be called: as the main plugin, after an IPAM plugin, after another main plugin, and before others.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;

// A list of plugins, as a runtime uses it: ADD, CHECK, traffic, DEL, and nothing is left.
class ModesTest : public VerbsTest {
  protected:
    [[nodiscard]] Json podlane(const Json &keys = Json::object()) const {
        Json config = {{"type", "podlane"}, {"bpffs", node_.bpffs()}, {"firstPacket", "direct"}};
        config.update(keys);
        return config;
    }
    [[nodiscard]] Json main_plugin(const std::string &type, const Json &keys = Json::object()) const {
        Json config = {{"type", type}, {"ipam", node_.ipam()}};
        config["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
        config.update(keys);
        return config;
    }
    [[nodiscard]] Pod must_add(Chain &chain, std::shared_ptr<Container> container) const {
        const Reply reply = chain.add(*container);
        if (reply.rc != 0)
            throw std::runtime_error("ADD failed: " + reply.out + reply.err);
        return look_at(std::move(container), reply.json);
    }
    void expect_programs_on(std::uint32_t ifindex) const {
        for (const Hook hook : {Hook::ingress, Hook::egress})
            EXPECT_EQ(programs(ifindex, hook).size(), 1U) << (hook == Hook::ingress ? "ingress" : "egress");
    }
};

TEST_F(ModesTest, AfterAnIpamPluginItMakesTheInterface) {
    // As a plugin of the list host-local finds its own keys in "ipam".
    Chain chain(node_, {{{"type", "host-local"}, {"ipam", node_.ipam()}}, podlane()});
    const std::string before = node_.state();
    const Pod a = must_add(chain, node_.container());
    const Pod b = must_add(chain, node_.container());
    EXPECT_EQ(record(b).mode, ENDPOINT_AFTER_IPAM);
    EXPECT_EQ(b.result["interfaces"].size(), 2U);
    EXPECT_EQ(chain.check(*b.container).rc, 0) << chain.check(*b.container);
    EXPECT_TRUE(ping(a.container->ns(), b.text4()));
    EXPECT_TRUE(ping(a.container->ns(), b.text6()));
    expect_programs_on(b.ifindex);
    EXPECT_EQ(chain.del(*b.container).rc, 0);
    EXPECT_EQ(chain.del(*a.container, true).rc, 0);
    EXPECT_EQ(node_.state(), before);
}

TEST_F(ModesTest, AfterPtpItPutsItsProgramsOnTheHostVeth) {
    Chain chain(node_, {main_plugin("ptp"), podlane()});
    const std::string before = node_.state();
    const Pod a = must_add(chain, node_.container());
    const Pod b = must_add(chain, node_.container());
    EXPECT_EQ(record(b).mode, ENDPOINT_AFTER_MAIN);
    expect_programs_on(b.ifindex);
    EXPECT_EQ(chain.check(*b.container).rc, 0) << chain.check(*b.container);
    EXPECT_TRUE(ping(a.container->ns(), b.text4()));
    EXPECT_TRUE(ping(a.container->ns(), b.text6()));
    EXPECT_EQ(chain.del(*b.container).rc, 0);
    EXPECT_EQ(chain.del(*a.container).rc, 0);
    EXPECT_EQ(node_.state(), before);
}

// Podlane's DEL comes first, and leaves the other plugin's interface set down: nothing checks its packets any more.
TEST_F(ModesTest, DelAfterPtpTakesOffItsProgramsOnly) {
    Chain chain(node_, {main_plugin("ptp"), podlane()});
    const Pod made = must_add(chain, node_.container());
    ASSERT_THAT(node_.cni("DEL", chain.config(1, made.result), *made.container), succeeds());
    for (const Hook hook : {Hook::ingress, Hook::egress})
        EXPECT_TRUE(programs(made.ifindex, hook).empty());
    EXPECT_EQ(host_link(made).at("operstate"), "DOWN");
    EXPECT_EQ(chain.del(*made.container).rc, 0);
}

// The result is the other plugin's, in full.
TEST_F(ModesTest, AfterAMainPluginTheResultIsHandedOn) {
    Chain alone(node_, {main_plugin("ptp")});
    auto container = node_.container();
    Reply of_ptp = alone.add(*container);
    ASSERT_EQ(of_ptp.rc, 0) << of_ptp;
    of_ptp.json.erase("dns"); // an empty one
    Json config = podlane({{"cniVersion", "1.0.0"}, {"name", "pods"}, {"prevResult", of_ptp.json}});
    const Reply of_podlane = node_.cni("ADD", config, *container);
    EXPECT_EQ(of_podlane.json, of_ptp.json);
    EXPECT_EQ(node_.cni("DEL", config, *container).rc, 0);
    EXPECT_EQ(alone.del(*container).rc, 0);
}

TEST_F(ModesTest, AfterBridge) {
    Chain chain(node_, {main_plugin("bridge", {{"bridge", "br0"}, {"isGateway", true}}), podlane()});
    const Pod a = must_add(chain, node_.container());
    const Pod b = must_add(chain, node_.container());
    const std::string master = host_link(b)["master"];
    EXPECT_EQ(master, "br0");
    EXPECT_EQ(record(b).mode, ENDPOINT_AFTER_MAIN);
    EXPECT_EQ(record(b).flags & (INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK), 0U + INTERFACE_FAST_UPLINK)
        << "a bridge forwards by MAC";
    expect_programs_on(b.ifindex);
    EXPECT_EQ(chain.check(*b.container).rc, 0) << chain.check(*b.container);
    EXPECT_TRUE(ping(a.container->ns(), b.text4()));
    EXPECT_TRUE(ping(a.container->ns(), b.text6()));
    EXPECT_EQ(chain.del(*b.container).rc, 0);
    EXPECT_EQ(chain.del(*a.container).rc, 0);
    EXPECT_THAT(node_.state(), HasSubstr("endpoints_v1: 0\n"));
    EXPECT_TRUE(node_.leased().empty());
}

// portmap 1.1 looks for its IPv4 rules in ip6tables when there are two families, and so fails its own CHECK.
// The usual list of a node, with plugins that look for the host-side veth and change the container after Podlane.
// The bandwidth plugin makes an ingress qdisc: there is room for it beside tcx, none beside clsact.
TEST_F(ModesTest, BeforeTheUsualPlugins) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    const Json main = podlane({{"ipam", node_.ipam()}});
    Chain chain(node_, {main,
                        {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}},
                        {{"type", "bandwidth"}, {"capabilities", {{"bandwidth", true}}}},
                        {{"type", "sbr"}},
                        {{"type", "tuning"}, {"sysctl", {{"net.ipv4.conf.eth0.arp_ignore", "1"}}}}});
    chain.capability_args = {
        {"portMappings", {{{"hostPort", 8088}, {"containerPort", 8080}, {"protocol", "tcp"}}}},
        {"bandwidth",
         {{"ingressRate", 100000000}, {"ingressBurst", 8000000}, {"egressRate", 100000000}, {"egressBurst", 8000000}}}};
    auto container = node_.container();
    const Reply reply = chain.add(*container);
    if (reply.rc != 0 && reply.out.find("not supported") != std::string::npos)
        GTEST_SKIP() << "this kernel lacks what the bandwidth plugin needs: " << reply;
    ASSERT_EQ(reply.rc, 0) << reply;
    const Pod made = look_at(container, reply.json);
    EXPECT_EQ(chain.check(*container, "portmap").rc, 0) << chain.check(*container, "portmap");
    const EchoServer server(container->ns(), true, 8080);
    EXPECT_EQ(ask(outside_->ns(), Transport::tcp, {require(parse_ip("203.0.113.2")), 8088}), 0);
    EXPECT_EQ(chain.del(*container).rc, 0);
    EXPECT_THAT(node_.state(), HasSubstr("endpoints_v1: 0\n"));
    EXPECT_TRUE(node_.leased().empty());
}

TEST_F(ModesTest, BeforePortmapAndFirewall) {
    const Json main = podlane({{"ipam", node_.ipam()}});
    Chain chain(node_, {main,
                        {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}},
                        {{"type", "firewall"}, {"backend", "iptables"}},
                        {{"type", "sbr"}},
                        {{"type", "tuning"}, {"mtu", 1300}}});
    chain.capability_args = {{"portMappings", {{{"hostPort", 8088}, {"containerPort", 8080}, {"protocol", "tcp"}}}}};
    const Pod made = must_add(chain, node_.container());
    EXPECT_EQ(chain.check(*made.container, "portmap").rc, 0) << chain.check(*made.container, "portmap");
    // From its address: what is bound to none has no route any more after sbr.
    EXPECT_EQ(run(made.container->ns(), words("ping -n -c 1 -W 5 -I " + made.text4() + " 203.0.113.2")).rc, 0);
    EXPECT_EQ(run(made.container->ns(), words("ping -n -c 1 -W 5 -I " + made.text6() + " 2001:db8:cafe::2")).rc, 0);
    const EchoServer server(made.container->ns(), true, 8080);
    EXPECT_EQ(ask(outside_->ns(), Transport::tcp, {require(parse_ip("203.0.113.2")), 8088}), 0);
    EXPECT_EQ(chain.del(*made.container).rc, 0);
    EXPECT_TRUE(node_.leased().empty());
    EXPECT_THAT(node_.state(), HasSubstr("endpoints_v1: 0\n"));
}

// What such an interface is adopted for is in source_routing_pod_rules_test.cpp.
TEST_F(ModesTest, AfterAMainPluginWithoutAHostVethTheErrorSaysWhatToDo) {
    auto container = node_.container();
    const Json result = {{"cniVersion", "1.0.0"},
                         {"interfaces", {{{"name", "eth0"}, {"sandbox", container->path()}}}},
                         {"ips", {{{"address", "198.18.9.5/24"}, {"interface", 0}}}}};
    const Json config = podlane({{"cniVersion", "1.0.0"},
                                 {"name", "pods"},
                                 {"prevResult", result},
                                 {"ipMasq", true},
                                 {"log", {{"level", "error"}}}});
    const std::string before = node_.state();
    for (const char *link : {"veth peer name eth1", "bridge"}) {
        container->run(std::string("ip link add eth0 type ") + link);
        const Reply reply = node_.cni("ADD", config, *container);
        EXPECT_THAT(reply, fails_with(2, {std::string("eth0 (") + std::string(link).substr(0, 4), "ipMasq"}));
        EXPECT_THAT(reply.details(), HasSubstr("ptp"));
        EXPECT_EQ(node_.state(), before);
        container->run("ip link del eth0");
    }
}

} // namespace
} // namespace podlane::test
