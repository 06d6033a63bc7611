// SPDX-License-Identifier: MIT
// "egress": "cluster" in each verb: the rules come and go with the pods, are checked and repaired, and cannot be had
// where they would not hold.
#include "loader/object.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/ctl.hpp"
#include "tests/netns/rollback.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
const test::Endpoint kOutside{ip("203.0.113.1"), kPort};
const Json kLimited = {{"egress", "cluster"}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/64"}}};

Json limited(Json more = Json::object()) {
    more.update(kLimited);
    return more;
}

class EgressVerbs : public CtlTest {
  protected:
    EgressVerbs() { outside_->run("ip route add 198.18.9.0/24 via 203.0.113.2"); }
    [[nodiscard]] std::string rules() const { return node_.run("nft list ruleset"); }
    [[nodiscard]] static bool gets_out(const Pod &pod) {
        return connect_to(open_socket(pod.ns(), Transport::tcp, true), kOutside, quiet()) == 0;
    }
    const EchoServer outside_server_{outside_->ns(), true, kPort};
};

TEST_F(EgressVerbs, RulesComeWithTheFirstPodAndGoWithTheLast) {
    const Json open = {{"clusterCIDRs", kLimited.at("clusterCIDRs")}};
    const Pod plain = make(open);
    EXPECT_EQ(rules().find("hook forward"), std::string::npos) << "nothing for those without the key";
    const Pod first = make(limited()), second = make(limited());
    EXPECT_THAT(rules(), AllOf(HasSubstr(first.host_ifname), HasSubstr(second.host_ifname)));
    EXPECT_FALSE(gets_out(first));
    EXPECT_TRUE(gets_out(plain));
    ASSERT_THAT(del(*first.container, limited()), succeeds());
    EXPECT_THAT(rules(), AllOf(Not(HasSubstr(first.host_ifname)), HasSubstr(second.host_ifname)));
    ASSERT_THAT(gc({&plain}, open), succeeds()) << "and with another configuration";
    EXPECT_EQ(rules().find(second.host_ifname), std::string::npos);
    ASSERT_THAT(del(*plain.container, open), succeeds());
    EXPECT_EQ(rules(), "");
}

// The first packets take the slow path all the same, and what follows them the fast path as conntrack says.
TEST_F(EgressVerbs, TheKernelTracksBesideDirectFirstPackets) {
    const Pod pod = make(limited({{"firstPacket", "direct"}}));
    if (!require(programs_query_conntrack(node_.bpffs())))
        GTEST_SKIP() << "this kernel has no bpf_skb_ct_lookup";
    const std::string whole = rules();
    EXPECT_THAT(whole, HasSubstr("chain conntrack"));
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("track connections")));
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_EQ(rules(), whole);
    ASSERT_THAT(del(*pod.container, limited({{"firstPacket", "direct"}})), succeeds());
    EXPECT_EQ(rules(), "");
}

TEST_F(EgressVerbs, WhatTheyDropIsShown) {
    const Json others = {
        {"name", "others"},
        {"ipam", {{"ranges", {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}}}}}};
    const Pod pod = make(limited()), open = make(others);
    const auto of = [&](const std::string &name) {
        return find(ctl_json("network list"), "network", name).at("egress_drops");
    };
    EXPECT_EQ(of("pods"), 0);
    EXPECT_FALSE(gets_out(pod));
    const auto dropped = of("pods").get<std::uint64_t>();
    EXPECT_GT(dropped, 0U);
    EXPECT_TRUE(of("others").is_null()) << "without the key";
    const std::string metrics = ctl("metrics").out;
    EXPECT_THAT(metrics, AllOf(HasSubstr("podlane_network_egress_drops_total{network=\"pods\"} "),
                               Not(HasSubstr("podlane_network_egress_drops_total{network=\"others\"}"))));
    EXPECT_THAT(del(*open.container, others), succeeds());
}

TEST_F(EgressVerbs, AreCheckedAndRepaired) {
    const Pod pod = make(limited()), peer = make(limited());
    const EchoServer server(peer.ns(), true, kPort);
    const Fd within = connected(pod.ns(), Transport::tcp, {peer.v4, kPort});
    const std::string table = "inet podlane-" + node_.config().at("name").get<std::string>();
    for (const std::string &lose :
         {std::string("flush ruleset"), "flush set " + table + " limited", "flush chain " + table + " egress",
          "delete element " + table + " limited { \"" + pod.host_ifname + "\" }",
          "add table " + table + " { flags dormant; }", "add chain " + table + " egress { policy drop; }"}) {
        SCOPED_TRACE(lose);
        ASSERT_FALSE(gets_out(pod));
        node_.run("nft -f -", lose + "\n");
        EXPECT_THAT(check(pod, limited()), fails_with(105, {"limit the egress of " + pod.host_ifname}));
        EXPECT_THAT(ctl("doctor"), prints(1, {"limit the egress"}));
        EXPECT_THAT(ctl("repair"), prints(0));
        EXPECT_THAT(check(pod, limited()), succeeds());
        EXPECT_FALSE(gets_out(pod));
        EXPECT_EQ(transfer(within, std::size_t{1} << 20U), 0) << "what is allowed goes on";
    }
    EXPECT_THAT(ctl("doctor"), prints(0));
    for (const Pod *one : {&pod, &peer})
        EXPECT_THAT(del(*one->container, limited()), succeeds());
    EXPECT_EQ(rules(), "");
}

