// SPDX-License-Identifier: MIT
// The life of the rules by which programs know the node's own addresses, and of the paths kept for an endpoint: both
// are for networks with an egress route alone.
#include "loader/net/rule.hpp"
#include "tests/netns/verbs.hpp"

namespace podlane::test {
namespace {

namespace fs = std::filesystem;

class OwnAddresses : public VerbsTest {
  protected:
    ~OwnAddresses() override {
        std::error_code ignored;
        fs::remove_all(other_root_, ignored);
    }
    // Of both families.
    [[nodiscard]] std::size_t rules() const {
        std::size_t found = 0;
        for (const char *family : {"-4", "-6"}) {
            found += node_.run(std::string("ip ") + family + " rule").find("sport 20556") != std::string::npos ? 1 : 0;
            found +=
                node_.run(std::string("ip ") + family + " route show table all").find("1347158016") != std::string::npos
                    ? 1
                    : 0;
        }
        return found;
    }
    void remove_rules() const {
        for (const char *family : {"-4", "-6"})
            node_.run(std::string("ip ") + family + " rule del pref 1347158016");
    }
    [[nodiscard]] bool keeps_paths(const Pod &made) const {
        return require(require(open_kept_paths(node_.bpffs(), Access::read_only)).find(made.ifindex)).has_value();
    }

    // A network of its own, below a root.
    [[nodiscard]] Json of_range(const std::string &name, const std::string &third, const std::string &root) const {
        Json ipam = node_.ipam();
        ipam["ranges"] = {{{{"subnet", "198.18." + third + ".0/24"}}}};
        return {{"uplink", "up0"}, {"name", name}, {"bpffs", root}, {"ipam", ipam}};
    }

    const Json keys_{{"uplink", "up0"}};
    const std::string uninstall_ = "uninstall --bin-dir " + node_.dir() + " --conf-dir " + node_.dir();
    const std::string other_root_ = node_.bpffs() + "-other";
};

TEST_F(OwnAddresses, ComeWithTheFirstPodOfSuchANetworkAndGoWithTheLast) {
    const Pod other = make();
    EXPECT_EQ(rules(), 0U);
    EXPECT_FALSE(keeps_paths(other));
    const Json second = of_range("second", "10", node_.bpffs());
    const Pod made = make(keys_), last = make(second);
    EXPECT_EQ(rules(), 4U);
    EXPECT_TRUE(keeps_paths(made));
    EXPECT_THAT(del(*made.container, keys_), succeeds());
    EXPECT_FALSE(keeps_paths(made));
    EXPECT_EQ(rules(), 4U) << "another network has pods";
    EXPECT_THAT(del(*last.container, second), succeeds());
    EXPECT_EQ(rules(), 0U);
    EXPECT_THAT(check(other), succeeds());
}

TEST_F(OwnAddresses, TheNextAddRestoresThem) {
    const Pod made = make(keys_);
    remove_rules();
    EXPECT_EQ(check(made, keys_).rc, 1);
    (void)make(keys_);
    EXPECT_EQ(rules(), 4U);
    EXPECT_THAT(check(made, keys_), succeeds());
}

// A rule of the same table and priority that does not do it.
TEST_F(OwnAddresses, AnotherRuleIsNoSubstitute) {
    const Pod made = make(keys_);
    remove_rules();
    for (const char *family : {"-4", "-6"})
        node_.run(std::string("ip ") + family +
                  " rule add pref 1347158016 iif lo ipproto 253 sport 1 lookup 1347158016");
    EXPECT_EQ(check(made, keys_).rc, 1);
    EXPECT_EQ(node_.podlanectl("repair").rc, 0);
    EXPECT_THAT(check(made, keys_), succeeds());
}

TEST_F(OwnAddresses, EveryRootsPodsCount) {
    node_.run("ip link add up1 type veth peer name up1-peer");
    node_.run("ip link set up1 up");
    Json other = of_range("other", "10", other_root_);
    other["uplink"] = "up1";
    const Pod made = make(keys_), of_other = make(other);
    EXPECT_THAT(del(*made.container, keys_), succeeds());
    EXPECT_EQ(rules(), 4U);
    EXPECT_EQ(node_.podlanectl(uninstall_).rc, 0);
    EXPECT_EQ(rules(), 4U);
    EXPECT_THAT(check(of_other, other), succeeds());
    EXPECT_THAT(del(*of_other.container, other), succeeds());
    EXPECT_EQ(rules(), 0U);
}

TEST_F(OwnAddresses, GoWithUninstall) {
    (void)make(keys_);
    EXPECT_EQ(node_.podlanectl(uninstall_).rc, 0);
    EXPECT_EQ(rules(), 0U);
}

// The pods of a version that knew neither.
TEST_F(OwnAddresses, AnUpgradeAddsThem) {
    const Pod made = make(keys_);
    remove_rules();
    node_.run("ip route flush table 1347158016");
    ASSERT_TRUE(require(require(open_kept_paths(node_.bpffs(), Access::read_write)).remove(made.ifindex)));
    const Output done = node_.podlanectl("upgrade --force");
    ASSERT_EQ(done.rc, 0) << done.err;
    EXPECT_EQ(rules(), 4U);
    EXPECT_TRUE(keeps_paths(made));
    EXPECT_THAT(check(made, keys_), succeeds());
}

// The flows have no path any more, but for those by an uplink; the entry stays.
TEST_F(OwnAddresses, AFlushEmptiesTheKeptPaths) {
    const Pod made = make(keys_);
    const auto kept = require(open_kept_paths(node_.bpffs(), Access::read_write));
    kept_paths paths{};
    paths.paths[5] = {{made.ifindex, made.v4, made.v4, 0, 0, 132, {}}, 0, {7, PATH_HOST, 0}};
    paths.paths[6] = {{made.ifindex, made.v4, made.v4, 1, 1, 17, {}}, 0, {7, PATH_UPLINK, uplink_ifindex()}};
    require(kept.update(made.ifindex, paths));
    EXPECT_EQ(node_.podlanectl_json("map dump kept_paths").size(), 2U);
    EXPECT_EQ(node_.podlanectl("path flush --all").rc, 0);
    EXPECT_EQ(node_.podlanectl_json("map dump kept_paths").size(), 1U);
    EXPECT_TRUE(keeps_paths(made));
}

} // namespace
} // namespace podlane::test
