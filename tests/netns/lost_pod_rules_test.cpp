// SPDX-License-Identifier: MIT
// Rules in a living container go with the DEL that follows lost maps, and with the one that could not look there at
// first: nothing else would remove them.
#include "tests/netns/pod_rules.hpp"

#include <sys/mount.h>

namespace podlane::test {
namespace {

class LostPodRules : public NoHostVeth {
  protected:
    void expect_del_leaves_it_as_it_was() {
        const Chain podlane_alone = net1_alone();
        for (int time = 0; time < 2; ++time)
            EXPECT_THAT(podlane_alone.del(*pod_, true), succeeds());
        EXPECT_EQ(routing(), before_) << "while the interface is still there";
        EXPECT_THAT(pod_->run("ip route show table all dev net1"), testing::Not(HasSubstr(" table 13")));
        EXPECT_THAT(lab_.del(pod_, "net1"), succeeds());
        EXPECT_TRUE(answers("eth0", 0, true) && answers("eth0", 0, false));
    }
    // The plugin, run by strace(1) with these options if there are any.
    void put_podlane(const std::string &strace) {
        node().put_plugin("podlane", "#!/bin/sh\nexec " + strace + variable("PODLANE_BIN") + "\n");
    }
};

TEST_P(LostPodRules, DelWithoutMapsRemovesThem) {
    add_pod();
    fs::remove_all(node().bpffs());
    expect_del_leaves_it_as_it_was();
}

TEST_P(LostPodRules, DelAfterAnUninstallRemovesThem) {
    add_pod();
    EXPECT_EQ(node().podlanectl("uninstall --conf-dir " + node().dir() + " --bin-dir " + node().dir()).rc, 0);
    expect_del_leaves_it_as_it_was();
}

// The flag that says that it has rules is in the maps alone.
TEST_P(LostPodRules, DelOfTheOtherInterfaceRemovesItsOwn) {
    add_pod();
    const std::string own = to_string(addr("eth0", true)), of_net1 = to_string(addr("net1", true));
    ASSERT_THAT(pod_->run("ip rule"), has_all({own, of_net1}));
    fs::remove_all(node().bpffs());
    EXPECT_THAT(lab_.del(pod_, "eth0"), succeeds());
    EXPECT_THAT(pod_->run("ip rule"), testing::AllOf(testing::Not(HasSubstr(own)), HasSubstr(of_net1)));
    EXPECT_THAT(lab_.check(pod_, "net1"), succeeds());
    EXPECT_THAT(lab_.del(pod_, "net1"), succeeds());
    EXPECT_THAT(pod_->run("ip rule"), testing::Not(HasSubstr("20556")));
}

// It may be there all the same: the runtime repeats a DEL that fails.
TEST_P(LostPodRules, ANamespaceThatCannotBeOpenedIsNotGone) {
    add_pod();
    const std::string by_rules = routing();
    put_podlane("strace -qq -o /dev/null -P " + pod_->path() + " -e trace=openat -e inject=openat:error=EMFILE ");
    EXPECT_THAT(net1_alone().del(*pod_, true),
                fails_with(4, {"opening the network namespace " + pod_->path(), "Too many open files"}));
    EXPECT_EQ(routing(), by_rules);
    put_podlane("");
    expect_del_leaves_it_as_it_was();
}

// Nobody can say whether it lost its rules; that is no other pod's matter.
TEST_P(LostPodRules, ANamespaceThatCannotBeOpenedFailsNoAddOfAnotherPod) {
    add_pod();
    fs::remove_all(node().bpffs());
    put_podlane("strace -qq -o /dev/null -P " + pod_->path() + " -e trace=openat -e inject=openat:error=EACCES ");
    const auto other = node().container();
    const Reply reply = node().cni("ADD", node().config(), *other);
    EXPECT_THAT(reply, succeeds());
    EXPECT_THAT(reply.err, has_all({"looking for attachments that lost their entries", pod_->path()}));
    put_podlane("");
    EXPECT_THAT(node().cni("DEL", node().config(), *other), succeeds());
    expect_del_leaves_it_as_it_was();
}

// The pod lives, and its path leads to another container's namespace by now.
TEST_P(LostPodRules, NothingIsPutIntoANamespaceThatHasThePathNow) {
    pod_ = node().container();
    lab_.add(pod_, net1());
    lab_.add(pod_, "eth0", 0); // by its record it has rules
    settle();
    const Json link = Json::parse(pod_->run("ip -j link show eth0")).at(0);
    const auto foreign = node().container(), other = node().container();
    foreign->run("ip link add eth0 index " + link.at("ifindex").dump() + " type veth peer name eth1 index 1000");
    foreign->run("ip link set eth0 up");
    const std::string before = foreign->run("ip rule") + foreign->run("ip -6 rule");
    fs::remove_all(node().bpffs());
    ASSERT_EQ(mount(foreign->path().c_str(), pod_->path().c_str(), nullptr, MS_BIND, nullptr), 0);
    const Reply added = node().cni("ADD", node().config(), *other);
    EXPECT_EQ(foreign->run("ip rule") + foreign->run("ip -6 rule"), before);
    ASSERT_EQ(umount2(pod_->path().c_str(), MNT_DETACH), 0);
    EXPECT_THAT(added, succeeds());
    EXPECT_THAT(added.err, HasSubstr(pod_->path() + " is another namespace now"));
    EXPECT_THAT(node().cni("DEL", node().config(), *other), succeeds());
}

INSTANTIATE_TEST_SUITE_P(Plugins, LostPodRules, without_host_veth(), plugin_name);

} // namespace
} // namespace podlane::test
