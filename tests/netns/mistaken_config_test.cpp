// SPDX-License-Identifier: MIT
// Values of the configuration that nobody can mean: ADD refuses them or logs a warning, and DEL goes on with both.
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class MistakenConfigTest : public VerbsTest {
  protected:
    // A pod that was added before the mistake is removed beside it.
    void expect_removed(const Pod &made, const Json &keys) const {
        EXPECT_THAT(del(*made.container, keys), succeeds()) << keys;
        EXPECT_TRUE(host_link(made).is_null());
        EXPECT_TRUE(node_.leased().empty());
    }
};

TEST_F(MistakenConfigTest, IsRefusedByAddAndNotByDel) {
    for (const auto &[keys, says] : std::vector<std::pair<Json, std::vector<std::string>>>{
             {{{"uplinks", {"up0", "[a"}}}, {"uplinks[1] is \"[a\"", "ens[12]"}},
             {{{"uplinks", {"up0123456789abcd"}}}, {"uplinks[0] is \"up0123456789abcd\"", "at most 15 characters"}},
             {{{"uplinks", {"default"}}}, {"uplinks[0] is \"default\"", "eth0"}},
             {{{"routes", {{{"dst", "192.0.2.0/24"}, {"mtu", 67}}}}}, {"routes[0].mtu is 67", "at least 68"}},
             {{{"routes", {{{"dst", "2001:db8:7::/48"}, {"mtu", 1279}}}}}, {"routes[0].mtu is 1279", "least 1280"}},
             {{{"routes", {{{"dst", "192.0.2.0/24"}, {"mtu", 9000}}}}},
              {"routes: 192.0.2.0/24 has mtu 9000", "1420"}}}) {
        SCOPED_TRACE(keys.dump());
        const auto container = node_.container();
        EXPECT_THAT(add(*container, keys), fails_with(7, says));
        EXPECT_THAT(del(*container, keys), succeeds());
        expect_removed(make(), keys);
    }
}

TEST_F(MistakenConfigTest, IsAcceptedAtItsBounds) {
    const Json keys = {
        {"uplinks", {"up0", "en[[:digit:]]", "e[!a]?*"}},
        {"routes", {{{"dst", "192.0.2.0/24"}, {"mtu", 68}}, {{"dst", "2001:db8:7::/48"}, {"mtu", 1280}}}},
        {"log", {{"level", "warning"}}}};
    const auto container = node_.container();
    (void)make(); // logs the node's settings
    EXPECT_THAT(succeeded(add(*container, keys)).err, testing::IsEmpty());
}

TEST_F(MistakenConfigTest, IsWarnedOf) {
    const Json keys = {{"clusterCIDRs", {"198.18.9.7/16", "0.0.0.0/0"}},
                       {"noMasquerade", {"192.0.2.3/24"}},
                       {"allowedSources", {"203.0.113.77/24"}},
                       {"shapedSubnets", {"2001:db8::1/64"}},
                       {"log", {{"level", "warning"}}}};
    const auto container = node_.container();
    EXPECT_THAT(succeeded(add(*container, keys)).err,
                AllOf(HasSubstr("clusterCIDRs has 198.18.9.7/16, which counts as all of 198.18.0.0/16"),
                      HasSubstr("clusterCIDRs has 0.0.0.0/0, every IPv4 address"),
                      HasSubstr("noMasquerade has 192.0.2.3/24, which counts as all of 192.0.2.0/24"),
                      HasSubstr("allowedSources has 203.0.113.77/24, which counts as all of 203.0.113.0/24"),
                      HasSubstr("shapedSubnets has 2001:db8::1/64, which counts as all of 2001:db8::/64")));
    EXPECT_THAT(del(*container, keys), succeeds());
}

// The pins would lie beside those of other programs.
TEST_F(MistakenConfigTest, AMountPointIsNoDirectoryForPins) {
    for (const char *mount : {"/sys/fs/bpf", "/sys/fs/bpf/"}) {
        const Json keys = {{"bpffs", mount}};
        const Pod made = make();
        const std::string before = must_run(node_.ns(), {"ls", "/sys/fs/bpf"});
        const auto container = node_.container();
        const Reply refused = add(*container, keys);
        EXPECT_THAT(refused, fails_with(50, {"on /sys/fs/bpf a bpffs is mounted"}));
        EXPECT_THAT(refused.out, HasSubstr("below it, such as /sys/fs/bpf/podlane"));
        EXPECT_THAT(del(*container, keys), succeeds());
        EXPECT_EQ(must_run(node_.ns(), {"ls", "/sys/fs/bpf"}), before);
        expect_removed(made, keys);
    }
}

} // namespace
} // namespace podlane::test
