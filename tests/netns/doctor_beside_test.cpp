// SPDX-License-Identifier: MIT
// podlanectl doctor and repair beside an ADD or a DEL: what that has not made yet, or has removed already, is no fault.
#include "tests/netns/ctl.hpp"

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

} // namespace
} // namespace podlane::test
