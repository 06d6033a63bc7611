// SPDX-License-Identifier: MIT
// The uplink of a network with one of its own goes down: its pods have no other way out.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

class OwnUplinkDownTest : public CtlTest {
  protected:
    [[nodiscard]] Json found() const { return find(ctl_json("doctor"), "check", "uplink-down"); }
};

TEST_F(OwnUplinkDownTest, DoctorSaysSo) {
    const Pod made = make({{"uplink", "up0"}});
    EXPECT_TRUE(found().is_null());
    outside_->run("ip link set eth0 down");
    EXPECT_TRUE(wait_until([&] { return found().is_object(); }));
    EXPECT_THAT(found(), has_members({{"severity", "notice"}, {"finding", "uplink up0 of pods has no carrier"}}));
    node_.run("ip link set up0 down");
    EXPECT_THAT(found(), has_members({{"finding", "uplink up0 of pods is down"}, {"remedy", "ip link set up0 up"}}));
}

} // namespace
} // namespace podlane::test
