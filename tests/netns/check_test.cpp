// SPDX-License-Identifier: MIT
// CHECK names every single thing that is not as the ADD left it, and minds nothing else.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

class CheckTest : public VerbsTest {
  public:
    // Commands on the node, or behind "pod" in the container, between semicolons.
    void run_all(const std::string &commands) const {
        std::istringstream all(commands);
        for (std::string one; std::getline(all >> std::ws, one, ';');)
            run_for(node_, made_, one);
    }
    void expect_said(const std::string &text) const {
        EXPECT_THAT(check(made_), fails_with(105, {filled(text, made_)}));
    }
    [[nodiscard]] Reply check(const Pod &made) const { return VerbsTest::check(made, keys_); }
    using VerbsTest::open;

    Json keys_ = {{"allowedSources", {"192.0.2.0/24"}},
                  {"unshapedSubnets", {"203.0.113.0/24"}},
                  {"runtimeConfig", {{"bandwidth", {{"ingressRate", 8000000}, {"ingressBurst", 64000000}}}}}};
    Pod made_ = make(keys_);
};

TEST_F(CheckTest, NamesAResultWithoutAddresses) {
    for (const Json &result : {Json::object(), Json{{"ips", Json::array()}}, Json{{"interfaces", Json::array()}}}) {
        Pod other = made_;
        other.result = result;
        EXPECT_THAT(check(other), fails_with(7, {"prevResult.ips has no address of eth0"}));
    }
}

TEST_F(CheckTest, PassesAfterAdd) {
    const Reply reply = check(made_);
    EXPECT_THAT(reply, succeeds());
    EXPECT_EQ(reply.out, "");
}

struct NetworkFault {
    std::string name;
    std::string inflict;
    std::string says;
    std::string restore = {}; // CHECK passes after it
};
void PrintTo(const NetworkFault &fault, std::ostream *out) { *out << fault.name; }

const std::vector<NetworkFault> kNetworkFaults = {
    NetworkFault{"LinkDown", "ip link set @host down", "host-side veth @host is down"},
    NetworkFault{"PodLinkDown", "pod ip link set eth0 down", "eth0 of the container is down"},
    NetworkFault{"LinkGone", "ip link del @host", "@host is gone"},
    NetworkFault{"LinkReplacedByAnotherOfTheName",
                 "ip link del @host; ip link add @host type veth peer name eth0 netns @netns", "@host"},
    NetworkFault{"PodLinkRenamed", "pod ip link set eth0 down; pod ip link set eth0 name other",
                 "eth0 is gone from the container"},
    NetworkFault{"HostMacChanged", "ip link set @host address 02:00:00:00:00:99", "@host has MAC 02:00:00:00:00:99"},
    NetworkFault{"AddressGoneV4", "pod ip addr del @v4/32 dev eth0", "address @v4 is gone"},
    NetworkFault{"AddressGoneV6", "pod ip addr del @v6/128 dev eth0", "address @v6 is gone"},
    NetworkFault{"LinkLocalAddressGone", "pod ip addr del @ll/64 dev eth0", "address @ll is gone"},
    NetworkFault{"DefaultRouteGoneV4", "pod ip route del default", "route 0.0.0.0/0 is gone",
                 "pod ip route add default via 169.254.1.1 dev eth0"},
    NetworkFault{"DefaultRouteGoneV6", "pod ip -6 route del default", "route ::/0 is gone"},
    NetworkFault{"DefaultRouteByAnotherGatewayV4", "pod ip route replace default via 198.18.9.200 dev eth0 onlink",
                 "route 0.0.0.0/0 of the container leads to 198.18.9.200"},
    NetworkFault{"DefaultRouteByAnotherGatewayV6", "pod ip -6 route replace default via fe80::99 dev eth0",
                 "route ::/0 of the container leads to fe80::99"},
    NetworkFault{"GatewayRouteGone", "pod ip route del 169.254.1.1", "route 169.254.1.1/32 is gone"},
    NetworkFault{"PodNeighbourGoneV4", "pod ip neigh del 169.254.1.1 dev eth0", "neighbour 169.254.1.1 is gone",
                 "pod ip neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent"},
    NetworkFault{"PodNeighbourGoneV6", "pod ip neigh del fe80::ecee:eeff:feee:eeee dev eth0",
                 "neighbour fe80::ecee:eeff:feee:eeee is gone",
                 "pod ip neigh replace fe80::ecee:eeff:feee:eeee lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent"},
    NetworkFault{"PodNeighbourWithAnotherMac",
                 "pod ip neigh replace 169.254.1.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
                 "neighbour 169.254.1.1"},
    NetworkFault{"HostNeighbourGoneV4", "ip neigh del @v4 dev @host", "neighbour @v4 is gone from @host",
                 "ip neigh replace @v4 lladdr @mac dev @host nud permanent"},
    NetworkFault{"HostNeighbourGoneV6", "ip neigh del @v6 dev @host", "neighbour @v6 is gone from @host",
                 "ip neigh replace @v6 lladdr @mac dev @host nud permanent"},
    NetworkFault{"HostNeighbourWithAnotherMac", "ip neigh replace @v4 lladdr 02:00:00:00:00:99 nud permanent dev @host",
                 "neighbour @v4"},
    NetworkFault{"HostRouteGoneV4", "ip route del @v4 dev @host", "route to @v4 by @host is gone",
                 "ip route add @v4 dev @host"},
    NetworkFault{"ForwardingOffV4", "sysctl -qw net.ipv4.ip_forward=0", "net.ipv4.ip_forward is 0",
                 "sysctl -qw net.ipv4.ip_forward=1"},
    NetworkFault{"ForwardingOffV6", "sysctl -qw net.ipv6.conf.all.forwarding=0", "net.ipv6.conf.all.forwarding is 0",
                 "sysctl -qw net.ipv6.conf.all.forwarding=1"},
    NetworkFault{"HostRouteGoneV6", "ip route del @v6 dev @host", "route to @v6 by @host is gone",
                 "ip route add @v6 dev @host"},
};

