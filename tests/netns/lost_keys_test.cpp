// SPDX-License-Identifier: MIT
// Pods of one network whose ADDs had different values of the keys that hold for the whole network: the newest ADD's
// apply after repairs and lost maps, too.
#include "tests/netns/ctl.hpp"

#include "loader/record.hpp"
#include "maps/abi/limit_group.h"

#include <fstream>

namespace podlane::test {
namespace {

class LostKeysTest : public CtlTest {
  protected:
    // As nft shows the rules and sets, without counters.
    [[nodiscard]] std::string rules() const { return node_.run("nft -s list ruleset"); }
    [[nodiscard]] std::vector<std::string> ranges() const {
        std::vector<std::string> found;
        for (const auto &[key, value] : require(open(&open_cluster_cidrs).entries()))
            found.push_back(to_string(prefix_of(key)));
        std::ranges::sort(found);
        return found;
    }
    [[nodiscard]] network entry() const { return require(open(&open_networks).find(network_id("pods"))).value(); }
    [[nodiscard]] std::string uplinks() const { return std::string(field_text(entry().uplinks)); }
    void lose_maps() const { fs::remove_all(node_.bpffs()); }
    void add_uplink() const {
        on_node("ip link add up1 type veth peer name up1-peer");
        on_node("ip link set up1 up");
    }
    [[nodiscard]] bool reaches_outside(const Pod &pod) const {
        return run(pod.ns(), words("ping -c 1 -W 1 203.0.113.1")).rc == 0;
    }
    static Json limited_to(const std::vector<std::string> &ranges) {
        return {{"egress", "cluster"}, {"ipMasq", true}, {"clusterCIDRs", ranges}};
    }

    const Json elsewhere_ = limited_to({"198.18.0.0/16", "192.0.2.0/24"});
    const Json outside_too_ = limited_to({"198.18.0.0/16", "203.0.113.0/24"});
};

TEST_F(LostKeysTest, RepairLeavesTheNewestRanges) {
    const Pod older = make(elsewhere_), newest = make(outside_too_);
    const std::vector<std::string> wanted = {"198.18.0.0/16", "203.0.113.0/24"};
    const std::string whole = rules();
    outside_->run("ip route add 198.18.0.0/16 via 203.0.113.2");
    ASSERT_EQ(ranges(), wanted);
    ASSERT_TRUE(reaches_outside(newest));
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("clusterCIDRs")));
    EXPECT_THAT(check(older, elsewhere_), succeeds());
    on_node("nft flush ruleset");
    for (int time = 0; time < 2; ++time) {
        EXPECT_THAT(ctl("repair"), prints(0));
        EXPECT_EQ(ranges(), wanted);
        EXPECT_EQ(rules(), whole);
        EXPECT_TRUE(reaches_outside(newest));
    }
}

TEST_F(LostKeysTest, LostRangesOfTheNewestAreReportedAndRestored) {
    const Pod older = make(elsewhere_), newest = make(outside_too_);
    const auto cidrs = open(&open_cluster_cidrs);
    for (const auto &[key, value] : require(cidrs.entries()))
        require(cidrs.remove(key));
    EXPECT_THAT(check(older, elsewhere_), fails_with(105, {"clusterCIDRs"}));
    EXPECT_THAT(ctl("repair"), prints(0, {"clusterCIDRs"}));
    EXPECT_EQ(ranges(), (std::vector<std::string>{"198.18.0.0/16", "203.0.113.0/24"}));
    EXPECT_THAT(check(older, elsewhere_), succeeds());
    EXPECT_THAT(check(newest, outside_too_), succeeds());
}

TEST_F(LostKeysTest, RangesAndUplinksThatTheNewestLeavesOutStayOut) {
    Json keys = elsewhere_;
    keys["uplinks"] = {"up1"};
    add_uplink();
    const Pod older = make(keys), newest = make({{"ipMasq", true}});
    ASSERT_EQ(ranges().size() + uplinks().size(), 0U);
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("clusterCIDRs")));
    on_node("nft flush ruleset");
    (void)require(open(&open_addresses).remove({network_id("pods"), older.v4}));
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_EQ(ranges(), std::vector<std::string>{});
    EXPECT_EQ(uplinks(), "");
    EXPECT_THAT(ctl("repair"), prints(0));
}

