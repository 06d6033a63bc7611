// SPDX-License-Identifier: MIT
// Calico's annotations, and what groups pods there and in Contiv.
#include "tests/netns/migrating.hpp"

namespace podlane::test {
namespace {

class MigratingPodTest : public MigratingTest {
  protected:
    [[nodiscard]] Cases of_addresses();
    [[nodiscard]] Cases of_limits();
    [[nodiscard]] Cases of_groups();
    // Logged or, if the configuration says so, refused.
    void expect_turned_down(const std::string &name, const std::string &value);
    // Neither refused nor heeded.
    Pod start_with_unread(const Json &annotations) {
        return start({{"podMayNot", "refuse"}, {"runtimeConfig", {{kAnnotations, annotations}}}},
                     named("shop", "web-0"));
    }
};

void MigratingPodTest::expect_turned_down(const std::string &name, const std::string &value) {
    Json keys = {{"runtimeConfig", {{kAnnotations, {{name, value}}}}}};
    const auto container = node_.container();
    const Reply reply = add(*container, keys);
    EXPECT_THAT(reply, succeeds());
    EXPECT_THAT(reply.err, HasSubstr(name));
    EXPECT_THAT(del(*container), succeeds());
    keys["podMayNot"] = "refuse";
    EXPECT_THAT(add(*node_.container(), keys), fails_with(7, {name}));
}

MigratingPodTest::Cases MigratingPodTest::of_addresses() {
    const std::string calico = "cni.projectcalico.org/";
    const Json pools = {{"pools",
                         {{"blue", {{"ranges", {{{{"subnet", "198.18.50.0/24"}}}}}}},
                          {"blue6", {{"ranges", {{{{"subnet", "2001:db8:50::/64"}}}}}}}}}};
    return {
        {"`cni.projectcalico.org/ipAddrs`",
         [=, this] {
             EXPECT_EQ(annotated(calico + "ipAddrs", R"(["198.18.9.77"])", {"addresses"}).text4(), "198.18.9.77");
         }},
        {"`cni.projectcalico.org/ipAddrsNoIpam`",
         [=, this] {
             const Json may = {{"addressesWithoutIpam", {{"within", {"198.18.77.0/24"}}}}};
             EXPECT_EQ(annotated(calico + "ipAddrsNoIpam", R"(["198.18.77.7"])", may).text4(), "198.18.77.7");
         }},
        {"`cni.projectcalico.org/ipv4pools`, `ipv6pools`",
         [=, this] {
             EXPECT_THAT(annotated(calico + "ipv4pools", R"(["blue"])", {"pools"}, pools).text4(),
                         testing::StartsWith("198.18.50."));
             EXPECT_THAT(annotated(calico + "ipv6pools", R"(["blue6"])", {"pools"}, pools).text6(),
                         testing::StartsWith("2001:db8:50::"));
         }},
        {"`cni.projectcalico.org/hwAddr`",
         [=, this] {
             EXPECT_EQ(to_string(annotated(calico + "hwAddr", "02:00:00:00:00:17", {"mac"}).mac), "02:00:00:00:00:17");
         }},
        {"`cni.projectcalico.org/allowedSourcePrefixes`",
         [=, this] {
             (void)annotated(calico + "allowedSourcePrefixes", R"(["192.0.2.128/25"])",
                             {{"allowedSources", {{"within", {"192.0.2.0/24"}}}}});
             EXPECT_EQ(shown()["allowed_sources"], Json({"192.0.2.128/25"}));
         }},
        {"`cni.projectcalico.org/floatingIPs`",
         [=, this] { expect_turned_down(calico + "floatingIPs", R"(["192.0.2.7"])"); }},
        {"`cni.projectcalico.org/networks`, `interfaceName`",
         [=, this] {
             expect_turned_down(calico + "networks", R"([{"name": "blue"}])");
             expect_turned_down(calico + "interfaceName", "cali7");
         }},
        {"`cni.projectcalico.org/podIP`, `podIPs`, `containerID`, which Calico itself writes",
         [=, this] {
             const Json written = {{calico + "podIP", "198.18.9.77/32"},
                                   {calico + "podIPs", "198.18.9.77/32,2001:db8:9::77/128"},
                                   {calico + "containerID", "0a1b2c"}};
             const Pod pod = start_with_unread(written);
             EXPECT_NE(pod.text4(), "198.18.9.77");
             EXPECT_THAT(shown(), has_members({{"container_id", pod.container->id()}}));
             EXPECT_THAT(shown()["addresses"].dump(), AllOf(HasSubstr(pod.text4()), HasSubstr(pod.text6())));
         }},
        {"annotations of namespaces (`…/ipv4pools`)",
         [=, this] {
             answer_as_kubernetes(
                 {{"pod", Json::object()}, {"namespace", {{"annotations", {{calico + "ipv4pools", R"(["blue"])"}}}}}});
             Json keys = of_kubernetes({{"identity", {"kubernetes"}}, {"podMay", {"pools"}}});
             keys.update(pools);
             EXPECT_THAT(start(keys, named("shop", "web-0")).text4(), testing::StartsWith("198.18.50."));
         }},
    };
}

MigratingPodTest::Cases MigratingPodTest::of_limits() {
    const std::string qos = "qos.projectcalico.org/";
    return {
        {"`qos.projectcalico.org/ingressBandwidth`, `ingressBurst`, `egressBandwidth`, `egressBurst`",
         [=, this] {
             (void)start({{"runtimeConfig",
                           {{kAnnotations,
                             {{qos + "ingressBandwidth", "20M"},
                              {qos + "ingressBurst", "3M"},
                              {qos + "egressBandwidth", "10M"},
                              {qos + "egressBurst", "2M"}}}}}},
                         named("shop", "web-0"));
             EXPECT_THAT(shown()["ingress_limit"],
                         has_members({{"rate_bits_per_s", 20'000'000}, {"burst_bits", 3'000'000}}));
             EXPECT_THAT(shown()["egress_limit"],
                         has_members({{"rate_bits_per_s", 10'000'000}, {"burst_bits", 2'000'000}}));
         }},
        {"`qos.projectcalico.org/…Peakrate`, `…Minburst`, `…PacketRate`, `…PacketBurst`, `…MaxConnections`",
         [=, this] {
             Json all = Json::object();
             for (const char *direction : {"ingress", "egress"})
                 for (const char *what : {"Peakrate", "Minburst", "PacketRate", "PacketBurst", "MaxConnections"})
                     all[qos + direction + what] = "10M";
             start_with_unread(all);
             EXPECT_TRUE(shown()["ingress_limit"].is_null() && shown()["egress_limit"].is_null()) << shown();
         }},
        {"`qos.projectcalico.org/dscp`",
         [=, this] {
             const Pod pod = start_with_unread({{qos + "dscp", "EF"}}), other = start();
             const Fd socket = open_socket(pod.ns(), Transport::udp, true);
             const Wire wire = other.wire();
             const auto dscp_at_other = [&] {
                 EXPECT_TRUE(send_datagram(socket, {other.v4, 7}, "x"));
                 Bytes arrived;
                 EXPECT_TRUE(wire.until(
                     [&](const Bytes &one) {
                         arrived = one;
                         return is_from(one, pod.v4);
                     },
                     patience()));
                 return layer3(arrived).at(1) >> 2;
             };
             EXPECT_EQ(dscp_at_other(), 0);
             ASSERT_EQ(set_option(socket, IPPROTO_IP, IP_TOS, 46 << 2), 0);
             EXPECT_EQ(dscp_at_other(), 46);
         }},
        {"`kubernetes.io/ingress-bandwidth`, `egress-bandwidth`",
         [=, this] {
             (void)start({{"runtimeConfig",
                           {{kAnnotations,
                             {{"kubernetes.io/ingress-bandwidth", "8M"}, {"kubernetes.io/egress-bandwidth", "4M"}}}}}},
                         named("shop", "web-0"));
             EXPECT_EQ(shown()["ingress_limit"]["rate_bits_per_s"], 8'000'000);
             EXPECT_EQ(shown()["egress_limit"]["rate_bits_per_s"], 4'000'000);
         }},
    };
}

MigratingPodTest::Cases MigratingPodTest::of_groups() {
    const auto isolated = [](const Json &sources, const Json &more = Json::object()) {
        Json keys = {{"groups", sources}, {"isolation", "group"}};
        keys.update(more);
        return keys;
    };
    const auto labelled = [=](const std::string &tenant) {
        const Json label = {{"key", "tenant"}, {"value", tenant}};
        return isolated({"label:tenant"},
                        {{"identity", {"mesos"}},
                         {"args", {{"org.apache.mesos", {{"network_info", {{"labels", {{"labels", {label}}}}}}}}}}});
    };
    return {
        {"profiles by labels of a Mesos task (`args[\"org.apache.mesos\"]`)",
         [=, this] {
             expect_isolated(labelled("a"), labelled("b"));
             EXPECT_EQ(ctl_json("endpoint list -l tenant=a").size(), 2U);
         }},
        {"Calico's default profile: in from the same tag and from the node, out everywhere",
         [=, this] { expect_isolated(isolated({"name:tag-a"}), isolated({"name:tag-b"})); }},
        {"a profile's rules by ports and protocols", refused({{"rules", {"tcp"}}})},
        {"Contiv's tenants and net-groups: who is in one reaches its members",
         [=, this] {
             expect_isolated(isolated({"network"}), isolated({"network"}, {{"name", "others"}}));
             expect_isolated(isolated({"name:web"}), isolated({"name:db"}));
         }},
        {"a profile's egress rules",
         [=, this] {
             expect_refused({{"egress", "deny"}});
             outside_->run("ip route replace 198.18.9.0/24 via 203.0.113.2");
             const EchoServer outside(outside_->ns(), true, 7);
             for (const char *word : {"allow", "cluster"}) {
                 const Pod pod = start({{"egress", word}, {"clusterCIDRs", {"198.18.0.0/16"}}});
                 const int expected = word == std::string("allow") ? 0 : ETIMEDOUT;
                 EXPECT_EQ(connect_to(open_socket(pod.ns(), Transport::tcp, true), {ip("203.0.113.1"), 7}, quiet()),
                           expected)
                     << word;
             }
         }},
        {"`io.contiv.tenant`, `io.contiv.net-group`",
         [=, this] {
             const auto groups_of = [=, this](const std::string &pod, const Json &labels, const Json &more) {
                 answer_as_kubernetes({{"pod", {{"labels", labels}}}, {"namespace", Json::object()}});
                 Json keys = of_kubernetes(isolated({"annotation:io.contiv.net-group", "annotation:io.contiv.tenant"},
                                                    {{"identity", {"kubernetes"}}}));
                 keys.update(more);
                 (void)start(keys, named("shop", pod));
                 return ctl_json("endpoint show shop/" + pod).at(0)["groups"];
             };
             const std::string group = "annotation:io.contiv.net-group=", tenant = "annotation:io.contiv.tenant=";
             EXPECT_EQ(
                 groups_of("web-0", {{"io.contiv.net-group", "web"}, {"io.contiv.tenant", "blue"}}, Json::object()),
                 Json({group + "web", tenant + "blue"}));
             EXPECT_EQ(groups_of("db-0", {{"io.contiv.net-group", "db"}}, Json::object()), Json({group + "db"}));
             const Json may = {{"podMay", {{"groups", {{"names", {"tenant-a"}}}}}},
                               {"runtimeConfig", {{kAnnotations, {{"podlane/groups", "tenant-a"}}}}}};
             EXPECT_EQ(groups_of("db-1", Json::object(), may), Json({"tenant-a"}));
         }},
        {"`io.contiv.network`",
         [=, this] {
             answer_as_kubernetes(
                 {{"pod", {{"labels", {{"io.contiv.network", "others"}}}}}, {"namespace", Json::object()}});
             (void)start(of_kubernetes({{"identity", {"kubernetes"}}}), named("shop", "web-0"));
             EXPECT_EQ(shown()["network"], "pods");
         }},
    };
}

TEST_F(MigratingPodTest, EachAnnotationIsCarriedOut) {
    Cases cases = of_addresses();
    cases.merge(of_limits());
    carry_out("From Calico's annotations", cases);
}

TEST_F(MigratingPodTest, EachWayToGroupPodsIsCarriedOut) {
    carry_out("From Calico's profiles, and Contiv's tenants and groups", of_groups());
}

} // namespace
} // namespace podlane::test
