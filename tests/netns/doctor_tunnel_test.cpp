// SPDX-License-Identifier: MIT
// podlanectl doctor finds uplinks that are tunnels, until the rules are there that keep pods from their ends.
#include "tests/netns/doctor.hpp"

namespace podlane::test {
namespace {

TEST_F(Doctor, FindsATunnelThatPodsCanSpeakThrough) {
    const auto found = [&] { return find(findings(), "check", "tunnel"); };
    add_uplink(*this); // a veth
    EXPECT_THAT(ctl("uplink sync"), prints(0));
    EXPECT_TRUE(found().is_null());
    on_node("ip link add up2 type vxlan id 7 dstport 8472 local 203.0.113.2 dev up0");
    on_node("ip link set up2 up");
    EXPECT_THAT(ctl("uplink sync"), prints(0));
    const Json tunnel = found();
    ASSERT_TRUE(tunnel.is_object());
    EXPECT_THAT(tunnel, has_members({{"severity", "notice"}}));
    EXPECT_THAT(tunnel.at("finding").get<std::string>(), StartsWith("uplink up2 is a tunnel (vxlan)"));
    EXPECT_EQ(rc_, 0);

    const std::string remedy = tunnel.at("remedy");
    (void)must_run(node_.ns(), {"sh", "-ec", remedy.substr(remedy.find("nft add table"))});
    EXPECT_TRUE(found().is_null());
    const std::string rules = node_.run("nft list table inet tunnels");
    for (const char *port : {"4789", "6081", "8472"})
        EXPECT_THAT(rules, HasSubstr(port));
    on_node("nft flush chain inet tunnels pods");
    EXPECT_TRUE(found().is_object());
}

} // namespace
} // namespace podlane::test
