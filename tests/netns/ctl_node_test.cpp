// SPDX-License-Identifier: MIT
// podlanectl gc and uninstall: what goes is what nobody has any more, or what was Podlane's, and nothing else.
#include "loader/record.hpp"
#include "tests/netns/ctl_node.hpp"

#include <sys/mount.h>

#include <regex>

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

TEST_F(NodeTest, GcOfWhatIsNotThereFails) {
    const Pod lives = make(Json::object(), named("shop", "web-0")), dead = make(Json::object(), named("shop", "db-0"));
    lose_namespace(dead);
    const std::string gc = "gc --bin-dir " + node_.plugins() + " ";
    for (const std::string which : {"nope", "nope --dry-run", "nope --json", "--network nope", "--selector app=nope"})
        EXPECT_THAT(ctl(gc + which), complains(1, {"no endpoint matches "})) << which;
    EXPECT_EQ(ctl_json("endpoint").size(), 2U);
    EXPECT_THAT(ctl(gc + "web-0"), prints(0, {"nothing to collect"}));
    EXPECT_THAT(ctl(gc + "db-0"), prints(0, {"removed"}));
    EXPECT_THAT(ctl(gc + "db-0"), complains(1, {"no endpoint matches db-0"}));
    fs::remove_all(node_.bpffs());
    EXPECT_THAT(ctl(gc + "web-0"), prints(0, {"nothing to collect"})) << "it has a record";
    EXPECT_THAT(ctl(gc), prints(0, {"nothing to collect"}));
}

TEST_F(NodeTest, GcSaysWhereItLooksForThePlugin) {
    (void)make();
    EXPECT_THAT(ctl("gc --bin-dir /nowhere"), complains(1, {"there is no plugin /nowhere/podlane", "--bin-dir"}));
}

// By its other end it is known whatever it is called by now, also without the maps.
TEST_F(NodeTest, APodWhoseInterfaceWasRenamedLives) {
    const Pod made = make({{"ipMasq", true}});
    on_node("ip link set " + made.host_ifname + " down");
    on_node("ip link set " + made.host_ifname + " name renamed");
    on_node("ip link set renamed up");
    EXPECT_EQ(gc(), Json::array());
    EXPECT_THAT(ctl("program list"), prints(0, {" renamed "}));
    fs::remove_all(node_.bpffs());
    EXPECT_EQ(gc(), Json::array());
    EXPECT_THAT(uninstall(), prints(0, {"kept, for its pods: table inet podlane-pods"}));
    EXPECT_EQ(programs_on_node(), std::vector<std::string>{});
}

// Its IPAM plugin may take as long as "ipamTimeout" allows, which is up to an hour.
TEST_F(NodeTest, GcWaitsForTheDelAsLongAsItTakes) {
    const Pod dead = make();
    lose_namespace(dead);
    const std::string trace = node_.dir() + "/trace";
    std::vector<std::string> argv = {"strace", "-qq", "-o", trace, "-e", "trace=?poll,?ppoll"};
    std::ranges::move(ctl_argv(node_.bpffs(), "gc --bin-dir " + node_.plugins()), std::back_inserter(argv));
    EXPECT_THAT(run(node_.ns(), argv), prints(0, {"removed"}));
    const std::regex waits(R"(poll\(.*POLLIN.*\], [0-9]+, (\{tv_sec=)?([0-9]+))");
    std::smatch found;
    const std::string text = read_file(trace);
    ASSERT_TRUE(std::regex_search(text, found, waits)) << text;
    EXPECT_GT(std::stoul(found[2]) / (found[1].matched ? 1 : 1000), 2 * 3600U) << text;
}

TEST_F(NodeTest, InstallRefusesAFileInThePlaceOfADirectory) {
    fs::remove(bin());
    std::ofstream(bin()) << "a file\n";
    EXPECT_THAT(install(), complains(1, {"writing to " + bin() + ": Not a directory", "--bin-dir"}));
    EXPECT_TRUE(fs::is_empty(conf()));
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

    for (const Pod *made : {&one, &two}) {
        EXPECT_THAT(del(*made->container, keys), succeeds());
        EXPECT_EQ(programs_on_node(), std::vector<std::string>{}) << "the other pod is not lost";
        EXPECT_FALSE(fs::exists(node_.bpffs()));
    }
    ASSERT_EQ(uninstall().rc, 0);
    EXPECT_FALSE(fs::exists(node_.bpffs()));
    EXPECT_TRUE(fs::is_empty(bin())) << "the plugin goes with the last pod, the list of files with the plugin";
    EXPECT_TRUE(fs::is_empty(conf()));
    EXPECT_FALSE(fs::exists(std::string(kStateDirectory) + "/.turns"));
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
    EXPECT_THAT(output.out, HasSubstr("kept, for its pods: table inet podlane-pods"));
    EXPECT_EQ(del(*made.container, keys).rc, 0); // which takes the rules away with the last pod
    EXPECT_EQ(node_.run("nft list tables").find("podlane-pods"), std::string::npos);
}

