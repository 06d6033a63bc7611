// SPDX-License-Identifier: MIT
// After a reboot the node's own services (nftables.service, netfilter-persistent) restore rules that were saved while
// pods ran. The DELs of those pods remove them, and no other pod is masqueraded by them.
#include "loader/record.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class MasqueradeRestored : public CtlTest {
  protected:
    // The maps and the pods go; records, leases and, restored, the rules stay.
    void reboot(const std::vector<Pod> &pods) const {
        const AttachmentRecords records(kStateDirectory, node_.bpffs());
        for (const Pod &pod : pods) {
            AttachmentRecord record = *require(records.find(pod.container->id(), "eth0"));
            record.boot_id = "00000000-0000-0000-0000-000000000000";
            ++record.node_netns;
            require(records.write(record));
            lose_namespace(pod);
        }
        fs::remove_all(node_.bpffs());
    }
    [[nodiscard]] std::string sets() const { return node_.run("nft list table inet podlane-pods"); }
    [[nodiscard]] std::string nat() const { return node_.run("iptables-save -t nat"); }
    void use_iptables() const {
        node_.run("iptables-legacy -w -t nat -N KUBE-SERVICES"); // the older iptables does the node's NAT
    }
    // iptables leaves its table and the kernel's chains.
    void expect_nothing_left() const {
        EXPECT_THAT(nat(), Not(HasSubstr("PODLANE")));
        EXPECT_EQ(node_.state(), state_before_);
    }

    const Json masqueraded_ = {{"ipMasq", true}};
    const std::string state_before_ = node_.state(), before_ = everything();
};

TEST_F(MasqueradeRestored, TheDelsOfTheEarlierBootRemoveTheTable) {
    for (const Json &now : {masqueraded_, Json::object()}) {
        const Pod a = make(masqueraded_), b = make(masqueraded_);
        reboot({a, b});
        ASSERT_THAT(sets(), HasSubstr(b.text4()));
        EXPECT_THAT(del(*a.container, now), succeeds());
        EXPECT_THAT(del(*b.container, now), succeeds());
        EXPECT_EQ(everything(), before_);
    }
}

TEST_F(MasqueradeRestored, TheDelsOfTheEarlierBootRemoveTheChain) {
    use_iptables();
    const Pod a = make(masqueraded_), b = make(masqueraded_);
    reboot({a, b});
    ASSERT_THAT(nat(), HasSubstr("MASQUERADE"));
    EXPECT_THAT(del(*a.container), succeeds());
    EXPECT_THAT(del(*b.container), succeeds());
    expect_nothing_left();
}

// Pods of this boot are masqueraded by the same table.
TEST_F(MasqueradeRestored, ADelOfTheEarlierBootRemovesItsAddressesAlone) {
    const Pod earlier = make(masqueraded_);
    reboot({earlier});
    const Pod made = make(masqueraded_);
    ASSERT_THAT(sets(), AllOf(HasSubstr(earlier.text4()), HasSubstr(earlier.text6())));
    EXPECT_THAT(del(*earlier.container, masqueraded_), succeeds());
    EXPECT_THAT(sets(), AllOf(Not(HasSubstr(earlier.text4())), Not(HasSubstr(earlier.text6()))));
    EXPECT_THAT(check(made, masqueraded_), succeeds());
    EXPECT_THAT(del(*made.container, masqueraded_), succeeds());
    EXPECT_EQ(everything(), before_);
}

TEST_F(MasqueradeRestored, ADelOfTheEarlierBootRemovesTheChainThatNoPodOfThisOneNeeds) {
    use_iptables();
    const Pod earlier = make(masqueraded_);
    reboot({earlier});
    const Pod made = make();
    EXPECT_THAT(del(*earlier.container), succeeds());
    EXPECT_THAT(nat(), Not(HasSubstr("PODLANE")));
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(del(*made.container), succeeds());
    expect_nothing_left();
}

TEST_F(MasqueradeRestored, APodOfThisBootKeepsTheAddressOfOneOfTheEarlierBoot) {
    const Pod earlier = make(masqueraded_);
    reboot({earlier});
    fs::remove_all(node_.leases());
    const Pod made = make(masqueraded_);
    ASSERT_EQ(made.text4(), earlier.text4());
    EXPECT_THAT(del(*earlier.container, masqueraded_), succeeds());
    EXPECT_THAT(check(made, masqueraded_), succeeds());
    EXPECT_THAT(del(*made.container, masqueraded_), succeeds());
    EXPECT_EQ(everything(), before_);
}

// It may get the address before the DEL of the earlier boot's pod, whose record may be lost.
TEST_F(MasqueradeRestored, APodThatIsNotMasqueradedHasNoAddressInTheTable) {
    const Pod earlier = make(masqueraded_);
    reboot({earlier});
    fs::remove_all(node_.leases());
    const Pod made = make();
    ASSERT_EQ(made.text4(), earlier.text4());
    EXPECT_THAT(sets(), AllOf(Not(HasSubstr(made.text4())), Not(HasSubstr(made.text6()))));
    node_.run("nft add element inet podlane-pods pods4 { " + made.text4() + " }");
    EXPECT_THAT(ctl("repair"), prints(0, {"masquerades what no pod of network pods needs: " + made.text4()}));
    EXPECT_THAT(sets(), Not(HasSubstr(made.text4())));
    EXPECT_THAT(del(*made.container), succeeds());
    EXPECT_THAT(del(*earlier.container), succeeds());
    EXPECT_EQ(everything(), before_);
}

} // namespace
} // namespace podlane::test
