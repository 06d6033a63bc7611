// SPDX-License-Identifier: MIT
// A network's own uplink that carries no IPv6, or whose network is lost.
#include "loader/object.hpp"
#include "loader/record.hpp"
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

TEST_P(LanIpv6, AnUplinkWithoutItIsRefused) {
    for (const std::string change : {"sysctl -qw net.ipv6.conf.lan0.disable_ipv6=1", "ip link set lan0 mtu 1200"}) {
        SCOPED_TRACE(change);
        const auto pod = node().container();
        node().run(change);
        EXPECT_THAT(lab_.try_add(pod, lan({{"mtu", 1500}})), fails_with(7, {"uplink lan0", "2001:db8:133::20"}));
        node().run("ip link set lan0 mtu 1500");
        node().run("sysctl -qw net.ipv6.conf.lan0.disable_ipv6=0");
    }
    const auto pod = add_pod();
    node().run("ip link set lan0 mtu 1200");
    EXPECT_THAT(lab_.check(pod, "net1"), fails_with(105, {"uplink lan0", "has MTU 1200"}));
}

// Its entry in the map of networks is lost, and no record says whose it is.
TEST_P(LanIpv6, TheUplinkOfANetworkWithPodsStays) {
    const auto pod = add_pod();
    const std::string address = to_string(addr(*pod));
    ASSERT_TRUE(ping(host_->ns(), address));
    const Networks networks = require(open_networks(node().bpffs(), Access::read_write));
    (void)require(networks.remove(network_id("lan")));
    const auto uplinks = [&] { return require(require(open_uplinks(node().bpffs(), Access::read_only)).keys()); };
    const auto before = uplinks();
    std::filesystem::remove_all(AttachmentRecords(kStateDirectory, node().bpffs()).directory());
    (void)node().podlanectl("repair");
    EXPECT_EQ(uplinks(), before);
    EXPECT_TRUE(ping(host_->ns(), address));
}

INSTANTIATE_TEST_SUITE_P(Family, LanIpv6, testing::Values(false), family_name);

} // namespace
} // namespace podlane::test
