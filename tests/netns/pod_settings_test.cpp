// SPDX-License-Identifier: MIT
// Settings that come with the pod: each counts if the configuration grants it, within its bounds, and comes to what the
// kernel and the real IPAM plugins have.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

constexpr const char *kAnnotations = "io.kubernetes.cri.pod-annotations";

class PodSettingsTest : public CtlTest {
  protected:
    // A configuration that grants `may`, and a pod with these annotations.
    static Json keys_of(const Json &may, const Json &annotations, const Json &more = Json::object()) {
        Json keys = {{"podMay", may}, {"podMayNot", "refuse"}, {"runtimeConfig", {{kAnnotations, annotations}}}};
        keys.update(more);
        return keys;
    }
    [[nodiscard]] static Json with_static(Json keys) {
        keys["ipam"] = {{"type", "static"}};
        return keys;
    }
    static Json of(const std::string &name, const std::string &value) { return {{name, value}}; }
};

TEST_F(PodSettingsTest, RequestedAddressesAreThoseOfHostLocal) {
    for (const char *name : {"cni.projectcalico.org/ipAddrs", "podlane/addresses"}) {
        const Json keys = keys_of({"addresses"}, of(name, R"(["198.18.9.77", "2001:db8:9::77"])"));
        const Pod pod = make(keys);
        EXPECT_EQ(pod.text4(), "198.18.9.77") << name;
        EXPECT_EQ(pod.text6(), "2001:db8:9::77") << name;
        EXPECT_TRUE(std::filesystem::exists(node_.leases() + "/pods/198.18.9.77")) << "it is the plugin's lease";
        EXPECT_THAT(check(pod, keys), succeeds());
        EXPECT_THAT(add(*node_.container(), keys), fails_with(103, {"198.18.9.77"})) << "it is taken";
        EXPECT_THAT(del(*pod.container, keys), succeeds());
        EXPECT_THAT(node_.leased(), IsEmpty());
    }
    EXPECT_EQ(make(keys_of({"addresses"}, of("podlane/addresses", "198.18.9.78"))).text4(), "198.18.9.78");
}

TEST_F(PodSettingsTest, RequestedAddressesAreThoseOfStatic) {
    const Json keys = with_static(keys_of({"addresses"}, of("podlane/addresses", "198.18.9.77, 2001:db8:9::77")));
    const Pod pod = make(keys);
    EXPECT_EQ(pod.text4(), "198.18.9.77");
    EXPECT_EQ(pod.text6(), "2001:db8:9::77");
    EXPECT_THAT(check(pod, keys), succeeds());
    EXPECT_THAT(del(*pod.container, keys), succeeds());
}

// A plugin that knows no wishes: the pod does not run with another address.
TEST_F(PodSettingsTest, AnAddressThatThePluginDoesNotGiveIsAnError) {
    node_.put_plugin("deaf-ipam", "#!/bin/sh\necho $CNI_COMMAND >>" + node_.dir() + R"(/calls
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion": "1.0.0", "ips": [{"address": "198.18.9.5/24"}]}'
exit 0)");
    const std::string before = node_.state();
    const Json keys =
        keys_of({"addresses"}, of("podlane/addresses", "198.18.9.77"), {{"ipam", {{"type", "deaf-ipam"}}}});
    EXPECT_THAT(add(*node_.container(), keys), fails_with(103, {"198.18.9.77", "deaf-ipam"}));
    EXPECT_EQ(node_.run("cat " + node_.dir() + "/calls"), "ADD\nDEL\n") << "the lease is released";
    EXPECT_EQ(node_.state(), before);
}