// An ADD of a pod that is deleted since was the newest.
TEST_F(LostKeysTest, RepairKeepsRangesAndRatesOfADeletedPod) {
    const auto keys = [](const std::vector<std::string> &ranges, std::uint64_t rate) {
        Json all = limited_to(ranges);
        all.update({{"limitGroup", "tenant"},
                    {"limitGroups", {{"tenant", {{"egressRate", rate}}}}},
                    {"egressRate", 1000000},
                    {"egressBurst", 1000000}});
        return all;
    };
    const Json narrow = keys({"198.18.0.0/16"}, 20000000), wide = keys({"198.18.0.0/16", "203.0.113.0/24"}, 30000000);
    const Pod older = make(narrow), newest = make(wide);
    outside_->run("ip route add 198.18.0.0/16 via 203.0.113.2");
    EXPECT_THAT(del(*newest.container, wide), succeeds());
    on_node("nft flush ruleset");
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_EQ(ranges(), (std::vector<std::string>{"198.18.0.0/16", "203.0.113.0/24"}));
    EXPECT_EQ(require(open(&open_limit_groups).entries()).at(0).second.configured.egress_rate_bits_per_s, 30000000U);
    EXPECT_TRUE(reaches_outside(older));
    EXPECT_THAT(check(older, narrow), succeeds());
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("clusterCIDRs")));
}

// The list was edited, and the pod of the newest ADD is gone: neither the older list, nor none, is put in place of its.
TEST_F(LostKeysTest, AnEditedListOutlivesThePodOfItsAdd) {
    const Pod older = make(elsewhere_);
    for (const Json &edited : {limited_to({"198.18.0.0/15", "203.0.113.0/24"}), limited_to({"203.0.113.0/24"}),
                               Json{{"ipMasq", true}}, Json::object()}) {
        SCOPED_TRACE(edited);
        const Pod newest = make(edited);
        EXPECT_THAT(del(*newest.container, edited), succeeds());
        const std::vector<std::string> wanted = ranges();
        const std::string whole = rules();
        EXPECT_EQ(wanted.size(), edited.contains("clusterCIDRs") ? edited["clusterCIDRs"].size() : 0U);
        EXPECT_THAT(check(older, elsewhere_), succeeds());
        EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("clusterCIDRs")));
        EXPECT_THAT(ctl("repair").out, Not(HasSubstr("clusterCIDRs")));
        EXPECT_EQ(ranges(), wanted);
        EXPECT_EQ(rules(), whole);
        lose_maps();
        EXPECT_THAT(ctl("repair"), prints(0, {"has lost its entries"}));
        EXPECT_EQ(ranges(), wanted);
    }
}

// Nor does an older list replace one that cannot be read: that call fails, and a DEL does without.
TEST_F(LostKeysTest, AnEditedListThatCannotBeReadIsNotForgotten) {
    const Pod older = make(elsewhere_);
    const Json edited = limited_to({"198.18.0.0/16", "192.0.2.0/24", "203.0.113.0/24"});
    const Pod newest = make(edited);
    EXPECT_THAT(del(*newest.container, edited), succeeds());
    const std::vector<std::string> wanted = ranges();
    const std::string whole = rules();
    const std::string kept = AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/.cidrs-pods";
    ASSERT_EQ(wanted.size(), 3U);
    ASSERT_TRUE(fs::exists(kept));
    const auto failing = [&](const std::string &call) {
        return words("strace -qq -o /dev/null -P " + kept + " -e trace=" + call + " -e inject=" + call + ":error=EIO");
    };
    for (const std::string call : {"openat", "read"}) {
        SCOPED_TRACE(call);
        lose_maps();
        auto repair = failing(call);
        std::ranges::copy(ctl_argv(node_.bpffs(), "repair"), std::back_inserter(repair));
        EXPECT_THAT(run(node_.ns(), repair), prints(1, {"reading " + kept, "Input/output error"}));
        EXPECT_TRUE(fs::exists(kept));
        EXPECT_EQ(rules(), whole);
        EXPECT_THAT(ctl("repair"), prints(0, {"has lost its entries"}));
        EXPECT_EQ(ranges(), wanted);
        EXPECT_EQ(rules(), whole);
    }
    lose_maps();
    auto removal = failing("openat");
    removal.push_back(node_.plugins() + "/podlane");
    Variables variables = attachment(*older.container);
    variables.insert({{"CNI_COMMAND", "DEL"}, {"CNI_PATH", node_.plugins()}});
    EXPECT_THAT(to_reply(run(node_.ns(), removal, node_.config(elsewhere_).dump(), variables)), succeeds());
    EXPECT_FALSE(fs::exists(kept));
}