// The programs are detached by then: a DEL does not take what is missing for lost.
TEST_F(NodeTest, AKilledUninstallIsNotUndone) {
    for (const std::string at : {"unlink:signal=KILL:when=10", "rmdir:signal=KILL:when=2"}) {
        SCOPED_TRACE(at);
        const Pod one = make();
        const Pod two = make();
        std::vector<std::string> argv = {"strace", "-qq", "-o", "/dev/null", "-e", "inject=" + at};
        std::ranges::move(ctl_argv(node_.bpffs(), "uninstall --bin-dir " + bin() + " --conf-dir " + conf()),
                          std::back_inserter(argv));
        EXPECT_NE(run(node_.ns(), argv).rc, 0);
        EXPECT_EQ(programs_on_node(), std::vector<std::string>{});
        EXPECT_THAT(del(*one.container), succeeds());
        EXPECT_EQ(programs_on_node(), std::vector<std::string>{});
        ASSERT_EQ(uninstall().rc, 0);
        EXPECT_FALSE(fs::exists(node_.bpffs()));
        EXPECT_THAT(del(*two.container), succeeds());
        EXPECT_FALSE(fs::exists(node_.bpffs()));
    }
}

// From then on pins that are lost come back with a DEL, as on any node.
TEST_F(NodeTest, ThePodsThatAreLeftComeBackWithTheNextOneLoadOrRepair) {
    const Pod lives = make();
    const std::string left = "endpoint " + lives.container->id() + " behind " + lives.host_ifname +
                             " takes the slow path since an uninstall";
    for (const std::string how : {"ADD", "load", "repair"}) {
        SCOPED_TRACE(how);
        const Pod dies = make();
        ASSERT_EQ(uninstall().rc, 0);
        EXPECT_THAT(ctl("doctor").out, AllOf(HasSubstr(left), Not(HasSubstr("has lost its entries"))));
        if (how == "ADD")
            EXPECT_THAT(del(*make().container), succeeds());
        else
            EXPECT_THAT(ctl(how + " --conf-dir " + conf()), prints(0));
        EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(left)));
        fs::remove_all(node_.bpffs());
        EXPECT_THAT(del(*dies.container), succeeds());
        EXPECT_THAT(check(lives), succeeds());
    }
}

// A full disk has room for the note that no DEL is to restore anything; a read-only one takes no DEL either.
TEST_F(NodeTest, UninstallWithoutAWritableDisk) {
    const std::string disk = node_.dir() + "/disk";
    fs::create_directory(disk);
    const std::string where = "uninstall --bin-dir " + bin() + " --conf-dir " + conf() + " --state-dir " + disk;
    for (const bool full : {true, false}) {
        SCOPED_TRACE(full ? "full" : "read-only");
        ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=128k"), 0);
        const Pod one = make({{"stateDir", disk}});
        const Pod two = make({{"stateDir", disk}});
        for (std::ofstream file(disk + "/fill"); full && file << std::string(4096, 'x') << std::flush;)
            ;
        ASSERT_EQ(mount(nullptr, disk.c_str(), nullptr, full ? MS_REMOUNT : MS_REMOUNT | MS_RDONLY, "size=128k"), 0);
        const std::string says = "the next DEL may load the programs again: creating " + disk;
        EXPECT_THAT(ctl(where), prints(0, {full ? "detached the programs" : says}));
        EXPECT_EQ(programs_on_node(), std::vector<std::string>{});
        for (const Pod *made : {&one, &two}) {
            EXPECT_EQ(del(*made->container, {{"stateDir", disk}}).rc == 0, full);
            EXPECT_EQ(programs_on_node(), std::vector<std::string>{});
        }
        umount2(disk.c_str(), MNT_DETACH);
        for (const Pod *made : {&one, &two})
            EXPECT_THAT(del(*made->container), succeeds());
    }
}