// On the fast path by then, which no rule of the host sees.
TEST_F(EgressVerbs, WhatBeganWithoutTheRulesEnds) {
    const Json keys = limited({{"firstPacket", "host"}});
    const Pod pod = make(keys), peer = make(keys);
    const EchoServer server(peer.ns(), true, kPort);
    const Fd within = connected(pod.ns(), Transport::tcp, {peer.v4, kPort});
    const Fd outside = open_socket(outside_->ns(), Transport::udp, true, {kOutside.addr, 4000});
    const Fd inside = open_socket(pod.ns(), Transport::udp, true, {pod.v4, 5000});
    const auto sends = [&] {
        EXPECT_TRUE(send_datagram(inside, {kOutside.addr, 4000}, "out"));
        return !receive(outside, 100, quiet()).text.empty();
    };
    const auto on_fast_path = [&] { return node_.counted(pod.ifindex, REASON_SENT_UPLINK).packets; };
    node_.run("nft flush chain inet podlane-pods egress");
    const bool can_be = require(programs_query_conntrack(node_.bpffs()));
    EXPECT_TRUE(wait_until([&] {
        return sends() && send_datagram(outside, {pod.v4, 5000}, "in") && (on_fast_path() > 5 || !can_be);
    }));
    EXPECT_THAT(ctl("repair"), prints(0));
    const std::uint16_t port = local_of(within).port;
    EXPECT_TRUE(std::ranges::any_of(tracked(node_.ns()), [&](const Tracked &one) { return one.source.port == port; }))
        << "what is allowed stays";
    EXPECT_TRUE(wait_until([&] { return !sends(); })) << "the flow cache queries conntrack once a second";
    EXPECT_FALSE(sends());
    for (const Pod *one : {&pod, &peer})
        EXPECT_THAT(del(*one->container, keys), succeeds());
}

// An IPAM plugin gives an address twice, in one network or in two.
TEST_F(EgressVerbs, AFailedAddEndsNoConnectionOfTheAddressesOwner) {
    const Json twice = {{"ipam", {{"type", "static"}, {"addresses", {{{"address", "198.18.9.77/24"}}}}}},
                        {"clusterCIDRs", kLimited.at("clusterCIDRs")},
                        {"firstPacket", "host"}};
    const Pod owner = make(twice);
    const Fd socket = connected(owner.ns(), Transport::tcp, kOutside);
    const auto connections = [&, port = local_of(socket).port] {
        const auto all = tracked(node_.ns());
        return std::ranges::count_if(all, [&](const Tracked &one) { return one.source.port == port; });
    };
    ASSERT_EQ(connections(), 1);
    for (const char *network : {"pods", "others"})
        for (const Json &more : {Json{{"egress", "cluster"}}, Json{{"isolation", "network"}}}) {
            SCOPED_TRACE(network + more.dump());
            Json keys = twice;
            keys.update(more);
            keys["name"] = network;
            const auto second = node_.container();
            EXPECT_THAT(add(*second, keys), fails_with(104, {"198.18.9.77"}));
            EXPECT_EQ(connections(), 1);
        }
    EXPECT_EQ(transfer(socket, 1000), 0);
    EXPECT_THAT(del(*owner.container, twice), succeeds());
    EXPECT_EQ(rules(), "");
}

TEST_F(EgressVerbs, ComeBackWithLostMaps) {
    const Pod pod = make(limited());
    fs::remove_all(node_.bpffs());
    node_.run("nft flush ruleset");
    const Pod next = make(limited()); // which restores what was lost
    EXPECT_THAT(check(pod, limited()), succeeds());
    EXPECT_FALSE(gets_out(pod));
    fs::remove_all(node_.bpffs());
    for (const Pod *one : {&pod, &next})
        EXPECT_THAT(del(*one->container, limited()), succeeds());
    EXPECT_EQ(rules(), "") << "the record on disk says what there was";
}

// The kernel cannot select the connections of an IPv6 address, and a node may have a hundred thousand.
TEST_F(EgressVerbs, AnAddReadsTheTableOfConnectionsOnceAFamily) {
    Json ranges = node_.ipam().at("ranges");
    ranges.push_back(Json::parse(R"([{"subnet": "2001:db8:10::/64"}])"));
    const Json isolated = {{"groups", {"name:tenant-a"}}, {"isolation", "group"}};
    for (const Json &more : {Json::object(), isolated}) {
        SCOPED_TRACE(more);
        Json config = node_.config(limited(more));
        config["ipam"]["ranges"] = ranges;
        const auto container = node_.container();
        const std::string trace = node_.dir() + "/trace";
        Variables variables = attachment(*container);
        variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
        const Output added =
            run(node_.ns(), {"strace", "-qq", "-e", "trace=sendmsg,sendto", "-o", trace, node_.plugins() + "/podlane"},
                config.dump(), variables);
        ASSERT_EQ(added.rc, 0) << added.out;
        std::istringstream calls(read_file(trace));
        int walks = 0;
        for (std::string line; std::getline(calls, line);)
            walks += line.find(R"(\0\0\0\1\1\1\)") != std::string::npos ? 1 : 0; // a CT_GET: length, type, flags
        EXPECT_EQ(walks, 2) << read_file(trace);
        EXPECT_THAT(node_.cni("DEL", config, *container), succeeds());
    }
}

