// SPDX-License-Identifier: MIT
// An uninstall of one directory of pins, beside pods of another one: `bpffs` was edited, or two instances share a node.
#include "tests/netns/ctl_node.hpp"

namespace podlane::test {
namespace {

class UninstallElsewhere : public NodeTest {
  protected:
    ~UninstallElsewhere() override { fs::remove_all(root_); }

    // Of the last ADD's root.
    [[nodiscard]] std::vector<std::uint32_t> programs_on_uplink() const {
        std::vector<std::uint32_t> ids;
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : programs(uplink_ifindex(), hook))
                ids.push_back(one.program_id);
        return ids;
    }
    [[nodiscard]] Json keys(const std::string &bpffs) const {
        return {{"bpffs", bpffs}, {"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/16"}}, {"egress", "cluster"}};
    }

    const std::string root_ = node_.bpffs() + "-edited";
    const Json former_ = keys(node_.bpffs()), edited_ = keys(root_);
};

// By name they are those of both roots.
TEST_F(UninstallElsewhere, LeavesRulesAndUplinksToTheOtherRootsPods) {
    for (const bool lost_pins : {false, true}) {
        SCOPED_TRACE(lost_pins);
        const Pod old_one = make(former_), new_one = make(edited_);
        const auto on_uplink = programs_on_uplink();
        ASSERT_EQ(on_uplink.size(), 2U);
        if (lost_pins)
            fs::remove_all(node_.bpffs());
        EXPECT_THAT(uninstall(), prints(0));
        EXPECT_FALSE(fs::exists(node_.bpffs()));
        EXPECT_EQ(programs_on_uplink(), on_uplink);
        EXPECT_THAT(node_.run("nft list ruleset"), has_all({"chain conntrack", "chain egress"}));
        EXPECT_THAT(check(new_one, edited_), succeeds());
        EXPECT_THAT(del(*old_one.container, former_), succeeds());
        EXPECT_EQ(programs_on_uplink(), on_uplink);
        EXPECT_THAT(check(new_one, edited_), succeeds());
        EXPECT_THAT(del(*new_one.container, edited_), succeeds());
        EXPECT_EQ(node_.run("nft list ruleset"), "");
        EXPECT_TRUE(programs_on_uplink().empty());
    }
}

// The programs of the last ADD are those of the root that is uninstalled.
TEST_F(UninstallElsewhere, TakesItsOwnProgramsFromTheUplink) {
    const Pod other = make(edited_), own = make(former_);
    EXPECT_THAT(uninstall(), prints(0));
    EXPECT_TRUE(programs_on_uplink().empty());
    EXPECT_THAT(del(*own.container, former_), succeeds());
    EXPECT_THAT(del(*other.container, edited_), succeeds());
    EXPECT_EQ(node_.run("nft list ruleset"), "");
}

} // namespace
} // namespace podlane::test
