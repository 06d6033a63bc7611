// SPDX-License-Identifier: MIT
// The ways to be called: as the main plugin, after an IPAM plugin, after another main plugin, and before others.
// Podlane with the other plugins of a node: before it, beside it and behind it.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

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
        const Json result = succeeded(chain.add(*container)).json;
        return look_at(std::move(container), result);
    }
    void expect_programs_on(std::uint32_t ifindex) const {
        for (const Hook hook : {Hook::ingress, Hook::egress})
            EXPECT_EQ(programs(ifindex, hook).size(), 1U) << (hook == Hook::ingress ? "ingress" : "egress");
    }
    // From outside by the node's port 8088; nothing is left after DEL.
    void expect_served_by_host_port(Chain &chain, const Container &container) {
        const EchoServer server(container.ns(), true, 8080);
        EXPECT_EQ(ask(outside_->ns(), Transport::tcp, {require(parse_ip("203.0.113.2")), 8088}), 0);
        EXPECT_EQ(chain.del(container).rc, 0);
        EXPECT_THAT(node_.state(), HasSubstr("endpoints_v1: 0\n"));
        EXPECT_TRUE(node_.leased().empty());
    }
    // Two pods are connected by this list and recorded with this mode, and are gone without a trace after their DELs,
    // behind an IPAM plugin the last one without prevResult.
    void expect_two_pods(Chain &chain, std::uint32_t mode, const std::function<void(const Pod &)> &look) {
        const Pod a = must_add(chain, node_.container());
        const Pod b = must_add(chain, node_.container());
        EXPECT_EQ(record(b).mode, mode);
        expect_programs_on(b.ifindex);
        look(b);
        EXPECT_THAT(chain.check(*b.container), succeeds());
        EXPECT_TRUE(ping(a.container->ns(), b.text4()));
        // All namespaces of the machine share one ICMPv6 socket a processor: while replies of another one wait for an
        // address that nobody has, its send buffer is full, and an echo is not answered.
        EXPECT_TRUE(wait_until([&] { return ping(a.container->ns(), b.text6()); }, patience() * 3));
        EXPECT_EQ(chain.del(*b.container).rc, 0);
        EXPECT_EQ(chain.del(*a.container, mode == ENDPOINT_AFTER_IPAM).rc, 0);
    }

    const Json portmap_ = {{"type", "portmap"}, {"capabilities", {{"portMappings", true}}}, {"snat", true}};
    const Json mappings_ = {{{"hostPort", 8088}, {"containerPort", 8080}, {"protocol", "tcp"}}};
};

TEST_F(ModesTest, AfterAnIpamPluginItMakesTheInterface) {
    // As a plugin of the list host-local finds its own keys in "ipam".
    Chain chain(node_, {{{"type", "host-local"}, {"ipam", node_.ipam()}}, podlane()});
    const std::string before = node_.state();
    expect_two_pods(chain, ENDPOINT_AFTER_IPAM, [](const Pod &b) { EXPECT_EQ(b.result["interfaces"].size(), 2U); });
    EXPECT_EQ(node_.state(), before);
}