TEST_F(EgressVerbs, AnAddRestoresTheTableAndThePolicyOfTheChain) {
    const Pod pod = make(limited());
    const auto kinds = [&] { return node_.run("nft -s list ruleset"); };
    const std::string whole = kinds();
    for (const std::string damage :
         {"table inet podlane-pods { flags dormant; }", "chain inet podlane-pods egress { policy drop; }"}) {
        SCOPED_TRACE(damage);
        node_.run("nft add " + damage);
        ASSERT_NE(kinds(), whole);
        const Pod second = make(limited());
        EXPECT_FALSE(gets_out(second));
        EXPECT_THAT(del(*second.container, limited()), succeeds());
        EXPECT_EQ(kinds(), whole);
    }
}

// The newest ADD's clusterCIDRs count, unless it fails.
TEST_F(EgressVerbs, FollowTheNetworksCidrs) {
    const Pod pod = make(limited());
    Json wider = limited();
    wider["clusterCIDRs"].push_back("203.0.113.0/24");
    const auto container = node_.container();
    Json failing = wider;
    failing["sysctls"] = {{"net.ipv4.no_such_setting", "1"}};
    EXPECT_EQ(add(*container, failing).rc, 1);
    EXPECT_FALSE(gets_out(pod)) << rules();
    EXPECT_THAT(check(pod, limited()), succeeds());
    const Pod second = make(wider);
    EXPECT_TRUE(gets_out(second));
    EXPECT_TRUE(gets_out(pod));
    for (const Pod *one : {&pod, &second})
        EXPECT_THAT(del(*one->container, wider), succeeds());
}

TEST_F(EgressVerbs, GoWithUninstall) {
    for (const bool masquerades : {false, true}) {
        const Json keys = limited({{"ipMasq", masquerades}});
        const Pod pod = make(keys);
        ASSERT_FALSE(gets_out(pod));
        ASSERT_THAT(ctl("uninstall --bin-dir " + node_.dir() + " --conf-dir " + node_.dir()), prints(0));
        EXPECT_EQ(rules().find("podlane") != std::string::npos, masquerades);
        EXPECT_EQ(rules().find("hook forward"), std::string::npos);
        EXPECT_EQ(rules().find("ifname"), std::string::npos);
        EXPECT_TRUE(gets_out(pod));
        EXPECT_THAT(del(*pod.container, keys), succeeds());
        EXPECT_EQ(rules(), "");
    }
}

class EgressRollback : public RollbackTest {};

TEST_F(EgressRollback, NoPodStartsWithoutTheRules) {
    const auto container = node_.container();
    const std::string before = everything();
    EXPECT_THAT(node_.cni("ADD", node_.config(limited()), *container, {{"PATH", failing_nft("exit 1")}}),
                fails_with(5, {"nft"}));
    EXPECT_EQ(everything(), before);
    const Pod first = make(limited());
    // Another pod needs no nft(8), unless the rules are of another configuration.
    const auto second = node_.container();
    EXPECT_THAT(node_.cni("ADD", node_.config(limited()), *second, {{"PATH", failing_nft("exit 1")}}), succeeds());
    EXPECT_THAT(del(*second, limited()), succeeds());
    EXPECT_THAT(del(*first.container, limited()), succeeds());
    EXPECT_EQ(everything(), before);
}

// Behind a bridge the rules would see the bridge; without a host-side veth, nothing.
TEST_F(EgressRollback, IsRefusedIfTheRulesWouldNotHold) {
    Chain bridge(node_, {{{"type", "bridge"}, {"isGateway", true}, {"ipam", node_.ipam()}}});
    const auto container = node_.container();
    const Reply made = succeeded(bridge.add(*container));
    Json config = behind(made.json);
    config.update(kLimited);
    const std::string before = node_.state();
    EXPECT_THAT(node_.cni("ADD", config, *container), fails_with(2, {"is a port of a bridge"}));
    EXPECT_EQ(node_.state(), before);
    EXPECT_EQ(bridge.del(*container).rc, 0);

    const auto other = node_.container();
    other->run("ip link add eth0 type veth peer name eth1");
    config = behind({{"cniVersion", "1.0.0"},
                     {"interfaces", {{{"name", "eth0"}, {"sandbox", other->path()}}}},
                     {"ips", {{{"address", "198.18.9.5/24"}, {"interface", 0}}}}});
    config.update(kLimited);
    EXPECT_THAT(node_.cni("ADD", config, *other), fails_with(2, {"nothing can limit what it opens"}));
}

} // namespace
} // namespace podlane::test