class CheckNetwork : public CheckTest, public testing::WithParamInterface<NetworkFault> {};
INSTANTIATE_TEST_SUITE_P(Of, CheckNetwork, testing::ValuesIn(kNetworkFaults),
                         [](const auto &info) { return info.param.name; });

TEST_P(CheckNetwork, FaultIsNamed) {
    run_all(GetParam().inflict);
    expect_said(GetParam().says);
    run_all(GetParam().restore);
    if (!GetParam().restore.empty()) {
        EXPECT_THAT(check(made_), succeeds());
    }
}

struct EntryFault {
    const char *name; // of the map
    void (*inflict)(const CheckTest &t);
    std::vector<std::string> says = {};
};
void PrintTo(const EntryFault &fault, std::ostream *out) { *out << fault.name; }

const std::vector<EntryFault> kEntryFaults = {
    {PODLANE_MAP_INTERFACES,
     [](const CheckTest &t) { (void)require(t.open(&open_interfaces).remove(t.made_.ifindex)); }},
    {PODLANE_MAP_COUNTERS, [](const CheckTest &t) { (void)require(t.open(&open_counters).remove(t.made_.ifindex)); }},
    {PODLANE_MAP_NETWORKS,
     [](const CheckTest &t) { (void)require(t.open(&open_networks).remove(network_id("pods"))); }},
    {PODLANE_MAP_BANDWIDTHS,
     [](const CheckTest &t) { // rates may be changed on a living pod
         const auto limits = t.open(&open_bandwidths);
         auto changed = *require(limits.find(t.made_.ifindex));
         ++changed.ingress_rate_bits_per_s;
         require(limits.update(t.made_.ifindex, changed));
         EXPECT_THAT(t.check(t.made_), succeeds());
         (void)require(limits.remove(t.made_.ifindex));
     }},
    {PODLANE_MAP_SENDERS,
     [](const CheckTest &t) {
         const auto senders = t.open(&open_senders);
         for (const sender_key &key : require(senders.keys()))
             (void)require(senders.remove(key));
     }},
    {PODLANE_MAP_EXEMPT,
     [](const CheckTest &t) {
         const auto exempts = t.open(&open_exempts);
         (void)require(exempts.remove(require(exempts.keys()).at(0)));
     }},
    {PODLANE_MAP_SOURCES,
     [](const CheckTest &t) {
         const auto key = make_allowed_source_key(t.made_.ifindex, prefix("192.0.2.0/24"));
         (void)require(t.open(&open_allowed_sources).remove(key));
     },
     {"192.0.2.0/24"}},
    {PODLANE_MAP_ENDPOINTS,
     [](const CheckTest &t) {
         (void)require(t.open(&open_endpoints).remove(require(make_endpoint_key(t.made_.container->id(), "eth0"))));
     }},
};

class CheckEntry : public CheckTest, public testing::WithParamInterface<EntryFault> {};
INSTANTIATE_TEST_SUITE_P(Of, CheckEntry, testing::ValuesIn(kEntryFaults),
                         [](const auto &info) { return info.param.name; });

TEST_P(CheckEntry, GoneIsNamed) {
    GetParam().inflict(*this);
    for (const std::string &part : GetParam().says)
        expect_said(part);
    expect_said(GetParam().name);
}

