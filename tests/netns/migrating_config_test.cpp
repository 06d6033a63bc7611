// SPDX-License-Identifier: MIT
// The keys of Calico's CNI configuration.
#include "tests/netns/migrating.hpp"

namespace podlane::test {
namespace {

class MigratingConfigTest : public MigratingTest {
  protected:
    [[nodiscard]] Cases of_addresses();
    [[nodiscard]] Cases of_the_node();
    [[nodiscard]] Cases of_the_pod();
    [[nodiscard]] Cases of_the_api_server();
    [[nodiscard]] Cases of_masquerading();
    [[nodiscard]] Cases left_out();
};

MigratingConfigTest::Cases MigratingConfigTest::of_addresses() {
    return {
        {"`type: calico`", [this] { EXPECT_TRUE(ping(start().ns(), "203.0.113.2")); }},
        {"`ipam` of type `host-local`, `static`, any other plugin",
         [this] {
             EXPECT_THAT(start().text4(), testing::StartsWith("198.18.9."));
             const Json fixed = {{"type", "static"}, {"addresses", {{{"address", "198.18.9.77/24"}}}}};
             EXPECT_EQ(start({{"ipam", fixed}}).text4(), "198.18.9.77");
             put_ipam("whereabouts");
             EXPECT_EQ(start({{"ipam", {{"type", "whereabouts"}}}}).text4(), "198.18.9.5");
         }},
        {"`ipam` of type `calico-ipam`, with `ipv4_pools`, `ipv6_pools`, `ip_pools_label_selector_keys`",
         [this] {
             put_ipam("calico-ipam");
             const Json asked = {{"type", "calico-ipam"},
                                 {"ipv4_pools", {"198.18.9.0/24"}},
                                 {"ipv6_pools", {"2001:db8:9::/64"}},
                                 {"ip_pools_label_selector_keys", {"rack"}}};
             (void)start({{"ipam", asked}});
             EXPECT_THAT(ipam_config(), has_members(asked));
         }},
        {"`ipam.subnet: usePodCidr`, `usePodCidrIPv6`, also in `ranges`",
         [this] {
             answer_as_kubernetes({{"podCIDRs", {"198.18.40.0/24", "2001:db8:40::/64"}}});
             const Json ranges = {{{{"subnet", "usePodCidr"}}}, {{{"subnet", "usePodCidrIPv6"}}}};
             const Json state = node_.dir() + "/state";
             const Pod both = start(of_kubernetes({{"stateDir", state}, {"ipam", {{"ranges", ranges}}}}));
             EXPECT_THAT(both.text4() + both.text6(), AllOf(HasSubstr("198.18.40."), HasSubstr("2001:db8:40::")));
             const Json alone = {{"ranges", nullptr}, {"subnet", "usePodCidr"}};
             EXPECT_THAT(start(of_kubernetes({{"stateDir", state}, {"ipam", alone}})).text4(),
                         testing::StartsWith("198.18.40."));
             for (const auto &container : containers_)
                 EXPECT_THAT(del(*container, {{"stateDir", state}}), succeeds());
         }},
        {"`assign_ipv4`, `assign_ipv6` of `ipam`",
         [this] {
             EXPECT_EQ(start({{"ipFamilies", {"IPv4"}}}).text6(), "");
             EXPECT_EQ(start({{"ipFamilies", {"IPv6"}}}).text4(), "");
         }},
        {"`feature_control.ip_addrs_no_ipam`",
         [this] {
             const Json may = {{"addressesWithoutIpam", {{"within", {"198.18.77.0/24"}}}}};
             EXPECT_EQ(annotated("podlane/addressesWithoutIpam", "198.18.77.7", may).text4(), "198.18.77.7");
         }},
    };
}

MigratingConfigTest::Cases MigratingConfigTest::of_the_node() {
    return {
        {"`nodename` (and `$NODENAME`)",
         [this] {
             (void)start({{"nodename", "node-7"}}, named("shop", "web-0"));
             EXPECT_EQ(shown()["node"], "node-7");
             Variables who = named("shop", "web-1");
             who["NODENAME"] = "node-8";
             (void)start(Json::object(), who);
             EXPECT_EQ(ctl_json("endpoint show shop/web-1").at(0)["node"], "node-8");
         }},
        {"`hostname`",
         [this] {
             expect_refused({{"hostname", "node-7"}});
             (void)start({{"nodename", "node-7"}}, named("shop", "web-0"));
             EXPECT_EQ(shown()["node"], "node-7");
         }},
        {"`log_level`, `log_file_path`",
         [this] {
             const std::string file = node_.dir() + "/podlane.log";
             (void)start({{"log", {{"file", file}, {"level", "debug"}}}});
             EXPECT_THAT(read_file(file), HasSubstr(" debug "));
         }},
        {"`log_file_max_size`, `log_file_max_age`, `log_file_max_count`",
         [this] {
             expect_refused({{"log_file_max_size", 100}, {"log_file_max_age", 30}, {"log_file_max_count", 10}});
             const std::string file = node_.dir() + "/rotated.log";
             const Json keys = {{"log", {{"file", file}, {"level", "info"}}}};
             (void)start(keys);
             std::filesystem::rename(file, file + ".1");
             (void)start(keys);
             EXPECT_TRUE(std::filesystem::exists(file));
         }},
        {"`mode`",
         [this] {
             containers_.push_back(node_.container());
             const Reply reply = add(*containers_.back(), {{"mode", "vxlan"}});
             EXPECT_THAT(reply, succeeds());
             EXPECT_THAT(reply.err, HasSubstr("mode"));
         }},
    };
}

MigratingConfigTest::Cases MigratingConfigTest::of_the_pod() {
    return {
        {"`mtu`",
         [this] {
             EXPECT_EQ(start({{"mtu", 1300}}).mtu, 1300U);
         }},
        {"`container_settings.allow_ip_forwarding`",
         [this] {
             EXPECT_EQ(sysctl(start({{"allowIPForwarding", true}}).ns(), "net.ipv4.ip_forward"), "1");
             EXPECT_EQ(sysctl(start().ns(), "net.ipv4.ip_forward"), "0");
         }},
        {"`include_default_routes`, `routes`",
         [this] {
             const Json routes = {{{"dst", "192.0.2.0/24"}}};
             const Pod without = start({{"defaultRoute", false}, {"routes", routes}});
             EXPECT_THAT(without.container->run("ip route"),
                         AllOf(HasSubstr("192.0.2.0/24"), Not(HasSubstr("default"))));
             const Pod with = start({{"defaultRoute", true}, {"routes", routes}});
             EXPECT_THAT(with.container->run("ip route"), AllOf(HasSubstr("192.0.2.0/24"), HasSubstr("default")));
         }},
        {"`sysctl`",
         [this] {
             const Pod pod = start({{"sysctls", {{"net.core.somaxconn", "77"}}}});
             EXPECT_EQ(sysctl(pod.ns(), "net.core.somaxconn"), "77");
         }},
        {"the capability `dns`",
         [this] {
             const Pod pod = start({{"runtimeConfig", {{"dns", {{"servers", {"192.0.2.53"}}}}}}});
             EXPECT_EQ(pod.result["dns"]["nameservers"], Json({"192.0.2.53"}));
         }},
        {"`require_mtu_file`",
         [this] {
             expect_refused({{"require_mtu_file", true}});
             EXPECT_EQ(start().mtu, 1420U);
         }},
    };
}

MigratingConfigTest::Cases MigratingConfigTest::of_the_api_server() {
    return {
        {"`kubernetes.kubeconfig`",
         [this] {
             answer_as_kubernetes(
                 {{"pod", {{"labels", {{"app", "web"}}}}}, {"namespace", {{"labels", {{"tenant", "a"}}}}}});
             (void)start(of_kubernetes({{"identity", {"kubernetes"}}}), named("shop", "web-0"));
             EXPECT_THAT(shown(), has_members({{"labels", {{"tenant", "a"}}}, {"annotations", {{"app", "web"}}}}));
             EXPECT_THAT(question(), HasSubstr("/etc/kubernetes/kubelet.conf"));
         }},
        {"`kubernetes.k8s_api_root`",
         [this] {
             answer_as_kubernetes({{"pod", Json::object()}, {"namespace", Json::object()}});
             const Json server = {{"server", "https://192.0.2.1:6443"}, {"tokenFile", "/t"}, {"caFile", "/c"}};
             (void)start({{"identity", {"kubernetes"}}, {"kubernetes", server}}, named("shop", "web-0"));
             EXPECT_THAT(question(), HasSubstr("https://192.0.2.1:6443"));
             expect_refused({{"kubernetes", {{"k8s_api_root", "https://192.0.2.1:6443"}}}});
         }},
        {"`kubernetes.node_name`",
         [this] {
             expect_refused({{"kubernetes", {{"node_name", "node-7"}}}});
             (void)start({{"nodename", "node-7"}}, named("shop", "web-0"));
             EXPECT_EQ(shown()["node"], "node-7");
         }},
    };
}

MigratingConfigTest::Cases MigratingConfigTest::of_masquerading() {
    return {
        {"natOutgoing of a pool",
         [this] {
             EXPECT_EQ(source_seen_outside({{"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/16"}}}), "203.0.113.2");
             EXPECT_EQ(source_seen_outside({{"ipMasq", true}, {"clusterCIDRs", {"203.0.113.0/24"}}}), "the pod");
         }},
        {"other pools, as destinations that see the pod's own address",
         [this] {
             EXPECT_EQ(source_seen_outside({{"ipMasq", true}, {"noMasquerade", {"203.0.113.0/24"}}}), "the pod");
         }},
    };
}

MigratingConfigTest::Cases MigratingConfigTest::left_out() {
    return {
        {"`nodename_file`, `nodename_file_optional`",
         refused({{"nodename_file", "/var/lib/calico/nodename"}, {"nodename_file_optional", true}})},
        {"`feature_control.floating_ips`", refused({{"feature_control", {{"floating_ips", true}}}})},
        {"`policy`", refused({{"policy", {{"type", "k8s"}}}})},
        {"`policy_setup_timeout_seconds`, `endpoint_status_dir`, `readiness_gates`",
         refused({{"policy_setup_timeout_seconds", 10},
                  {"endpoint_status_dir", "/var/run/calico/endpoint-status"},
                  {"readiness_gates", {"http://localhost:9099/readiness"}}})},
        {"`datastore_type`, `etcd_endpoints`, `etcd_discovery_srv`, `etcd_scheme`, `etcd_key_file`, `etcd_cert_file`, "
         "`etcd_ca_cert_file`, `etcd_authority`",
         refused({{"datastore_type", "kubernetes"},
                  {"etcd_endpoints", "https://192.0.2.1:2379"},
                  {"etcd_discovery_srv", "example.org"},
                  {"etcd_scheme", "https"},
                  {"etcd_key_file", "/k"},
                  {"etcd_cert_file", "/c"},
                  {"etcd_ca_cert_file", "/c"},
                  {"etcd_authority", "192.0.2.1:2379"}})},
        {"`ipam_lock_file`", refused({{"ipam_lock_file", "/var/run/calico/ipam.lock"}})},
        {"`num_queues`", refused({{"num_queues", 4}})},
        {"`dataplane_options`", refused({{"dataplane_options", {{"type", "grpc"}}}})},
        {"`vxlan_mac_prefix`, `vxlan_vni`, `windows_use_single_network`, "
         "`windows_disable_default_deny_all_policy`, `windows_loopback_DSR`, `windows_pod_deletion_timestamp_timeout`",
         refused({{"vxlan_mac_prefix", "0E-2A"},
                  {"vxlan_vni", 4096},
                  {"windows_use_single_network", true},
                  {"windows_disable_default_deny_all_policy", true},
                  {"windows_loopback_DSR", true},
                  {"windows_pod_deletion_timestamp_timeout", 600}})},
    };
}

TEST_F(MigratingConfigTest, EachKeyIsCarriedOut) {
    Cases cases;
    for (Cases part : {of_addresses(), of_the_node(), of_the_pod(), of_the_api_server(), of_masquerading(), left_out()})
        cases.merge(part);
    carry_out("From Calico's CNI configuration", cases);
}

} // namespace
} // namespace podlane::test
