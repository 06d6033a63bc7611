// SPDX-License-Identifier: MIT
// podlanectl gc and uninstall: what goes is what nobody has any more, or what was Podlane's, and nothing else.
#include "tests/netns/ctl_node.hpp"

namespace podlane::test {
namespace {

TEST_F(NodeTest, GcRemovesWhatIsGoneAndNothingElse) {
    const Pod lives = make(Json::object(), named("shop", "web-0"));
    const Pod dead = make(Json::object(), named("shop", "db-0"));
    EXPECT_EQ(gc(), Json::array()) << "all is there";
    lose_namespace(dead);

    const Json would = gc("--dry-run");
    ASSERT_EQ(would.size(), 1U);
    EXPECT_EQ(would[0].at("result"), "would-be-removed");
    EXPECT_EQ(ctl_json("endpoint").size(), 2U);

    const Json done = gc();
    ASSERT_EQ(done.size(), 1U) << done.dump(1);
    EXPECT_THAT(done[0], has_members({{"pod", "shop/db-0"}, {"result", "removed"}}));
    const Json left = ctl_json("endpoint");
    ASSERT_EQ(left.size(), 1U);
    EXPECT_EQ(left[0].at("pod_name"), "web-0");
    EXPECT_EQ(ctl_json("doctor"), Json::array());
    EXPECT_EQ(check(lives).rc, 0);
}

// Another program took the interface; the runtime still has the container, and will send its DEL.
TEST_F(NodeTest, GcKeepsWhatTheRuntimeStillHas) {
    const Pod made = make();
    on_node("ip link del " + made.host_ifname);
    const Json all = gc();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].at("result"), "kept");
    EXPECT_EQ(ctl_json("endpoint").size(), 1U);
}

TEST_F(NodeTest, GcOfTheLastPodLeavesNoNetwork) {
    const std::string before = node_.state();
    const Pod made = make();
    lose_namespace(made);
    EXPECT_EQ(gc().at(0).at("result"), "removed");
    EXPECT_EQ(ctl_json("network"), Json::array());
    EXPECT_EQ(programs_on_node(), std::vector<std::string>{});
    fs::remove_all(node_.leases()); // the runtime's DEL is still to come
    EXPECT_EQ(node_.state(), before);
}

TEST_F(NodeTest, GcSaysWhereItLooksForThePlugin) {
    (void)make();
    EXPECT_THAT(ctl("gc --bin-dir /nowhere"), complains(1, {"there is no plugin /nowhere/podlane", "--bin-dir"}));
}

class UninstallTest : public NodeTest, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Attach, UninstallTest, both_ways_to_attach(), way_to_attach);

TEST_P(UninstallTest, TakesEverythingOffAndPodsGoOn) {
    if (GetParam() == "tcx" && !kernel_can_tcx())
        GTEST_SKIP() << "this kernel has no tcx";
    ASSERT_EQ(install().rc, 0);
    const Json keys = {{"attach", GetParam()}};
    const Pod one = make(keys);
    const Pod two = make(keys);
    ASSERT_TRUE(ping(one.container->ns(), two.text4()));
    ASSERT_FALSE(programs_on_node().empty());

    const Output output = uninstall();
    ASSERT_EQ(output.rc, 0) << output.err;
    EXPECT_EQ(programs_on_node(), std::vector<std::string>{});
    EXPECT_FALSE(fs::exists(node_.bpffs()));
    EXPECT_FALSE(fs::exists(conflist()));
    EXPECT_TRUE(fs::exists(bin() + "/podlane")) << "the DELs are still to come";
    EXPECT_THAT(output.out, HasSubstr("kept, for the DEL of 2 pods: " + bin() + "/podlane"));
    for (const std::string &to :
         {two.text4(), two.text6(), std::string("203.0.113.2"), std::string("2001:db8:cafe::2")})
        EXPECT_TRUE(ping(one.container->ns(), to)) << to;

    for (const Pod *made : {&one, &two})
        EXPECT_EQ(del(*made->container, keys).rc, 0);
    ASSERT_EQ(uninstall().rc, 0);
    EXPECT_FALSE(fs::exists(node_.bpffs()));
    EXPECT_TRUE(fs::is_empty(bin())) << "the plugin goes with the last pod, the list of files with the plugin";
    EXPECT_TRUE(fs::is_empty(conf()));
}

TEST_F(NodeTest, UninstallLeavesWhatIsNotOurs) {
    std::ofstream(bin() + "/podlane") << "another\n";
    std::ofstream(conflist()) << "{}\n";
    std::ofstream(conf() + "/87-podman.conflist") << "{}\n";
    on_node("tc qdisc add dev up0 root pfifo");
    const Pod made = make();
    const std::string rules = "table inet other {\n\tchain c {\n\t}\n}\n";
    on_node("nft add table inet other");
    on_node("nft add chain inet other c");
    ASSERT_EQ(del(*made.container).rc, 0);
    EXPECT_THAT(uninstall(), prints(0, {"left alone: " + bin() + "/podlane", "left alone: " + conflist()}));
    EXPECT_EQ(read_file(bin() + "/podlane"), "another\n");
    EXPECT_EQ(read_file(conf() + "/87-podman.conflist"), "{}\n");
    EXPECT_EQ(node_.run("nft list ruleset"), rules);
    EXPECT_THAT(node_.run("tc qdisc show dev up0"), HasSubstr("pfifo"));
}

TEST_F(NodeTest, UninstallKeepsPodsMasqueraded) {
    const Json keys = {{"ipMasq", true}};
    const Pod made = make(keys);
    ASSERT_TRUE(ping(made.container->ns(), "203.0.113.1")); // which has no route to the pod
    const Output output = uninstall();
    ASSERT_EQ(output.rc, 0) << output.err;
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.1"));
    EXPECT_THAT(output.out, HasSubstr("nft delete table inet 'podlane-pods'"));
    EXPECT_EQ(del(*made.container, keys).rc, 0); // which takes the rules away with the last pod
    EXPECT_EQ(node_.run("nft list tables").find("podlane-pods"), std::string::npos);
}

TEST_F(NodeTest, UninstallOfNothingIsFine) { EXPECT_EQ(uninstall().rc, 0); }

} // namespace
} // namespace podlane::test