TEST_F(PodSettingsTest, AddressesWithoutIpamAreTheirPodsAlone) {
    const Json may = {{"addressesWithoutIpam", {{"within", {"198.18.77.0/24", "203.0.113.0/24"}}}}};
    const auto keys = [&](const std::string &addr) {
        return keys_of(may, of("cni.projectcalico.org/ipAddrsNoIpam", "[\"" + addr + "\"]"));
    };
    const Pod pod = make(keys("198.18.77.7"));
    EXPECT_EQ(pod.text4(), "198.18.77.7");
    EXPECT_EQ(pod.text6(), "");
    EXPECT_THAT(node_.leased(), IsEmpty());
    EXPECT_THAT(check(pod, keys("198.18.77.7")), succeeds());
    EXPECT_TRUE(ping(pod.container->ns(), "203.0.113.2"));
    EXPECT_THAT(add(*node_.container(), keys("198.18.77.7")), fails_with(104, {"198.18.77.7"}));
    EXPECT_THAT(add(*node_.container(), keys("203.0.113.2")), fails_with(104, {"203.0.113.2", "node's own"}));
    EXPECT_THAT(add(*node_.container(), keys("198.18.78.7")), fails_with(7, {"ipAddrsNoIpam", "within"}));
    EXPECT_TRUE(ping(pod.container->ns(), "203.0.113.2"));
    EXPECT_THAT(del(*pod.container, keys("198.18.77.7")), succeeds());
    EXPECT_THAT(del(*make(keys("198.18.77.7")).container), succeeds()) << "by the record";
}

TEST_F(PodSettingsTest, PoolsArePartsOfTheIpamPluginsConfiguration) {
    const Json pools = {{"blue", {{"ranges", {{{{"subnet", "198.18.50.0/24"}}}}}}},
                        {"blue6", {{"ranges", {{{{"subnet", "2001:db8:50::/64"}}}}}}}};
    const Json keys = keys_of(
        {"pools"},
        {{"cni.projectcalico.org/ipv4pools", R"(["blue"])"}, {"cni.projectcalico.org/ipv6pools", R"(["blue6"])"}},
        {{"pools", pools}});
    const Pod pod = make(keys);
    EXPECT_THAT(pod.text4(), testing::StartsWith("198.18.50."));
    EXPECT_THAT(pod.text6(), testing::StartsWith("2001:db8:50::"));
    EXPECT_THAT(check(pod, keys), succeeds());
    EXPECT_THAT(make(Json{{"pools", pools}}).text4(), testing::StartsWith("198.18.9.")) << "without an annotation";
    EXPECT_THAT(add(*node_.container(), keys_of({"pools"}, of("podlane/pools", "red"), {{"pools", pools}})),
                fails_with(7, {"podlane/pools", "red"}));
    EXPECT_THAT(add(*node_.container(),
                    keys_of({{"pools", {{"names", {"blue6"}}}}}, of("podlane/pools", "blue"), {{"pools", pools}})),
                fails_with(7, {"podlane/pools", "names"}));
    // The annotation is gone, and the pool too: the lease is released where it was taken.
    EXPECT_THAT(del(*pod.container), succeeds());
    EXPECT_EQ(node_.leased().size(), 2U) << "those of the other pod";
}

TEST_F(PodSettingsTest, CalicosOwnPoolsAreInTheFormOfItsIpamPlugin) {
    node_.put_plugin("calico-ipam", "#!/bin/sh\ncat >" + node_.dir() + R"(/config
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion": "1.0.0", "ips": [{"address": "198.18.9.5/24"}]}'
exit 0)");
    (void)make(keys_of({"pools"}, of("cni.projectcalico.org/ipv4pools", R"(["198.18.9.0/24"])"),
                       {{"ipam", {{"type", "calico-ipam"}}}}));
    const Json config = Json::parse(node_.run("cat " + node_.dir() + "/config"));
    EXPECT_EQ(config.at("ipam").at("ipv4_pools"), Json({"198.18.9.0/24"}));
}

