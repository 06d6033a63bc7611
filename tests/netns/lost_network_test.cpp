// SPDX-License-Identifier: MIT
// The rules of a network whose maps are lost and whose records are lost or torn: they go with the last DEL, and no
// sooner than the last pod.
#include "loader/record.hpp"
#include "tests/harness/chain.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class LostNetworkTest : public VerbsTest {
  protected:
    void lose_maps() const { fs::remove_all(node_.bpffs()); }
    void lose_all() const {
        lose_maps();
        for (const auto &entry : fs::directory_iterator(kStateDirectory))
            fs::remove_all(entry.path());
    }
    [[nodiscard]] std::string path_of(const Pod &made) const {
        return AttachmentRecords(kStateDirectory, node_.bpffs()).directory() + "/" + made.container->id() + ":eth0";
    }
    [[nodiscard]] std::string rules() const { return node_.run("nft list ruleset"); }
    void expect_nothing_left() const {
        EXPECT_EQ(everything(), before_);
        for (const Hook hook : {Hook::ingress, Hook::egress})
            EXPECT_THAT(programs(uplink_ifindex(), hook), IsEmpty());
    }

    const Json keys_ = {{"ipMasq", true},
                        {"clusterCIDRs", {"198.18.0.0/16"}},
                        {"uplink", "up0"},
                        {"gateway", {"203.0.113.1", "2001:db8:cafe::1"}}};
    const std::string before_ = everything();
};

TEST_F(LostNetworkTest, TheLastDelRemovesItsRules) {
    const Pod one = make(keys_), two = make(keys_);
    const std::string rules_before = rules(), routing = node_.run("ip rule");
    ASSERT_THAT(rules_before, HasSubstr("masquerade"));
    lose_all();
    EXPECT_THAT(del(*one.container, keys_), succeeds());
    EXPECT_EQ(rules(), rules_before);
    EXPECT_EQ(node_.run("ip rule"), routing);
    EXPECT_THAT(programs(uplink_ifindex(), Hook::egress), Not(IsEmpty()));
    EXPECT_THAT(del(*two.container, keys_), succeeds());
    expect_nothing_left();
}

TEST_F(LostNetworkTest, TheLastDelRemovesTheChainsOfIptables) {
    node_.run("iptables-legacy -w -t nat -N KUBE-SERVICES"); // the older iptables does the node's NAT
    const Pod one = make(keys_), two = make(keys_);
    const std::string rules_before = rules();
    ASSERT_THAT(rules_before, HasSubstr("PODLANE-"));
    lose_all();
    EXPECT_THAT(del(*one.container, keys_), succeeds());
    EXPECT_EQ(rules(), rules_before);
    EXPECT_THAT(del(*two.container, keys_), succeeds());
    EXPECT_THAT(rules(), testing::AllOf(Not(HasSubstr("PODLANE-")), Not(HasSubstr("podlane-"))));
}

// Its host-side veth has no alias of Podlane's, but programs.
TEST_F(LostNetworkTest, ThePodsOfAnotherMainPluginKeepItsRules) {
    const std::vector<Json> plugins = {{{"type", "ptp"}, {"ipam", node_.ipam()}},
                                       {{"type", "podlane"}, {"bpffs", node_.bpffs()}, {"ipMasq", true}}};
    Chain first(node_, plugins), second(node_, plugins);
    const auto one = node_.container(), two = node_.container();
    EXPECT_THAT(first.add(*one), succeeds());
    EXPECT_THAT(second.add(*two), succeeds());
    const std::string rules_before = rules();
    ASSERT_THAT(rules_before, HasSubstr("masquerade"));
    lose_all();
    EXPECT_THAT(first.del(*one), succeeds());
    EXPECT_EQ(rules(), rules_before);
    EXPECT_THAT(second.del(*two), succeeds());
    expect_nothing_left();
}

// Of the maps that say who else is in the network, and of what is the network's.
TEST_F(LostNetworkTest, TheLastDelRemovesItsRulesIfSinglePinsAreLost) {
    const std::string routing_before = node_.run("ip rule"), rules_before = rules();
    for (const std::string lost : {"all", PODLANE_MAP_NETWORKS, PODLANE_MAP_UPLINKS, PODLANE_MAP_ADDRESSES}) {
        SCOPED_TRACE(lost);
        const Pod one = make(keys_), two = make(keys_);
        for (const auto &pin : fs::directory_iterator(node_.bpffs() + "/live"))
            if (lost == "all" || pin.path().filename() == lost)
                fs::remove(pin.path());
        EXPECT_THAT(del(*one.container, keys_), succeeds());
        EXPECT_THAT(rules(), HasSubstr(two.text4()));
        EXPECT_THAT(programs(uplink_ifindex(), Hook::egress), Not(IsEmpty()));
        EXPECT_THAT(del(*two.container, keys_), succeeds());
        EXPECT_EQ(rules(), rules_before);
        EXPECT_EQ(node_.run("ip rule"), routing_before);
        for (const Hook hook : {Hook::ingress, Hook::egress})
            EXPECT_THAT(programs(uplink_ifindex(), hook), IsEmpty());
        lose_maps();
    }
}

