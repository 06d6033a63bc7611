// SPDX-License-Identifier: MIT
// podlanectl doctor and repair beside an ADD or a DEL: what that has not made yet, or has removed already, is no fault.
#include "loader/record.hpp"
#include "maps/clock.hpp"
#include "tests/netns/ctl.hpp"

#include <csignal>

#include <thread>

namespace podlane::test {
namespace {

class DoctorBesideTest : public CtlTest {
  protected:
    DoctorBesideTest() { std::ofstream(asleep_).close(); }

    // For a script, until the test goes on.
    [[nodiscard]] std::string sleeping() const {
        return ": >" + noted_ + "; while [ -e " + asleep_ + " ]; do sleep 0.01; done\n";
    }
    void expect_nothing_wrong() {
        EXPECT_TRUE(wait_until([&] { return fs::exists(noted_); }));
        EXPECT_TRUE(find(ctl_json("doctor"), "severity", "wrong").is_null());
        const std::string halfway = everything();
        EXPECT_EQ(ctl("repair").rc, 0);
        EXPECT_EQ(everything(), halfway) << "there was nothing to repair";
        fs::remove(asleep_);
    }

    const Json keys_ = all_features();
    const std::string asleep_ = node_.dir() + "/asleep", noted_ = node_.dir() + "/noted";
    const std::string real_ = variable("CNI_PLUGINS") + "/host-local";
};

TEST_F(DoctorBesideTest, ADelThatWaitsForItsIpamPlugin) {
    node_.put_plugin("host-local",
                     "#!/bin/sh\n[ $CNI_COMMAND = DEL ] || exec " + real_ + "\n" + sleeping() + "exec " + real_ + "\n");
    const Pod made = make(keys_);
    std::jthread deleting([&] { EXPECT_THAT(del(*made.container, keys_), succeeds()); });
    expect_nothing_wrong();
}

TEST_F(DoctorBesideTest, AnAddThatWaitsForNft) {
    const std::string tools = node_.dir() + "/tools";
    fs::create_directory(tools);
    node_.put_plugin("nft", "#!/bin/sh\n" + sleeping() + "exec /usr/sbin/nft \"$@\"\n");
    fs::rename(node_.plugins() + "/nft", tools + "/nft");
    const auto container = node_.container();
    std::jthread adding([&] {
        EXPECT_THAT(add(*container, keys_, {{"PATH", tools + ":/usr/sbin:/usr/bin:/sbin:/bin"}}), succeeds());
    });
    expect_nothing_wrong();
}

// Neither its age nor its turn alone says that an ADD is over.
TEST_F(DoctorBesideTest, AnAddIsUnfinishedOnceItIsKilled) {
    const std::string before = everything(), gc = "gc --bin-dir " + node_.plugins();
    node_.put_plugin("host-local", "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || exec " + real_ + "\nlease=$(" + real_ +
                                       ")\necho $PPID >" + noted_ + ".new; mv " + noted_ + ".new " + noted_ +
                                       "\nwhile [ -e " + asleep_ + " ]; do sleep 0.01; done\necho \"$lease\"\n");
    const auto container = node_.container();
    std::jthread adding([&] { EXPECT_NE(add(*container, Json::object(), named("shop", "web-0")).rc, 0); });
    ASSERT_TRUE(wait_until([&] { return fs::exists(noted_); }));
    pid_t plugin = 0;
    std::ifstream(noted_) >> plugin;
    const AttachmentRecords records(kStateDirectory, node_.bpffs());
    const AttachmentRecord young = *require(records.find(container->id(), "eth0"));
    const auto found = [&](const std::string &root) {
        return find(Json::parse(run(node_.ns(), ctl_argv(root, "doctor --json")).out), "check", "unfinished");
    };
    const auto is_found = [&](std::uint64_t created_boottime_ns, std::uint64_t node_netns) {
        AttachmentRecord record = young;
        record.created_boottime_ns = created_boottime_ns;
        record.node_netns = node_netns;
        require(records.write(record));
        return found(node_.bpffs()).is_object();
    };
    EXPECT_FALSE(is_found(0, young.node_netns)) << "it has its turn";
    EXPECT_THAT(ctl(gc), prints(0, {"nothing to collect"}));
    ASSERT_EQ(kill(plugin, SIGKILL), 0);
    adding.join();
    EXPECT_FALSE(is_found(boottime_ns(), young.node_netns)) << "it may be under way";
    EXPECT_THAT(ctl(gc), prints(0, {"nothing to collect"}));
    EXPECT_FALSE(is_found(0, young.node_netns + 1)) << "it is another node's";
    ASSERT_TRUE(is_found(0, young.node_netns));
    EXPECT_TRUE(found(node_.bpffs() + "-other").is_null());
    const Json one = found(node_.bpffs());
    EXPECT_EQ(one.at("severity"), "notice");
    EXPECT_THAT(one.at("finding").get<std::string>(), HasSubstr("shop/web-0, container " + container->id()));
    EXPECT_THAT(one.at("remedy").get<std::string>(),
                HasSubstr(container->path() + " is gone, podlanectl gc --bpffs " + node_.bpffs()));
    EXPECT_THAT(ctl(gc), prints(0, {"kept: its ADD did not end", "a DEL or GC of the runtime removes it"}));
    EXPECT_EQ(node_.leased().size(), 2U);
    lose_namespace({.container = container});
    EXPECT_THAT(ctl(gc), prints(0, {"removed"}));
    EXPECT_TRUE(found(node_.bpffs()).is_null());
    EXPECT_EQ(everything(), before);
}

} // namespace
} // namespace podlane::test