TEST_F(PodSettingsTest, AnnotationsSetTheInterfaceAndItsPrograms) {
    const Json may = {{"mac", true},
                      {"mtu", true},
                      {"fastPath", true},
                      {"bandwidth", true},
                      {"allowedSources", {{"within", {"192.0.2.0/24"}}}}};
    const Json keys = keys_of(may, {{"cni.projectcalico.org/hwAddr", "02:00:00:00:00:17"},
                                    {"cni.projectcalico.org/allowedSourcePrefixes", R"(["192.0.2.128/25"])"},
                                    {"qos.projectcalico.org/ingressBandwidth", "20M"},
                                    {"qos.projectcalico.org/ingressBurst", "3M"},
                                    {"podlane/mtu", "1280"},
                                    {"podlane/fastPath", "local"}});
    const Pod pod = make(keys, named("shop", "web-0"));
    EXPECT_EQ(to_string(pod.mac), "02:00:00:00:00:17");
    EXPECT_EQ(pod.mtu, 1280U);
    const Json shown = ctl_json("endpoint show shop/web-0").at(0);
    EXPECT_THAT(shown, has_members({{"fast_path", "local"}, {"allowed_sources", Json({"192.0.2.128/25"})}}));
    EXPECT_THAT(shown["ingress_limit"], has_members({{"rate_bits_per_s", 20'000'000}, {"burst_bits", 3'000'000}}));
    EXPECT_EQ(shown["plan"], "as-planned");
    EXPECT_THAT(check(pod, keys), succeeds());
}

// A pod can only lower the administrator's limit.
TEST_F(PodSettingsTest, APodLowersAtMost) {
    const Json keys = keys_of({"mtu", "fastPath", "bandwidth"},
                              {{"podlane/mtu", "9000"}, {"podlane/fastPath", "on"}, {"podlane/ingressRate", "1G"}},
                              {{"fastPath", "off"}, {"ingressRate", 1'000'000}, {"ingressBurst", 1'000'000}});
    const Pod pod = make(keys, named("shop", "web-0"));
    EXPECT_EQ(pod.mtu, 1420U) << "the uplink's";
    const Json shown = ctl_json("endpoint show shop/web-0").at(0);
    EXPECT_EQ(shown["fast_path"], "off");
    EXPECT_EQ(shown["ingress_limit"]["rate_bits_per_s"], 1'000'000);
}

struct Setting {
    std::string annotation, value;
    Json may; // as little as grants it
};

std::vector<Setting> every_setting() {
    const Json within = {{"within", {"198.18.9.0/24"}}};
    return {{"kubernetes.io/ingress-bandwidth", "10M", {"bandwidth"}},
            {"podlane/egressRate", "10M", {"bandwidth"}},
            {"cni.projectcalico.org/ipAddrs", R"(["198.18.9.9"])", {"addresses"}},
            {"cni.projectcalico.org/ipAddrsNoIpam", R"(["198.18.9.9"])", {{"addressesWithoutIpam", within}}},
            {"cni.projectcalico.org/ipv4pools", R"(["blue"])", {"pools"}},
            {"cni.projectcalico.org/hwAddr", "02:00:00:00:00:17", {"mac"}},
            {"cni.projectcalico.org/allowedSourcePrefixes", R"(["198.18.9.0/25"])", {{"allowedSources", within}}},
            {"podlane/mtu", "1400", {"mtu"}},
            {"podlane/fastPath", "off", {"fastPath"}},
            {"podlane/routes", "198.51.100.0/24", {"routes"}},
            {"podlane/defaultRoute", "false", {"routes"}},
            {"podlane/sysctls", "net.core.somaxconn=77", {{"sysctls", {{"names", {"net.core.somaxconn"}}}}}}};
}

