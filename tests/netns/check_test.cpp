// SPDX-License-Identifier: MIT
// CHECK names every single thing that is not as the ADD left it, and minds nothing else.
#include "tests/netns/verbs.hpp"

#include <filesystem>

namespace podlane::test {
namespace {

using testing::HasSubstr;

class CheckTest : public VerbsTest {
  protected:
    void expect_said(const std::string &text) const {
        const Reply reply = check(made_);
        EXPECT_EQ(reply.rc, 1);
        EXPECT_EQ(reply.code(), 105) << reply;
        EXPECT_THAT(reply.message(), HasSubstr(text));
    }
    void on_node(const std::string &command) const { (void)must_run(node_.ns(), words(command)); }
    void in_pod(const std::string &command) const { made_.container->run(command); }
    [[nodiscard]] const std::string &host() const { return made_.host_ifname; }

    Json keys_ = {{"allowedSources", {"192.0.2.0/24"}},
                  {"unshapedSubnets", {"203.0.113.0/24"}},
                  {"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}};
    Pod made_ = make(keys_);

    [[nodiscard]] Reply check(const Pod &made) const { return VerbsTest::check(made, keys_); }
};

TEST_F(CheckTest, PassesAfterAdd) {
    const Reply reply = check(made_);
    EXPECT_EQ(reply.rc, 0) << reply;
    EXPECT_EQ(reply.out, "");
}

TEST_F(CheckTest, LinkDown) {
    on_node("ip link set " + host() + " down");
    expect_said("host-side veth " + host() + " is down");
}

TEST_F(CheckTest, PodLinkDown) {
    in_pod("ip link set eth0 down");
    expect_said("eth0 of the container is down");
}

TEST_F(CheckTest, LinkGone) {
    on_node("ip link del " + host());
    expect_said(host() + " is gone");
}

TEST_F(CheckTest, LinkReplacedByAnotherOfTheName) {
    on_node("ip link del " + host());
    on_node("ip link add " + host() + " type veth peer name eth0 netns " + made_.container->path());
    expect_said(host());
}

TEST_F(CheckTest, PodLinkRenamed) {
    in_pod("ip link set eth0 down");
    in_pod("ip link set eth0 name other");
    expect_said("eth0 is gone from the container");
}

TEST_F(CheckTest, PodMacChanged) {
    in_pod("ip link set eth0 address 02:00:00:00:00:99");
    expect_said("02:00:00:00:00:99");
}

TEST_F(CheckTest, HostMacChanged) {
    on_node("ip link set " + host() + " address 02:00:00:00:00:99");
    expect_said(host() + " has MAC 02:00:00:00:00:99");
}

TEST_F(CheckTest, AddressGone) {
    for (const auto &[addr, bits] : {std::pair{made_.text4(), "/32"}, std::pair{made_.text6(), "/128"}}) {
        in_pod("ip addr del " + addr + bits + " dev eth0");
        expect_said("address " + addr + " is gone");
        in_pod("ip addr add " + addr + bits + " dev eth0" + (addr == made_.text6() ? " nodad" : ""));
        in_pod("ip route replace default via 169.254.1.1 dev eth0 onlink");
    }
}

TEST_F(CheckTest, LinkLocalAddressGone) {
    const std::string addr = to_string(record(made_).link_local);
    in_pod("ip addr del " + addr + "/64 dev eth0");
    expect_said("address " + addr + " is gone");
}

TEST_F(CheckTest, DefaultRouteGone) {
    in_pod("ip route del default");
    expect_said("route 0.0.0.0/0 is gone");
    in_pod("ip route add default via 169.254.1.1 dev eth0");
    ASSERT_EQ(check(made_).rc, 0);
    in_pod("ip -6 route del default");
    expect_said("route ::/0 is gone");
}

TEST_F(CheckTest, DefaultRouteByAnotherGateway) {
    in_pod("ip route replace default via 198.18.9.200 dev eth0 onlink");
    expect_said("route 0.0.0.0/0 of the container leads to 198.18.9.200");
    in_pod("ip route replace default via 169.254.1.1 dev eth0 onlink");
    in_pod("ip -6 route replace default via fe80::99 dev eth0");
    expect_said("route ::/0 of the container leads to fe80::99");
}

TEST_F(CheckTest, GatewayRouteGone) {
    in_pod("ip route del 169.254.1.1");
    expect_said("route 169.254.1.1/32 is gone");
}

TEST_F(CheckTest, PodNeighbourGone) {
    for (const std::string gateway : {kGateway4, kGateway6}) {
        in_pod("ip neigh del " + gateway + " dev eth0");
        expect_said("neighbour " + gateway + " is gone");
        in_pod("ip neigh replace " + gateway + " lladdr " + kHostMac + " dev eth0 nud permanent");
        ASSERT_EQ(check(made_).rc, 0);
    }
}

TEST_F(CheckTest, PodNeighbourWithAnotherMac) {
    in_pod("ip neigh replace 169.254.1.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent");
    expect_said("neighbour 169.254.1.1");
}

TEST_F(CheckTest, HostNeighbourGone) {
    for (const std::string &addr : {made_.text4(), made_.text6()}) {
        on_node("ip neigh del " + addr + " dev " + host());
        expect_said("neighbour " + addr + " is gone from " + host());
        on_node("ip neigh replace " + addr + " lladdr " + made_.result["interfaces"][1]["mac"].get<std::string>() +
                " dev " + host() + " nud permanent");
        ASSERT_EQ(check(made_).rc, 0);
    }
}

TEST_F(CheckTest, HostNeighbourWithAnotherMac) {
    on_node("ip neigh replace " + made_.text4() + " lladdr 02:00:00:00:00:99 nud permanent dev " + host());
    expect_said("neighbour " + made_.text4());
}

TEST_F(CheckTest, HostRouteGone) {
    for (const std::string &addr : {made_.text4(), made_.text6()}) {
        on_node("ip route del " + addr + " dev " + host());
        expect_said("route to " + addr + " by " + host() + " is gone");
        on_node("ip route add " + addr + " dev " + host());
        ASSERT_EQ(check(made_).rc, 0) << check(made_);
    }
}

TEST_F(CheckTest, MapEntriesGoneOrChanged) {
    const auto interfaces = require(open_interfaces(node_.bpffs(), Access::read_write));
    const auto addresses = require(open_addresses(node_.bpffs(), Access::read_write));
    const auto told = *require(interfaces.find(made_.ifindex));
    auto wrong = told;
    wrong.flags ^= INTERFACE_ANTI_SPOOF;
    require(interfaces.update(made_.ifindex, wrong));
    expect_said("interfaces_v1");
    require(interfaces.update(made_.ifindex, told));
    for (const std::string &addr : {made_.text4(), made_.text6()}) {
        const address_key key{network_id("pods"), require(parse_ip(addr))};
        const auto owned = *require(addresses.find(key));
        auto other = owned;
        ++other.ifindex;
        require(addresses.update(key, other));
        expect_said(addr);
        (void)require(addresses.remove(key));
        expect_said("addresses_v1");
        require(addresses.update(key, owned));
    }
    ASSERT_EQ(check(made_).rc, 0);
    (void)require(interfaces.remove(made_.ifindex));
    expect_said("interfaces_v1");
}

TEST_F(CheckTest, CountersGone) {
    (void)require(require(Counters::open(node_.bpffs(), Access::read_write)).remove(made_.ifindex));
    expect_said("counters_v2");
}

TEST_F(CheckTest, NetworkGone) {
    (void)require(require(open_networks(node_.bpffs(), Access::read_write)).remove(network_id("pods")));
    expect_said("networks_v1");
}

// Rates may be changed on a living pod.
TEST_F(CheckTest, BandwidthGone) {
    const auto limits = require(open_bandwidths(node_.bpffs(), Access::read_write));
    auto changed = *require(limits.find(made_.ifindex));
    ++changed.ingress_rate_bits_per_s;
    require(limits.update(made_.ifindex, changed));
    EXPECT_EQ(check(made_).rc, 0);
    (void)require(limits.remove(made_.ifindex));
    expect_said("bandwidths_v1");
}

TEST_F(CheckTest, SendersGone) {
    const auto senders = require(open_senders(node_.bpffs(), Access::read_write));
    for (const sender_key &key : require(senders.keys()))
        (void)require(senders.remove(key));
    expect_said("senders_v1");
}

TEST_F(CheckTest, ExemptionGone) {
    const auto exempts = require(open_exempts(node_.bpffs(), Access::read_write));
    const auto keys = require(exempts.keys());
    ASSERT_FALSE(keys.empty());
    (void)require(exempts.remove(keys.front()));
    expect_said("exempt_v1");
}

TEST_F(CheckTest, AllowedSourceGone) {
    const auto sources = require(open_allowed_sources(node_.bpffs(), Access::read_write));
    (void)require(sources.remove(make_allowed_source_key(made_.ifindex, require(parse_prefix("192.0.2.0/24")))));
    expect_said("192.0.2.0/24");
    expect_said("allowed_srcs_v1");
}

TEST_F(CheckTest, EndpointGone) {
    (void)require(require(open_endpoints(node_.bpffs(), Access::read_write))
                      .remove(require(make_endpoint_key(made_.container->id(), "eth0"))));
    expect_said("endpoints_v1");
}

TEST_F(CheckTest, LeaseGone) {
    std::filesystem::remove_all(node_.leases());
    const Reply reply = check(made_);
    EXPECT_EQ(reply.rc, 1);
    EXPECT_THAT(reply.message(), HasSubstr("host-local"));
}

TEST_F(CheckTest, AnotherLeaseInPrevResult) {
    made_.result["ips"][0]["address"] = "198.18.9.200/32";
    expect_said("198.18.9.200");
}

TEST_F(CheckTest, NamespaceGoneOrAnother) {
    auto other = node_.container();
    Json config = node_.config({{"prevResult", made_.result}});
    Variables variables = attachment(*made_.container);
    variables["CNI_NETNS"] = other->path();
    const Reply reply = node_.cni("podlane", "CHECK", config, variables);
    EXPECT_EQ(reply.code(), 105) << reply;
    EXPECT_THAT(reply.message(), HasSubstr(other->path()));
    variables["CNI_NETNS"] = node_.dir() + "/nothing";
    const Reply none = node_.cni("podlane", "CHECK", config, variables);
    EXPECT_EQ(none.code(), 4) << none;
    EXPECT_THAT(none.message(), HasSubstr(node_.dir() + "/nothing"));
}

// What is not ours to judge: other addresses, routes, rules, neighbours and programs.
TEST_F(CheckTest, PassesWhenOthersChangedTheirOwn) {
    in_pod("ip link add sbr0 type veth peer name sbr1");
    in_pod("ip addr add 198.51.100.1/24 dev eth0");
    in_pod("ip rule add from " + made_.text4() + " table 100");
    in_pod("ip route add default via 169.254.1.1 dev eth0 onlink table 100");
    in_pod("ip route del default");
    in_pod("ip link set eth0 mtu 1300");
    on_node("ip route add 198.51.100.0/24 dev " + host());
    on_node("ip link set " + host() + " mtu 1300");
    EXPECT_EQ(check(made_).rc, 0) << check(made_);
}

class CheckProgramsTest : public AttachedTest {};
INSTANTIATE_TEST_SUITE_P(Attach, CheckProgramsTest, both_ways_to_attach(), way_to_attach);

TEST_P(CheckProgramsTest, DetachedFromOneHook) {
    for (const Hook hook : {Hook::ingress, Hook::egress}) {
        const Pod made = make(attach_key());
        ASSERT_EQ(check(made, attach_key()).rc, 0) << check(made, attach_key());
        {
            const auto inside = require(net::enter(node_.ns()));
            EXPECT_TRUE(require(detach(made.ifindex, hook)));
        }
        const Reply reply = check(made, attach_key());
        EXPECT_EQ(reply.code(), 105) << reply;
        EXPECT_THAT(reply.message(), HasSubstr(hook == Hook::ingress ? "pl_from_pod" : "pl_to_pod"));
        EXPECT_THAT(reply.message(), HasSubstr(made.host_ifname));
    }
}

} // namespace
} // namespace podlane::test
