// SPDX-License-Identifier: MIT
// A process in a container switches IPv6 off, and the kernel removes all of the family: CHECK and doctor name the
// setting, and repair reverts what came of it.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char *kSays = "(net.ipv6.conf.eth0.disable_ipv6 is 1)";

class PodIpv6 : public CtlTest, public testing::WithParamInterface<std::string> {
  protected:
    static void switch_off(const Pod &made) {
        set_sysctl(made.container->ns(), "net.ipv6.conf." + GetParam() + ".disable_ipv6", "1");
    }
    // Addresses, routes and neighbours of the family, which the kernel sorts.
    [[nodiscard]] static std::string ipv6_of(const Pod &made) {
        std::string text;
        for (const char *query : {"addr show dev eth0", "route show dev eth0", "neigh show dev eth0 nud permanent"})
            text += must_run(made.container->ns(), words(std::string("ip -6 ") + query));
        return text;
    }
};
INSTANTIATE_TEST_SUITE_P(Of, PodIpv6, testing::Values("eth0", "all"), [](const auto &info) { return info.param; });

TEST_P(PodIpv6, IsNamedAndRepaired) {
    const Pod made = make(), other = make();
    ASSERT_THAT(check(made), succeeds());
    const std::string whole = ipv6_of(made);
    switch_off(made);
    ASSERT_NE(ipv6_of(made), whole);
    EXPECT_THAT(check(made), fails_with(105, {std::string("IPv6 is off on interface eth0 of the container ") + kSays}));
    const Output found = ctl("doctor");
    EXPECT_THAT(found, prints(1, {std::string("IPv6 is off on eth0 in the container ") + kSays, "remedy"}));
    EXPECT_THAT(found.out, Not(HasSubstr("is gone")));
    EXPECT_THAT(ctl("endpoint show " + made.container->id()).out, HasSubstr(kSays));
    EXPECT_THAT(ctl("repair"), prints(0, {kSays}));
    EXPECT_EQ(sysctl(made.container->ns(), "net.ipv6.conf.eth0.disable_ipv6"), "0");
    EXPECT_EQ(ipv6_of(made), whole);
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
    for (const std::string to : {"203.0.113.2", "2001:db8:cafe::2", "fe80::ecee:eeff:feee:eeee%eth0"})
        EXPECT_TRUE(ping(made.container->ns(), to)) << to;
    EXPECT_TRUE(ping(other.container->ns(), made.text6()));
    EXPECT_EQ(run(node_.ns(), {"ping", "-c1", "-W2", made.text6()}).rc, 0);
}

// The maps know the addresses, and only the record the routes.
TEST_P(PodIpv6, HasItsAddressesBackWithoutARecord) {
    const Pod made = make();
    fs::remove_all(AttachmentRecords(kStateDirectory, node_.bpffs()).directory());
    switch_off(made);
    EXPECT_THAT(ctl("doctor"), prints(1, {kSays}));
    EXPECT_THAT(ctl("repair").out, HasSubstr(kSays));
    EXPECT_EQ(sysctl(made.container->ns(), "net.ipv6.conf.eth0.disable_ipv6"), "0");
    EXPECT_THAT(ipv6_of(made), testing::AllOf(HasSubstr(made.text6()), HasSubstr(to_string(made.link_local)),
                                              HasSubstr(std::string(kGateway6) + " lladdr " + kHostMac)));
}

// Without an address of the family it is the container's own affair.
TEST_P(PodIpv6, IsNotMissedByAPodWithoutIpv6) {
    const Json keys = {{"ipFamilies", {"IPv4"}}};
    const Pod made = make(keys);
    switch_off(made);
    EXPECT_THAT(check(made, keys), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
}

// As hardened nodes have it, whose pods use IPv6 all the same.
TEST_F(CtlTest, APodHasIpv6WhereTheNodeSwitchesItOffForNewInterfaces) {
    for (const char *of : {"default", "all"})
        set_sysctl(node_.ns(), std::string("net.ipv6.conf.") + of + ".disable_ipv6", "1");
    const Pod made = make();
    EXPECT_EQ(sysctl(node_.ns(), "net.ipv6.conf." + made.host_ifname + ".disable_ipv6"), "0");
    EXPECT_EQ(run(node_.ns(), {"ping", "-c1", "-W2", made.text6()}).rc, 0);
    EXPECT_TRUE(ping(made.container->ns(), std::string(kGateway6) + "%eth0"));
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(del(*made.container), succeeds());
}

} // namespace
} // namespace podlane::test