// As multus hands them on: the pod's annotations in runtimeConfig, `cni-args` of one attachment in args.cni.
TEST_F(PodSettingsTest, AnAttachmentHasSettingsOfItsOwn) {
    const Json may = {{"routes", {{"within", {"198.51.100.0/24", "203.0.113.0/24"}}}},
                      {"groups", {{"names", {"tenant-a"}}}},
                      {"allowedSources", {{"within", {"192.0.2.0/24"}}}},
                      {"bandwidth", true}};
    const Json annotations = {{"podlane/routes", "198.51.100.0/24"}};
    const auto keys_with = [&](const Json &args) { return keys_of(may, annotations, {{"args", {{"cni", args}}}}); };
    const Json keys = keys_with({{"podlane/routes", "203.0.113.0/25, 203.0.113.128/25"},
                                 {"podlane/defaultRoute", "false"},
                                 {"podlane/groups", "tenant-a"},
                                 {"podlane/allowedSources", "192.0.2.7"},
                                 {"podlane/egressRate", "12345678"},
                                 {"gateway", "198.18.9.1"}});
    const Pod pod = make(keys);
    const std::string routes = pod.container->run("ip route");
    EXPECT_THAT(routes, AllOf(HasSubstr("203.0.113.0/25 via"), HasSubstr("203.0.113.128/25 via")));
    EXPECT_THAT(routes, Not(AnyOf(HasSubstr("198.51.100.0"), HasSubstr("default"))));
    const Json shown = ctl_json("endpoint show " + pod.container->id());
    EXPECT_THAT(shown.dump(), AllOf(HasSubstr("tenant-a"), HasSubstr("192.0.2.7"), HasSubstr("12345678")));
    EXPECT_THAT(check(pod, keys), succeeds());
    EXPECT_THAT(del(*pod.container, keys), succeeds());

    EXPECT_THAT(make(keys_with(Json::object())).container->run("ip route"), HasSubstr("198.51.100.0/24 via"));
    EXPECT_THAT(add(*node_.container(), keys_with({{"podlane/routes", "192.0.2.0/24"}})),
                fails_with(7, {"args.cni.podlane/routes", "within"}));
}

TEST_F(PodSettingsTest, WhatIsNotGrantedIsRefusedOrIgnored) {
    const Json pools = {{"pools", {{"blue", {{"ranges", {{{{"subnet", "198.18.9.0/24"}}}}}}}}}};
    for (const Setting &one : every_setting()) {
        SCOPED_TRACE(one.annotation);
        const Json annotations = of(one.annotation, one.value);
        const std::string before = node_.state();
        EXPECT_THAT(add(*node_.container(), keys_of(Json::array(), annotations, pools)),
                    fails_with(7, {one.annotation, "may not"}));
        EXPECT_EQ(node_.state(), before);
        Json ignored = keys_of(Json::array(), annotations, pools);
        ignored["podMayNot"] = "ignore";
        const auto container = node_.container();
        const Reply reply = add(*container, ignored);
        EXPECT_THAT(reply, succeeds());
        EXPECT_THAT(reply.err, AllOf(HasSubstr(one.annotation), HasSubstr("ignored")));
        EXPECT_THAT(del(*container, ignored), succeeds());
        const auto granted = node_.container();
        EXPECT_THAT(add(*granted, keys_of(one.may, annotations, pools)), succeeds());
        EXPECT_THAT(del(*granted, keys_of(Json::array(), annotations)), succeeds()) << "DEL asks for nobody's leave";
        EXPECT_EQ(node_.state(), before);
    }
    EXPECT_THAT(add(*node_.container(), keys_of({"mtu"}, of("podlane/mtuu", "1400"))), fails_with(7, {"podlane/mtuu"}));
    EXPECT_THAT(add(*node_.container(), keys_of({"mtu"}, of("example.org/mtu", "x"))), succeeds());
}

TEST_F(PodSettingsTest, AWrongValueIsNamed) {
    const Json all = {{"addresses", true},
                      {"mac", true},
                      {"mtu", true},
                      {"fastPath", true},
                      {"groups", {{"names", {"tenant-a", "tenant-c"}}}},
                      {"sysctls", {{"names", {"net.core.somaxconn"}}}}};
    const std::string before = node_.state();
    for (const auto &[name, value] : std::vector<std::pair<std::string, std::string>>{
             {"cni.projectcalico.org/ipAddrs", "[\"x\"]"},
             {"cni.projectcalico.org/ipAddrs", "[]"},
             {"cni.projectcalico.org/ipAddrs", "[1]"},
             {"cni.projectcalico.org/ipAddrs", "[\"0.0.0.0\"]"},
             {"cni.projectcalico.org/ipAddrs", "[\"::1\"]"},
             {"cni.projectcalico.org/ipAddrs", "[\"239.0.0.1\"]"},
             {"cni.projectcalico.org/ipAddrs", "[\"ff02::1\"]"},
             {"cni.projectcalico.org/ipAddrs", "[\"198.18.9.9\"], \"x\": [1]"},
             {"cni.projectcalico.org/ipAddrs", "]}, \"x\": [\"198.18.9.9\""},
             {"podlane/addresses", "198.18.9.1,,198.18.9.2"},
             {"podlane/addresses", ""},
             {"cni.projectcalico.org/hwAddr", "01:00:00:00:00:01"},
             {"podlane/mtu", "67"},
             {"podlane/mtu", "1400, \"x\": 1"},
             {"podlane/mtu", "many"},
             {"podlane/fastPath", "fast"},
             {"podlane/groups", "tenant-b"},
             {"podlane/groups", "tenant-a, namespace:shop"},
             {"podlane/groups", ""},
             {"podlane/sysctls", "net.core.somaxconn"},
             {"podlane/sysctls", "net.core.somaxconn="},
             {"podlane/sysctls", "net.ipv4.ip_forward=1"},
             {"podlane/sysctls", "../../kernel/core_pattern=x"}})
        EXPECT_THAT(add(*node_.container(), keys_of(all, of(name, value))), fails_with(7, {name})) << value;
    EXPECT_EQ(node_.state(), before);
}