TEST_F(CheckTest, NamesChangedMapEntries) {
    const auto interfaces = open(&open_interfaces);
    const auto addresses = open(&open_addresses);
    const auto right = *require(interfaces.find(made_.ifindex));
    auto wrong = right;
    wrong.flags ^= INTERFACE_ANTI_SPOOF;
    require(interfaces.update(made_.ifindex, wrong));
    expect_said(PODLANE_MAP_INTERFACES);
    require(interfaces.update(made_.ifindex, right));
    for (const ip_addr &addr : {made_.v4, made_.v6}) {
        const address_key key{network_id("pods"), addr};
        const auto owned = *require(addresses.find(key));
        auto other = owned;
        ++other.ifindex;
        require(addresses.update(key, other));
        expect_said(to_string(addr));
        (void)require(addresses.remove(key));
        expect_said(PODLANE_MAP_ADDRESSES);
        require(addresses.update(key, owned));
    }
    EXPECT_THAT(check(made_), succeeds());
}

TEST_F(CheckTest, NamesANetworkOfAnOlderVersionWithoutProgramsOnUplinks) {
    const auto networks = open(&open_networks);
    auto entry = *require(networks.find(network_id("pods")));
    entry.has_uplinks = 0;
    require(networks.update(network_id("pods"), entry));
    expect_said("network pods has no programs on uplinks");
    (void)make(keys_);
    EXPECT_THAT(check(made_), succeeds());
}

TEST_F(CheckTest, FailsWithoutTheLease) {
    std::filesystem::remove_all(node_.leases());
    const Reply reply = check(made_);
    EXPECT_EQ(reply.rc, 1);
    EXPECT_THAT(reply.message(), HasSubstr("host-local"));
}

TEST_F(CheckTest, FailsWithAnotherLeaseInPrevResult) {
    made_.result["ips"][0]["address"] = "198.18.9.200/32";
    expect_said("198.18.9.200");
}

TEST_F(CheckTest, NamesTheAddressThatALaterPluginAdded) {
    run_all("pod ip addr add 198.18.9.201/32 dev eth0");
    Json added = made_.result["ips"][0];
    added["address"] = "198.18.9.201/32";
    made_.result["ips"].push_back(added);
    expect_said("198.18.9.201");
    EXPECT_THAT(check(made_).out, testing::HasSubstr("in front of podlane"));
}

TEST_F(CheckTest, FailsWithoutTheNamespaceOrWithAnother) {
    auto other = node_.container();
    Json config = node_.config({{"prevResult", made_.result}});
    Variables variables = attachment(*made_.container);
    variables["CNI_NETNS"] = other->path();
    const Reply elsewhere = node_.cni("podlane", "CHECK", config, variables);
    EXPECT_THAT(elsewhere, fails_with(105, {other->path()}));
    EXPECT_THAT(elsewhere.json.value("details", ""), AllOf(HasSubstr("delete"), Not(HasSubstr("repair"))));
    variables["CNI_NETNS"] = node_.dir() + "/nothing";
    EXPECT_THAT(node_.cni("podlane", "CHECK", config, variables), fails_with(4, {node_.dir() + "/nothing"}));
}

// An isolated pod's network needs it on each kernel.
TEST_F(CheckTest, NamesAMissingRuleThatHasTheKernelTrack) {
    const Json keys = {{"isolation", "network"}};
    const Pod made = make(keys);
    EXPECT_THAT(VerbsTest::check(made, keys), succeeds());
    node_.run("nft delete chain inet podlane-pods conntrack");
    EXPECT_THAT(VerbsTest::check(made, keys),
                fails_with(105, {"the rule in table inet podlane-pods that has the kernel track connections"}));
    (void)make(keys);
    EXPECT_THAT(VerbsTest::check(made, keys), succeeds());
}

// CHECK does not judge other addresses, routes, rules, neighbours and programs.
TEST_F(CheckTest, PassesWhenOthersChangedTheirOwn) {
    run_all("pod ip link add sbr0 type veth peer name sbr1; pod ip addr add 198.51.100.1/24 dev eth0; "
            "pod ip rule add from @v4 table 100; "
            "pod ip route add default via 169.254.1.1 dev eth0 onlink table 100; pod ip route del default; "
            "pod ip link set eth0 mtu 1300; ip route add 198.51.100.0/24 dev @host; ip link set @host mtu 1300");
    EXPECT_THAT(check(made_), succeeds());
}

class CheckProgramsTest : public AttachedTest {};
INSTANTIATE_TEST_SUITE_P(Attach, CheckProgramsTest, both_ways_to_attach(), way_to_attach);

TEST_P(CheckProgramsTest, NamesTheHookThatLacksItsProgram) {
    for (const Hook hook : {Hook::ingress, Hook::egress}) {
        const Pod made = make(attach_key());
        ASSERT_EQ(check(made, attach_key()).rc, 0) << check(made, attach_key());
        {
            const auto inside = require(net::enter(node_.ns()));
            EXPECT_TRUE(require(detach(made.ifindex, hook)));
        }
        EXPECT_THAT(check(made, attach_key()),
                    fails_with(105, {hook == Hook::ingress ? "pl_from_pod" : "pl_to_pod", made.host_ifname}));
    }
}

} // namespace
} // namespace podlane::test