// An upgrade recreates the maps; that the others live is on disk.
TEST_F(LostNetworkTest, PodsWhoseEntriesAreLostKeepItsRules) {
    const Pod one = make(keys_), two = make(keys_);
    const std::string routing = node_.run("ip rule");
    for (const char *lost : {PODLANE_MAP_NETWORKS, PODLANE_MAP_ADDRESSES})
        fs::remove(pin_path(node_.bpffs(), lost));
    ASSERT_EQ(run(node_.ns(), ctl_argv(node_.bpffs(), "upgrade")).rc, 0);
    EXPECT_THAT(del(*one.container, keys_), succeeds());
    EXPECT_THAT(rules(), testing::AllOf(HasSubstr("masquerade"), HasSubstr(two.text4())));
    EXPECT_EQ(node_.run("ip rule"), routing);
    EXPECT_THAT(programs(uplink_ifindex(), Hook::egress), Not(IsEmpty()));
    EXPECT_THAT(del(*two.container, keys_), succeeds());
    EXPECT_THAT(rules(), Not(HasSubstr("podlane-")));
}

// Records name the root of the pins; a repair of one spelling is one of all.
TEST_F(LostNetworkTest, ARootMayBeSpelledAsAnyPathIs) {
    const std::string root = node_.bpffs();
    const auto slash = root.rfind('/');
    Json keys = keys_;
    keys["bpffs"] = root.substr(0, slash) + "//." + root.substr(slash) + "/";
    const Pod one = make(keys_), two = make(keys);
    EXPECT_EQ(node_.records().size(), 2U);
    EXPECT_EQ(run(node_.ns(), ctl_argv(keys["bpffs"], "doctor --bin-dir " + node_.plugins())).rc, 0);
    lose_maps();
    const Output repaired = run(node_.ns(), ctl_argv(keys["bpffs"], "repair --bin-dir " + node_.plugins()));
    EXPECT_EQ(repaired.rc, 0) << repaired.out << repaired.err;
    for (const Pod *pod : {&one, &two})
        EXPECT_THAT(check(*pod, keys_), succeeds());
    EXPECT_THAT(del(*one.container, keys), succeeds());
    EXPECT_THAT(del(*two.container, keys_), succeeds());
    expect_nothing_left();
}

// The next ADD makes new maps, which know nothing of the others.
TEST_F(LostNetworkTest, APodThatComesAndGoesLeavesTheRulesToTheOthers) {
    const Pod one = make(keys_), two = make(keys_);
    lose_all();
    EXPECT_THAT(del(*make(keys_).container, keys_), succeeds());
    EXPECT_THAT(rules(), HasSubstr("masquerade"));
    EXPECT_THAT(del(*one.container, keys_), succeeds());
    EXPECT_THAT(rules(), HasSubstr("masquerade"));
    EXPECT_THAT(del(*two.container, keys_), succeeds());
    expect_nothing_left();
}

TEST_F(LostNetworkTest, GcRemovesItsRulesIfTheSandboxesDied) {
    const std::string routing_before = node_.run("ip rule");
    const Pod one = make(keys_), two = make(keys_);
    lose_all();
    lose_namespace(one);
    EXPECT_THAT(gc({&two}, keys_), succeeds());
    EXPECT_THAT(rules(), HasSubstr("masquerade"));
    lose_namespace(two);
    EXPECT_THAT(gc({}, keys_), succeeds());
    EXPECT_THAT(rules(), Not(HasSubstr("podlane-")));
    EXPECT_EQ(node_.run("ip rule"), routing_before);
}

TEST_F(LostNetworkTest, ATornRecordNeitherStopsDelNorTakesTheRulesOfOthers) {
    const std::vector<std::pair<std::string, std::function<void(const std::string &)>>> damages = {
        {"empty", [](const std::string &path) { fs::resize_file(path, 0); }},
        {"torn in its first part", [](const std::string &path) { fs::resize_file(path, 200); }},
        {"torn behind it", [&](const std::string &path) {
             fs::resize_file(path, must_run(node_.ns(), {"cat", path}).rfind("podlane-record ") + 60);
         }}};
    for (const auto &[what, damage] : damages)
        for (const std::string torn : {"first", "last", "both"}) {
            SCOPED_TRACE(what + ", that of the " + torn);
            const Pod first = make(keys_), last = make(keys_);
            if (torn != "last")
                damage(path_of(first));
            if (torn != "first")
                damage(path_of(last));
            lose_maps();
            EXPECT_THAT(del(*first.container, keys_), succeeds());
            EXPECT_TRUE(host_link(first).is_null());
            EXPECT_FALSE(fs::exists(path_of(first)));
            EXPECT_THAT(rules(), testing::AllOf(HasSubstr("masquerade"), HasSubstr(last.text4())));
            EXPECT_EQ(node_.leased().size(), 2U);
            EXPECT_THAT(del(*last.container, keys_), succeeds());
            expect_nothing_left();
        }
}

} // namespace
} // namespace podlane::test