// Beside the groups of the configuration, and with what they mean for isolation.
TEST_F(PodSettingsTest, GroupsAreThoseThatThePodMayJoin) {
    const auto in = [](const std::string &groups) {
        return keys_of({{"groups", {{"names", {"tenant-a", "tenant-c"}}}}}, of("podlane/groups", groups),
                       {{"groups", {"namespace"}}, {"isolation", "group"}});
    };
    const Pod a = make(in(R"(["tenant-a", "tenant-a"])"), named("shop", "a"));
    const Pod b = make(in("tenant-a,tenant-c"), named("bank", "b"));
    const Pod c = make(in("tenant-c"), named("zoo", "c"));
    EXPECT_EQ(ctl_json("endpoint show shop/a").at(0)["groups"], Json({"namespace:shop", "tenant-a"}));
    EXPECT_EQ(ctl_json("endpoint show bank/b").at(0)["groups"], Json({"namespace:bank", "tenant-a", "tenant-c"}));
    const EchoServer server(a.ns(), true, 7);
    EXPECT_EQ(ask(b.ns(), Transport::tcp, {a.addr(true), 7}), 0);
    EXPECT_EQ(connect_to(open_socket(c.ns(), Transport::tcp, true), {a.addr(true), 7}, quiet()), ETIMEDOUT);
    EXPECT_THAT(check(a, in("tenant-a"), named("shop", "a")), succeeds());

    // Not granted: the pod is in its namespace's group only.
    Json ignored = in("tenant-a");
    ignored["podMay"] = Json::array();
    ignored["podMayNot"] = "ignore";
    const Pod d = make(ignored, named("bank", "d"));
    EXPECT_EQ(ctl_json("endpoint show bank/d").at(0)["groups"], Json({"namespace:bank"}));
    EXPECT_THAT(add(*node_.container(), keys_of({"groups"}, Json::object())), fails_with(7, {"names"}))
        << "without bounds a pod could join any group";
    EXPECT_THAT(add(*node_.container(), keys_of({{"groups", {{"names", {"a\nb"}}}}}, Json::object())),
                fails_with(7, {"podMay.groups.names"}));
}

TEST_F(PodSettingsTest, TheNamespaceDoesNotForwardUnlessItMay) {
    for (const bool allowed : {false, true}) {
        const auto container = node_.container();
        set_sysctl(container->ns(), "net.ipv4.ip_forward", allowed ? "0" : "1");
        set_sysctl(container->ns(), "net.ipv6.conf.all.forwarding", allowed ? "0" : "1");
        const Json keys = allowed ? Json{{"allowIPForwarding", true}} : Json::object();
        const Reply added = add(*container, keys);
        ASSERT_THAT(added, succeeds());
        EXPECT_EQ(sysctl(container->ns(), "net.ipv4.ip_forward"), allowed ? "1" : "0");
        EXPECT_EQ(sysctl(container->ns(), "net.ipv6.conf.all.forwarding"), allowed ? "1" : "0");
        set_sysctl(container->ns(), "net.ipv4.ip_forward", "1");
        EXPECT_THAT(check(look_at(container, added.json), keys), succeeds()) << "the pod may change it";
    }
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv4.ip_forward"), "1") << "the node's stays";
}

