// SPDX-License-Identifier: MIT
// IPv6 is switched off on a network's own uplink, and on again.
#include "tests/harness/outcome.hpp"
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

using LanIpv6 = Lan;

TEST_P(LanIpv6, OffOnTheUplinkIsNamed) {
    const auto pod = add_pod();
    const std::string address = to_string(addr(*pod));
    ASSERT_TRUE(ping(host_->ns(), address));
    node().run("sysctl -qw net.ipv6.conf.lan0.disable_ipv6=1");
    (void)host_->run("ip -6 neigh flush dev eth0");
    EXPECT_FALSE(ping(host_->ns(), address, 1)) << "the test's own foundation";
    const std::string says = "IPv6 is switched off on uplink lan0", remedy = "net.ipv6.conf.lan0.disable_ipv6=0";
    const Reply reply = lab_.check(pod, "net1");
    EXPECT_THAT(reply, fails_with(105, {says}));
    EXPECT_THAT(reply.details(), testing::HasSubstr(remedy));
    for (const std::string command : {"doctor", "repair"}) {
        const Output output = node().podlanectl(command);
        EXPECT_THAT(output.out, testing::AllOf(testing::HasSubstr(says), testing::HasSubstr(remedy))) << command;
    }
    node().run("sysctl -qw " + remedy);
    const Output output = node().podlanectl("repair");
    EXPECT_THAT(output.out, testing::Not(testing::HasSubstr(says))) << output.out;
    EXPECT_EQ(lab_.check(pod, "net1").rc, 0) << lab_.check(pod, "net1");
    EXPECT_TRUE(wait_until([&] { return ping(host_->ns(), address, 1); }));
}

INSTANTIATE_TEST_SUITE_P(Family, LanIpv6, testing::Values(false), family_name);

} // namespace
} // namespace podlane::test