TEST_F(LostKeysTest, ARangeOfAnEditedListIsMissed) {
    const Pod older = make(elsewhere_), newest = make(outside_too_);
    EXPECT_THAT(del(*newest.container, outside_too_), succeeds());
    const auto cidrs = open(&open_cluster_cidrs);
    require(cidrs.remove(make_cluster_cidr_key(network_id("pods"), parse_prefix("203.0.113.0/24").value())));
    const Reply checked = check(older, elsewhere_);
    EXPECT_THAT(checked, fails_with(105, {"clusterCIDRs"}));
    EXPECT_THAT(checked.details(), HasSubstr("podlanectl repair"));
    EXPECT_THAT(ctl("repair"), prints(0, {"clusterCIDRs"}));
    EXPECT_EQ(ranges(), (std::vector<std::string>{"198.18.0.0/16", "203.0.113.0/24"}));
    EXPECT_THAT(check(older, elsewhere_), succeeds());
    EXPECT_THAT(del(*older.container, elsewhere_), succeeds());
    const auto kept = fs::path(AttachmentRecords(kStateDirectory, node_.bpffs()).directory()) / ".cidrs-pods";
    EXPECT_FALSE(fs::exists(kept));
}

// Whichever record is read last: they are in the order of the containers' names.
TEST_F(LostKeysTest, LostNetworksReturnWithTheNewestValues) {
    add_uplink();
    const auto group = [](std::uint64_t rate) -> Json {
        return {{"limitGroup", "tenant"},
                {"limitGroups", {{"tenant", {{"egressRate", rate}}}}},
                {"egressRate", 1000000},
                {"egressBurst", 1000000}};
    };
    Json first = elsewhere_, second = outside_too_;
    first.update(group(20000000));
    first.update({{"uplinks", {"up0"}}, {"noMasquerade", {"198.51.100.0/24"}}});
    second.update(group(30000000));
    second.update({{"uplinks", {"up1"}}, {"noMasquerade", {"192.0.2.128/25"}}});
    for (const auto &[older, newer] : std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"b", "a"}}) {
        SCOPED_TRACE("the newer is " + newer);
        const auto one = node_.container(older), two = node_.container(newer);
        ASSERT_THAT(add(*one, first), succeeds());
        ASSERT_THAT(add(*two, second), succeeds());
        const std::string whole = rules();
        const auto rate = [&] {
            const auto groups = require(open(&open_limit_groups).entries());
            return groups.size() == 1 ? groups.at(0).second.configured.egress_rate_bits_per_s : 0;
        };
        for (const bool by_repair : {true, false}) {
            SCOPED_TRACE(by_repair ? "repair" : "ADD of another network");
            lose_maps();
            const auto other = node_.container("c");
            const Json range = {{{"subnet", "198.18.8.0/24"}}};
            const Json keys = {{"name", "elsewhere"}, {"ipam", {{"ranges", Json::array({range})}}}};
            if (by_repair) {
                EXPECT_THAT(ctl("repair"), prints(0, {"has lost its entries"}));
            } else {
                EXPECT_THAT(add(*other, keys), succeeds());
            }
            EXPECT_EQ(ranges(), (std::vector<std::string>{"198.18.0.0/16", "203.0.113.0/24"}));
            EXPECT_EQ(uplinks(), "up1");
            EXPECT_EQ(rate(), 30000000U);
            if (!by_repair) {
                EXPECT_THAT(del(*other, keys), succeeds());
            }
            EXPECT_EQ(rules(), whole);
        }
        EXPECT_THAT(del(*one, first), succeeds());
        EXPECT_THAT(del(*two, second), succeeds());
    }
}