TEST_F(ModesTest, AfterPtpItAttachesItsProgramsToTheHostVeth) {
    Chain chain(node_, {main_plugin("ptp"), podlane()});
    const std::string before = node_.state();
    expect_two_pods(chain, ENDPOINT_AFTER_MAIN, [](const Pod &) {});
    EXPECT_EQ(node_.state(), before);

    // Its DEL comes first, and leaves the other plugin's interface set down: nothing checks its packets any more.
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

TEST_F(ModesTest, AfterBridgeItAttachesItsProgramsToThePort) {
    Chain chain(node_, {main_plugin("bridge", {{"bridge", "br0"}, {"isGateway", true}}), podlane()});
    expect_two_pods(chain, ENDPOINT_AFTER_MAIN, [&](const Pod &b) {
        EXPECT_EQ(host_link(b)["master"], "br0");
        EXPECT_EQ(record(b).flags & (INTERFACE_FAST_LOCAL | INTERFACE_FAST_UPLINK), 0U + INTERFACE_FAST_UPLINK)
            << "a bridge forwards by MAC";
    });
    EXPECT_THAT(node_.state(), HasSubstr("endpoints_v1: 0\n"));
    EXPECT_TRUE(node_.leased().empty());
}

// The pods of two VLANs of a bridge have addresses of one range.
TEST_F(ModesTest, VlansOfABridgeStaySeparate) {
    if (run(node_.ns(), words("ip link add br0 type bridge vlan_filtering 1")).rc != 0)
        GTEST_SKIP() << "this kernel has no VLANs in bridges";
    const auto in_vlan = [&](int number) {
        return Chain(node_, {main_plugin("bridge", {{"bridge", "br0"}, {"vlan", number}}), podlane()});
    };
    Chain one = in_vlan(100);
    Chain other = in_vlan(200);
    const Pod apart = must_add(other, node_.container());
    expect_two_pods(one, ENDPOINT_AFTER_MAIN, [&](const Pod &b) {
        const auto reached = [&](const std::string &address) {
            return run(b.container->ns(), words("ping -n -q -c 2 -i 0.2 -W 1 " + address)).rc == 0;
        };
        EXPECT_FALSE(reached(apart.text4()));
        EXPECT_FALSE(reached(apart.text6()));
    });
    EXPECT_EQ(other.del(*apart.container).rc, 0);
    EXPECT_THAT(node_.state(), HasSubstr("endpoints_v1: 0\n"));
}

// portmap 1.1 looks for its IPv4 rules in ip6tables when there are two families, and so fails its own CHECK.
// The usual list of a node, with plugins that look for the host-side veth and change the container after Podlane.
// The bandwidth plugin makes an ingress qdisc: there is room for it beside tcx, none beside clsact.
TEST_F(ModesTest, WorksBeforeTheUsualPlugins) {
    if (!kernel_can_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    Chain chain(node_, {podlane({{"ipam", node_.ipam()}}),
                        portmap_,
                        {{"type", "bandwidth"}, {"capabilities", {{"bandwidth", true}}}},
                        {{"type", "sbr"}},
                        {{"type", "tuning"}, {"sysctl", {{"net.ipv4.conf.eth0.arp_ignore", "1"}}}}});
    chain.capability_args = {
        {"portMappings", mappings_},
        {"bandwidth",
         {{"ingressRate", 100000000}, {"ingressBurst", 8000000}, {"egressRate", 100000000}, {"egressBurst", 8000000}}}};
    auto container = node_.container();
    const Reply reply = chain.add(*container);
    if (reply.rc != 0 && reply.out.find("not supported") != std::string::npos)
        GTEST_SKIP() << "this kernel lacks what the bandwidth plugin needs: " << reply;
    ASSERT_EQ(reply.rc, 0) << reply;
    const Pod made = look_at(container, reply.json);
    EXPECT_EQ(chain.check(*container, "portmap").rc, 0) << chain.check(*container, "portmap");
    expect_served_by_host_port(chain, *container);
}

TEST_F(ModesTest, WorksBeforePortmapAndFirewall) {
    Chain chain(node_, {podlane({{"ipam", node_.ipam()}}),
                        portmap_,
                        {{"type", "firewall"}, {"backend", "iptables"}},
                        {{"type", "sbr"}},
                        {{"type", "tuning"}, {"mtu", 1300}}});
    chain.capability_args = {{"portMappings", mappings_}};
    const Pod made = must_add(chain, node_.container());
    EXPECT_EQ(chain.check(*made.container, "portmap").rc, 0) << chain.check(*made.container, "portmap");
    // From its address: what is bound to none has no route any more after sbr.
    EXPECT_EQ(run(made.container->ns(), words("ping -n -c 1 -W 5 -I " + made.text4() + " 203.0.113.2")).rc, 0);
    EXPECT_EQ(run(made.container->ns(), words("ping -n -c 1 -W 5 -I " + made.text6() + " 2001:db8:cafe::2")).rc, 0);
    expect_served_by_host_port(chain, *made.container);
}

// The use of such an interface is in source_routing_pod_rules_test.cpp.
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

class OtherPlugins : public VerbsTest {};

// flannel's plugin with `"delegate": {"type": "podlane", …}`: name, MTU, masquerade, the node's ranges, and the
// network's own routes.
class Flannel : public OtherPlugins {
  protected:
    [[nodiscard]] Json delegate(const Json &keys) const {
        Json config = {{"mtu", 1370}, {"ipMasq", false}, {"ipam", node_.ipam()}};
        config["ipam"]["routes"] = {{{"dst", "198.18.0.0/16"}}, {{"dst", "2001:db8:8::/47"}}};
        config["runtimeConfig"] = {{"bandwidth", {{"ingressRate", 10000000}, {"ingressBurst", 2147483647}}}};
        config.update(keys);
        return config;
    }
    [[nodiscard]] static std::string default_gateway(const Pod &pod, bool ipv4) {
        const Json found =
            find(ip_json(pod.container->ns(), ipv4 ? "-4 route show" : "-6 route show"), "dst", "default");
        return found.is_null() ? "" : found.at("gateway").get<std::string>();
    }
    static void expect_gateways(const Pod &pod) {
        EXPECT_EQ(default_gateway(pod, true), kGateway4);
        EXPECT_EQ(default_gateway(pod, false), kGateway6);
    }
};

// As kube-flannel's own configuration has it for the bridge plugin.
TEST_F(Flannel, GivesPodsADefaultRouteWithItsOwnKeys) {
    const Json keys = delegate({{"hairpinMode", true}, {"isDefaultGateway", true}});
    const std::string before = node_.state();
    const auto container = node_.container();
    const Reply added = succeeded(add(*container, keys));
    EXPECT_THAT(added.err, testing::HasSubstr("\"hairpinMode\" is a key of other plugins and has no effect"));
    const Pod pod = look_at(container, added.json);
    EXPECT_EQ(pod.mtu, 1370U);
    expect_gateways(pod);
    for (const std::string outside : {"203.0.113.2", "2001:db8:cafe::2"})
        EXPECT_TRUE(ping(container->ns(), outside, 3)) << node_.podlanectl("counter list").out;
    EXPECT_THAT(check(pod, keys), succeeds());
    const Reply deleted = del(*container, keys);
    EXPECT_THAT(deleted, succeeds());
    EXPECT_THAT(deleted.err, testing::Not(testing::HasSubstr("ignored")));
    EXPECT_EQ(node_.state(), before);
}

TEST_F(Flannel, GivesPodsADefaultRouteWithPodlanesKey) {
    expect_gateways(make(delegate({{"defaultRoute", true}})));
    const Pod without = make(delegate(Json::object()));
    EXPECT_EQ(default_gateway(without, true), "") << "the lease's routes say what is reached";
}

// multus calls one network after the other for a container.
class Multus : public OtherPlugins {
  protected:
    [[nodiscard]] Json second_network(const Json &more = Json::object()) const {
        Json keys = {{"name", "second"}, {"ipam", node_.ipam()}};
        keys["ipam"]["ranges"] = {{{{"subnet", "198.18.7.0/24"}}}, {{{"subnet", "2001:db8:7::/64"}}}};
        keys.update(more);
        return keys;
    }
    Reply add_net1(const Container &container, const Json &keys) const {
        return add(container, keys, {{"CNI_IFNAME", "net1"}});
    }
    static std::size_t default_routes(const Container &container, const char *family) {
        return ip_json(container.ns(), std::string(family) + " route show default").size();
    }
    [[nodiscard]] Reply check_net1(const Container &container, Json keys, const Json &result) const {
        keys["prevResult"] = result;
        return node_.cni("CHECK", node_.config(keys), container, {{"CNI_IFNAME", "net1"}});
    }
};

TEST_F(Multus, AnotherNetworkAddsNoDefaultRouteUnlessConfigured) {
    for (const bool asked : {false, true}) {
        const Pod pod = make();
        const Json keys = second_network(asked ? Json{{"defaultRoute", true}} : Json::object());
        const Reply added = succeeded(add_net1(*pod.container, keys));
        for (const char *family : {"-4", "-6"})
            EXPECT_EQ(default_routes(*pod.container, family), asked ? 2U : 1U) << family;
        EXPECT_EQ(added.json.contains("routes"), asked);
        EXPECT_THAT(check(pod), succeeds());
        EXPECT_THAT(check_net1(*pod.container, keys, added.json), succeeds());
        EXPECT_THAT(node_.podlanectl("doctor " + pod.container->id()).out, testing::Not(testing::HasSubstr("route")));
        EXPECT_THAT(del(*pod.container, keys, {{"CNI_IFNAME", "net1"}}), succeeds());
        EXPECT_THAT(del(*pod.container), succeeds());
    }
}

// `default-route` of a network: multus removes those of the other interfaces and adds one by the gateway.
TEST_F(Multus, MayMoveTheDefaultRouteToAnotherNetwork) {
    const Pod pod = make();
    const Reply added = succeeded(add_net1(*pod.container, second_network()));
    for (const char *command : {"ip -4 route del default", "ip -6 route del default"})
        (void)pod.container->run(command);
    EXPECT_THAT(check(pod), succeeds()) << "without a default route of either family";
    (void)pod.container->run("ip route add default via 198.18.7.1 dev net1");
    EXPECT_THAT(check(pod), succeeds());
    EXPECT_THAT(check_net1(*pod.container, second_network(), added.json), succeeds());
    EXPECT_TRUE(ping(pod.container->ns(), "203.0.113.2", 3));
    EXPECT_THAT(node_.podlanectl("doctor " + pod.container->id()).out, testing::Not(testing::HasSubstr("route")));
}

// As macvlan on the LAN that the second network takes its addresses from.
TEST_F(Multus, AGatewayOnTheLinkOfAnotherInterfaceIsReachedByThatOne) {
    const auto container = node_.container();
    for (const char *command :
         {"ip link add eth0 type veth peer name lan", "ip link set lan up", "ip addr add 198.18.7.200/24 dev eth0",
          "ip -6 addr add 2001:db8:7::200/64 dev eth0 nodad", "ip link set eth0 up"})
        (void)container->run(command);
    const Reply added = succeeded(add_net1(*container, second_network()));
    EXPECT_EQ(added.json["ips"][0]["gateway"], "198.18.7.1");
    const auto expect_reached_by_eth0 = [&] {
        for (const char *gateway : {"198.18.7.1", "2001:db8:7::1"})
            EXPECT_EQ(ip_json(container->ns(), std::string("route get ") + gateway).at(0).at("dev"), "eth0") << gateway;
        EXPECT_THAT(check_net1(*container, second_network(), added.json), succeeds());
    };
    expect_reached_by_eth0();
    for (const char *route :
         {"ip route replace default via 198.18.7.1 dev net1", "ip -6 route replace default via 2001:db8:7::1 dev net1"})
        (void)container->run(route); // as multus does for `default-route`
    EXPECT_TRUE(ping(container->ns(), "203.0.113.2", 3));
    EXPECT_TRUE(ping(container->ns(), "2001:db8:cafe::2", 3));
    expect_reached_by_eth0();
}

// Its names of interfaces do not matter, and an address that it gives twice is one.
TEST_F(OtherPlugins, AnIpamPluginMayNumberInterfacesAndRepeatItself) {
    node_.put_plugin("numbering-ipam", R"(#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion": "1.0.0", "interfaces": [{"name": "lease"}],
  "ips": [{"address": "198.18.9.5/24", "interface": 0}, {"address": "198.18.9.5/24", "interface": 0}]}'
exit 0)");
    const Json keys = {{"ipam", {{"type", "numbering-ipam"}}}};
    const auto container = node_.container();
    const Reply added = succeeded(add(*container, keys));
    ASSERT_EQ(added.json["ips"].size(), 1U) << added.json;
    EXPECT_EQ(added.json["ips"][0]["address"], "198.18.9.5/32");
    EXPECT_EQ(added.json["ips"][0]["interface"], 1) << "the container's";
    EXPECT_EQ(added.json["interfaces"].size(), 2U);
    EXPECT_THAT(check(look_at(container, added.json), keys), succeeds());
    EXPECT_THAT(del(*container, keys), succeeds());
}

// Its daemon does not run. A DEL that failed would keep the pod that never started.
TEST_F(OtherPlugins, DhcpIsRefusedByNameAndDeleted) {
    const Json keys = {{"ipam", {{"type", "dhcp"}}}};
    const auto container = node_.container();
    EXPECT_THAT(add(*container, keys), fails_with(2, {"the IPAM plugin \"dhcp\""}));
    EXPECT_THAT(del(*container, keys), succeeds());
    EXPECT_THAT(node_.cni("STATUS", node_.config({{"cniVersion", "1.1.0"}, {"ipam", {{"type", "dhcp"}}}}), *container),
                fails_with(2, {"the IPAM plugin \"dhcp\""}));
}

// Without IgnoreUnknown; host-local refuses what it does not know.
TEST_F(OtherPlugins, ArgumentsOfNomadAndNerdctlAreAccepted) {
    const Variables arguments = {{"CNI_ARGS", "NOMAD_REGION=global;NOMAD_JOB_ID=web;NERDCTL_CNI_DHCP_HOSTNAME=web-0"}};
    const auto container = node_.container();
    const Reply added = succeeded(add(*container, Json::object(), arguments));
    EXPECT_THAT(check(look_at(container, added.json), Json::object(), arguments), succeeds());
    const Reply deleted = del(*container, Json::object(), arguments);
    EXPECT_THAT(deleted, succeeds());
    EXPECT_EQ(deleted.err, "");
    EXPECT_EQ(node_.leased(), std::vector<std::string>{});
}

} // namespace
} // namespace podlane::test