// It is a setting of the namespace, which a further network's ADD must not take from a router.
TEST_F(PodSettingsTest, OneAttachmentThatForwardsIsEnough) {
    const auto container = node_.container();
    const Json router = node_.config({{"allowIPForwarding", true}});
    Json second = node_.config({{"name", "second"}});
    second["ipam"]["ranges"] = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
    const auto call = [&](const char *verb, const Json &config, const char *ifname) {
        EXPECT_THAT(node_.cni(verb, config, *container, {{"CNI_IFNAME", ifname}}), succeeds());
    };
    const auto forwards = [&] {
        return sysctl(container->ns(), "net.ipv4.ip_forward") + sysctl(container->ns(), "net.ipv6.conf.all.forwarding");
    };
    call("ADD", router, "eth0");
    call("ADD", second, "net1");
    EXPECT_EQ(forwards(), "11");
    call("DEL", second, "net1");
    call("DEL", router, "eth0");
    call("ADD", second, "net1");
    EXPECT_EQ(forwards(), "00") << "the router is gone";
    call("DEL", second, "net1");
}

TEST_F(PodSettingsTest, SysctlsAreThoseOfThePodsNamespace) {
    const std::string before = node_.state();
    const std::string of_node = sysctl(node_.ns(), "net.core.somaxconn");
    const Pod pod =
        make(keys_of({{"sysctls", {{"names", {"net.core.somaxconn"}}}}}, of("podlane/sysctls", "net.core.somaxconn=77"),
                     {{"sysctls", {{"net.ipv4.conf.eth0.rp_filter", "2"}}}}));
    EXPECT_EQ(sysctl(pod.ns(), "net.core.somaxconn"), "77");
    EXPECT_EQ(sysctl(pod.ns(), "net.ipv4.conf.eth0.rp_filter"), "2");
    EXPECT_EQ(sysctl(node_.ns(), "net.core.somaxconn"), of_node);
    EXPECT_THAT(del(*pod.container), succeeds());
    EXPECT_THAT(add(*node_.container(), {{"sysctls", {{"net.ipv4.no_such", "1"}}}}), fails_with(106, {"no_such"}));
    EXPECT_THAT(add(*node_.container(), {{"sysctls", {{"kernel.core_pattern", "x"}}}}), fails_with(7, {"sysctls"}));
    EXPECT_EQ(node_.state(), before);
}

TEST_F(PodSettingsTest, NameServersOfTheRuntimeGoFirst) {
    const Json dns = {{"servers", {"192.0.2.53"}}, {"searches", {"example.org"}}, {"options", {"ndots:5"}}};
    const Pod pod = make({{"dns", {{"nameservers", {"192.0.2.1"}}}}, {"runtimeConfig", {{"dns", dns}}}});
    EXPECT_EQ(pod.result["dns"],
              Json({{"nameservers", {"192.0.2.53"}}, {"search", {"example.org"}}, {"options", {"ndots:5"}}}));
}

TEST_F(PodSettingsTest, IpFamiliesSelectTheFamilies) {
    const Json keys = {{"ipFamilies", {"IPv4"}}};
    const Pod pod = make(keys);
    EXPECT_NE(pod.text4(), "");
    EXPECT_EQ(pod.text6(), "");
    EXPECT_EQ(pod.result["ips"].size(), 1U);
    EXPECT_THAT(check(pod, keys), succeeds());
    EXPECT_THAT(del(*pod.container, keys), succeeds());
    EXPECT_THAT(node_.leased(), IsEmpty()) << "of both families";
    Json both = {{"ipFamilies", {"IPv4", "IPv6"}}};
    both["ipam"] = node_.ipam();
    both["ipam"]["ranges"] = {{{{"subnet", "198.18.9.0/24"}}}};
    const std::string before = node_.state();
    EXPECT_THAT(add(*node_.container(), both), fails_with(103, {"IPv6", "ipFamilies"}));
    EXPECT_EQ(node_.state(), before);
}

} // namespace
} // namespace podlane::test