// A setting that cannot be forgotten stays, and nothing else does: the next call restores it.
TEST_F(NodeTest, UninstallGoesOnBesideAReadOnlyDiskAndIsRepeated) {
    const std::string disk = node_.dir() + "/disk", with = " --state-dir " + disk;
    const std::vector<std::string> settings = {"net.netfilter.nf_conntrack_tcp_be_liberal",
                                               "net.netfilter.nf_conntrack_tcp_ignore_invalid_rst"};
    const std::string where = "uninstall --bin-dir " + bin() + " --conf-dir " + conf() + with;
    fs::create_directory(disk);
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "mode=0700"), 0);
    for (const std::string &name : settings)
        set_sysctl(node_.ns(), name, "0");
    ASSERT_EQ(install().rc, 0);
    const Json keys = {{"stateDir", disk}};
    EXPECT_THAT(del(*make(keys).container, keys), succeeds());
    ASSERT_EQ(mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr), 0);

    const Output output = ctl(where);

    EXPECT_EQ(output.rc, 1);
    EXPECT_THAT(output.out, has_all({"detached the programs", "removed " + conflist(), "removed " + bin()}));
    EXPECT_THAT(output.err, has_all({"restoring " + settings[0], "restoring " + settings[1], "Read-only file system",
                                     "hint: mount its file system for writing, then podlanectl uninstall again"}));
    EXPECT_FALSE(fs::exists(bin() + "/podlane"));
    for (const std::string &name : settings)
        EXPECT_EQ(sysctl(node_.ns(), name), "1") << "as the file says";
    EXPECT_THAT(ctl("doctor" + with).out, Not(HasSubstr("conntrack-settings")));
    ASSERT_EQ(mount(nullptr, disk.c_str(), nullptr, MS_REMOUNT, nullptr), 0);
    EXPECT_THAT(ctl(where), prints(0, {"restored " + settings[0] + " = 0", "restored " + settings[1] + " = 0"}));
    for (const std::string &name : settings)
        EXPECT_EQ(sysctl(node_.ns(), name), "0");
    umount2(disk.c_str(), MNT_DETACH);
}

// An inventory program may have changed it: the pods need the plugin for their DEL all the same.
TEST_F(NodeTest, UninstallKnowsPodsWhoseVethHasAnotherAlias) {
    ASSERT_EQ(install().rc, 0);
    const Pod made = make();
    node_.run("ip link set " + made.host_ifname + " alias lan-port-3");
    EXPECT_THAT(uninstall(), prints(0, {"kept, for the DEL of 1 pods"}));
    EXPECT_THAT(del(*made.container), succeeds());
}

// Its sandbox died, and its runtime has forgotten it: no DEL will come for which the plugin could stay.
TEST_F(NodeTest, UninstallCollectsPodsThatDiedWithoutADel) {
    const std::string before = node_.state(), rules = node_.run("nft list ruleset");
    for (const bool lost_maps : {false, true}) {
        SCOPED_TRACE(lost_maps);
        ASSERT_EQ(install().rc, 0);
        const Pod dead = make({{"ipMasq", true}});
        lose_namespace(dead);
        if (lost_maps)
            fs::remove_all(node_.bpffs());
        EXPECT_THAT(uninstall(), prints(0, {"removed what was left of container " + dead.container->id() + ", eth0",
                                            "removed " + bin() + "/podlane"}));
        EXPECT_EQ(node_.run("nft list ruleset"), rules);
        EXPECT_EQ(node_.state(), before) << "its lease and its record";
        EXPECT_TRUE(fs::is_empty(bin()));
    }
}

// A container whose interface another program took, gets a DEL.
TEST_F(NodeTest, UninstallCollectsNothingOfLivingPods) {
    ASSERT_EQ(install().rc, 0);
    const Json keys = {{"ipMasq", true}};
    const Pod lives = make(keys), without = make(keys), dead = make(keys);
    on_node("ip link del " + without.host_ifname);
    lose_namespace(dead);
    const Output output = uninstall();
    EXPECT_THAT(output, prints(0, {"removed what was left of container " + dead.container->id() + ", eth0",
                                   "kept, for the DEL of 2 pods", "kept, for its pods: table inet podlane-pods"}));
    EXPECT_THAT(output.out, Not(HasSubstr("container " + without.container->id())));
    EXPECT_THAT(node_.leased(),
                testing::UnorderedElementsAre(lives.text4(), lives.text6(), without.text4(), without.text6()));
    EXPECT_EQ(node_.records().size(), 2U);
    EXPECT_TRUE(ping(lives.container->ns(), "203.0.113.1")) << "through the rules";
    EXPECT_THAT(del(*lives.container, keys), succeeds());

    // The plugin stays for that container alone.
    EXPECT_THAT(uninstall(), prints(0, {"kept, for the DEL of 1 pods"}));
    EXPECT_TRUE(fs::exists(bin() + "/podlane"));
    EXPECT_THAT(del(*without.container, keys), succeeds());
    EXPECT_THAT(uninstall(), prints(0, {"removed " + bin() + "/podlane"}));
}