// Pods were masqueraded by iptables, and nft is installed since.
class LostToolTest : public LostKeysTest {
  protected:
    void hide_nft() const {
        node_.put_plugin("podlane", "#!/bin/sh\nexec unshare -m sh -c 'mount --bind /dev/null /usr/sbin/nft; exec " +
                                        podlane_.string() + "'\n");
    }
    void install_nft() const { node_.put_plugin("podlane", "#!/bin/sh\nexec " + podlane_.string() + "\n"); }
    const fs::path podlane_ = fs::read_symlink(node_.plugins() + "/podlane");
    const Json keys_ = {{"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/16"}}};
};

TEST_F(LostToolTest, RulesOfAnEarlierToolGoWithTheLastPodAfterLostPins) {
    const std::vector<std::pair<std::string, std::string>> cases = {{"all", "repair"},
                                                                    {"all", "DEL"},
                                                                    {PODLANE_MAP_NETWORKS, "repair"},
                                                                    {PODLANE_MAP_NETWORKS, "upgrade"},
                                                                    {PODLANE_MAP_NETWORKS, "DEL"}};
    for (const auto &[lost, by] : cases) {
        SCOPED_TRACE(lost + " lost, then " + by);
        hide_nft();
        const Pod one = make(keys_), two = make(keys_);
        install_nft();
        ASSERT_EQ(entry().masquerade, ENDPOINT_MASQUERADE_IPTABLES);
        if (lost == "all")
            lose_maps();
        else
            fs::remove(pin_path(node_.bpffs(), lost));
        std::vector<std::shared_ptr<Container>> pods = {one.container, two.container};
        if (by != "DEL") {
            EXPECT_THAT(ctl(by), prints(0));
        }
        if (by == "upgrade")
            pods.push_back(make(keys_).container); // by nft, and the first to insert the network's entry again
        for (const auto &pod : pods) {
            EXPECT_THAT(rules(), HasSubstr("PODLANE-"));
            EXPECT_THAT(del(*pod, keys_), succeeds());
        }
        EXPECT_THAT(rules(), AllOf(Not(HasSubstr("PODLANE-")), Not(HasSubstr("podlane-"))));
        node_.run("nft flush ruleset");
        lose_maps();
    }
}

TEST_F(LostToolTest, TheChainThatAnUninstallKeepsGoesWithTheLastPod) {
    hide_nft();
    const Pod one = make(keys_), two = make(keys_);
    const std::string nowhere = node_.dir() + "/nowhere";
    EXPECT_THAT(
        ctl("uninstall --conf-dir " + nowhere + " --bin-dir " + nowhere),
        prints(0, {"kept, for its pods: chain PODLANE-", "masquerades network pods; the DEL of the last of them"}));
    for (const Pod *pod : {&one, &two}) {
        EXPECT_THAT(rules(), HasSubstr("PODLANE-"));
        EXPECT_THAT(del(*pod->container, keys_), succeeds());
    }
    EXPECT_THAT(rules(), Not(HasSubstr("PODLANE-")));
}

// The older iptables would register its table by that, and later ADDs choose it.
TEST_F(LostToolTest, RepeatedDelAndGcOfANodeWithNftRunNoIptables) {
    const std::string programs = node_.dir() + "/programs", calls = node_.dir() + "/calls";
    fs::create_directory(programs);
    for (const std::string name : {"iptables", "ip6tables", "iptables-restore", "ip6tables-restore"}) {
        std::ofstream(programs + "/" + name) << "#!/bin/sh\necho " << name << " >> " << calls << "\nexit 1\n";
        fs::permissions(programs + "/" + name, fs::perms::owner_all);
    }
    node_.put_plugin("podlane", "#!/bin/sh\nPATH=" + programs + ":$PATH exec " + podlane_.string() + "\n");
    const Pod one = make(keys_);
    ASSERT_EQ(entry().masquerade, ENDPOINT_MASQUERADE_NFTABLES);
    for (const std::string time : {"first", "repeated", "without maps"}) {
        SCOPED_TRACE(time);
        if (time == "without maps")
            lose_maps();
        EXPECT_THAT(del(*one.container, keys_), succeeds());
        EXPECT_THAT(gc({}, keys_), succeeds());
        EXPECT_FALSE(fs::exists(calls));
    }
}

} // namespace
} // namespace podlane::test
