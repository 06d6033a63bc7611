// SPDX-License-Identifier: MIT
// Two nodes, each a network namespace, are given the same directory of pins: the second is refused, and what the first
// has stays as it is.
#include "tests/harness/outcome.hpp"

namespace podlane::test {
namespace {

class SharedRoot : public testing::Test {
  protected:
    SharedRoot() : pod_(first_.container("one")) {
        first_.run("ip link add up0 type veth peer name up1");
        first_.run("ip link set up0 up");
        added_ = first_.cni("ADD", of_first(), *pod_);
        EXPECT_THAT(added_, succeeds());
    }

    [[nodiscard]] Json of_first() const { return first_.config({{"uplinks", {"up0"}}, {"ipMasq", true}}); }
    [[nodiscard]] Json of_second(Json keys = Json::object()) const {
        keys.update({{"bpffs", first_.bpffs()}, {"cniVersion", "1.1.0"}});
        return second_.config(keys);
    }
    // In the second namespace, with the pins of the first.
    [[nodiscard]] Output podlanectl(const std::string &arguments) const {
        std::vector<std::string> argv{variable("PODLANECTL_BIN"), "--bpffs", first_.bpffs()};
        for (const std::string &word : words(arguments))
            argv.push_back(word);
        return run(second_.ns(), argv);
    }

    Node first_, second_;
    std::shared_ptr<Container> pod_;
    Reply added_;
};

TEST_F(SharedRoot, IsRefusedToTheSecondNode) {
    const auto other = second_.container("two");
    fs::remove(pin_path(first_.bpffs(), PODLANE_PIN_PACING)); // which each ADD restores
    const std::string before = first_.state();
    const auto calls = [&] { return first_.podlanectl_json("history list").size(); };
    const std::size_t calls_before = calls();
    for (const Reply &reply :
         {second_.cni("ADD", of_second(), *other), second_.cni("podlane", "STATUS", of_second()),
          second_.cni("CHECK", of_second({{"prevResult", added_.json}}), *pod_),
          second_.cni("podlane", "GC", of_second({{"cni.dev/valid-attachments", Json::array()}}))}) {
        EXPECT_NE(reply.rc, 0);
        EXPECT_THAT(reply.out, has_all({"belongs to network namespace", "podlanectl uninstall"}));
    }
    EXPECT_EQ(first_.state(), before);
    EXPECT_EQ(calls(), calls_before) << "those of the second node are not in its history";
    EXPECT_EQ(first_.cni("DEL", of_first(), *pod_).rc, 0);
}

TEST_F(SharedRoot, DelNeverRefusesAndLeavesTheMaps) {
    const auto other = second_.container("two");
    const std::string before = first_.state();
    EXPECT_EQ(second_.cni("DEL", of_second(), *other).rc, 0);
    EXPECT_EQ(first_.state(), before);
    // Of the first node's pod: nothing but its record and lease are known there.
    const std::string maps = first_.podlanectl("map dump").out;
    const Reply astray = second_.cni("DEL", of_second(), *pod_);
    EXPECT_EQ(astray.rc, 0) << astray;
    EXPECT_THAT(astray.err, HasSubstr("its maps are left as they are"));
    EXPECT_EQ(first_.podlanectl("map dump").out, maps);
    EXPECT_EQ(first_.podlanectl("uplink list").rc, 0) << "the programs are attached";
    EXPECT_EQ(first_.cni("DEL", of_first(), *pod_).rc, 0);
}

TEST_F(SharedRoot, NoVerbOfPodlanectlWritesFromTheSecondNode) {
    const std::string before = first_.state();
    for (const char *verb :
         {"uplink sync", "uplink detach all", "doctor --fix", "repair", "bandwidth set --container one --egress 1M",
          "bandwidth clear --container one", "path flush --all", "upgrade --force", "gc", "load"}) {
        EXPECT_THAT(podlanectl(verb), complains(1, {"belongs to network namespace"})) << verb;
        EXPECT_EQ(first_.state(), before) << verb;
    }
    EXPECT_EQ(podlanectl("endpoint list").rc, 0) << "reading is harmless";
    EXPECT_EQ(first_.cni("DEL", of_first(), *pod_).rc, 0);
}

TEST_F(SharedRoot, UninstallIsForTheNamespaceThatHasThePins) {
    const std::string before = first_.state();
    const std::string pid = must_run(first_.ns(), {"sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"});
    EXPECT_THAT(podlanectl("uninstall"),
                complains(1, {"nsenter --net=/proc/" + pid.substr(0, pid.size() - 1) + "/ns/net"}));
    EXPECT_EQ(first_.state(), before);
    run(first_.ns(), {"kill", pid.substr(0, pid.size() - 1)});

    // A namespace that is gone does not keep the second node out for ever.
    const std::string link = first_.bpffs() + "/live/netns";
    run(first_.ns(), {"rm", link});
    run(first_.ns(), {"ln", "-s", "1", link});
    const auto other = second_.container("two");
    EXPECT_NE(second_.cni("ADD", of_second(), *other).rc, 0);
    EXPECT_EQ(podlanectl("uninstall").rc, 0);
    EXPECT_EQ(second_.cni("ADD", of_second(), *other).rc, 0);
    EXPECT_EQ(second_.cni("DEL", of_second(), *other).rc, 0);
}

// Another program has removed the link by which a second node is refused.
TEST_F(SharedRoot, IsRefusedToTheSecondNodeAfterALossOfTheLink) {
    const std::string link = first_.bpffs() + "/live/netns";
    const auto named = fs::read_symlink(link);
    const auto other = second_.container("two");
    const auto lose = [&] { ASSERT_TRUE(fs::remove(link)); };
    lose();
    const Reply reply = second_.cni("ADD", of_second(), *other);
    EXPECT_THAT(reply, fails_with(50, {link, "two nodes cannot share it"}));
    EXPECT_FALSE(fs::exists(fs::symlink_status(link)));
    EXPECT_NE(podlanectl("upgrade --force").rc, 0);
    EXPECT_FALSE(fs::exists(fs::symlink_status(link)));
    EXPECT_THAT(first_.podlanectl("doctor"), prints(1, {link + ", which names the node's network namespace"}));
    EXPECT_THAT(first_.podlanectl("repair"), prints(0));
    EXPECT_EQ(fs::read_symlink(link), named);
    lose();
    const auto third = first_.container("three");
    EXPECT_EQ(first_.cni("ADD", of_first(), *third).rc, 0);
    EXPECT_EQ(fs::read_symlink(link), named);
    EXPECT_NE(second_.cni("ADD", of_second(), *other).rc, 0);
    // Of nobody any more: whoever comes first has it.
    for (const auto &pod : {pod_, third})
        EXPECT_EQ(first_.cni("DEL", of_first(), *pod).rc, 0);
    lose();
    EXPECT_EQ(second_.cni("ADD", of_second(), *other).rc, 0);
    EXPECT_NE(fs::read_symlink(link), named);
    EXPECT_EQ(second_.cni("DEL", of_second(), *other).rc, 0);
}

} // namespace
} // namespace podlane::test