// "its lease stays for now", as the DEL has said.
TEST_F(NodeTest, UninstallReleasesLeasesThatWait) {
    const std::string before = node_.state();
    const std::string ipam = "#!/bin/sh\nexec " + variable("CNI_PLUGINS") + "/host-local\n";
    Json keys = {{"ipam", node_.ipam()}};
    keys["ipam"]["type"] = "former-ipam";
    ASSERT_EQ(install().rc, 0);
    node_.put_plugin("former-ipam", ipam);
    const Pod made = make(keys), dead = make(keys);
    lose_namespace(dead);
    node_.remove_plugin("former-ipam");
    EXPECT_THAT(del(*made.container, keys), succeeds());
    const std::string release = "podlanectl lease release --container ";
    const std::string with = " --bpffs " + node_.bpffs() + " --state-dir /var/lib/podlane";
    EXPECT_THAT(uninstall(), prints(1, {"\"former-ipam\" is not in CNI_PATH", release + made.container->id() + with,
                                        release + dead.container->id() + with,
                                        "kept, for what is left of 2 containers: " + bin() + "/podlane"}));
    EXPECT_EQ(node_.leased().size(), 4U);
    EXPECT_TRUE(fs::exists(bin() + "/podlane"));

    node_.put_plugin("former-ipam", ipam);
    const std::string released = "released the lease that waited since container ";
    EXPECT_THAT(uninstall(), prints(0, {released + made.container->id(), released + dead.container->id(),
                                        "removed " + bin() + "/podlane"}));
    EXPECT_EQ(node_.state(), before);
}

// The maps that named it are gone.
TEST_F(NodeTest, ASecondUninstallNamesTheMasqueradeToo) {
    const Json keys = {{"ipMasq", true}};
    const Pod made = make(keys);
    for (int i = 0; i < 2; ++i)
        EXPECT_THAT(uninstall(),
                    prints(0, {"kept, for its pods: table inet podlane-pods, which masquerades network pods; the DEL "
                               "of the last of them removes it"}));
    EXPECT_TRUE(ping(made.container->ns(), "203.0.113.1"));
    EXPECT_THAT(del(*made.container, keys), succeeds());
    EXPECT_THAT(node_.run("nft list ruleset"), Not(HasSubstr("podlane-pods")));
    EXPECT_THAT(uninstall().out, Not(HasSubstr("masquerades network")));
}

// The pod died without a DEL, and neither maps nor records are left.
TEST_F(NodeTest, UninstallNamesMasqueradeThatNothingKnows) {
    const Json keys = {{"ipMasq", true}};
    const Pod made = make(keys);
    on_node("nft add table inet podlane-theirs");
    fs::remove_all(node_.bpffs());
    fs::remove_all(AttachmentRecords(kStateDirectory, node_.bpffs()).directory());
    lose_namespace(made);
    const Output named = uninstall();
    const std::string remedy = "nft delete table inet 'podlane-pods'";
    EXPECT_THAT(named, prints(0, {remedy}));
    EXPECT_THAT(named.out, Not(HasSubstr("podlane-theirs")));
    must_run(node_.ns(), {"sh", "-c", remedy});
    EXPECT_THAT(uninstall().out, Not(HasSubstr("table inet")));
}

TEST_F(NodeTest, UninstallRemovesWhatAKilledUpgradeLeft) {
    EXPECT_THAT(del(*make().container), succeeds());
    for (const char *left : {"/loading-1a2b3c", "/replaced"})
        fs::create_directory(node_.bpffs() + left);
    EXPECT_THAT(uninstall(), prints(0));
    EXPECT_FALSE(fs::exists(node_.bpffs()));
}

TEST_F(NodeTest, UninstallOfNothingIsFine) { EXPECT_EQ(uninstall().rc, 0); }

} // namespace
} // namespace podlane::test
