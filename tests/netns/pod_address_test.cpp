// SPDX-License-Identifier: MIT
// An IPv6 address that duplicate address detection keeps the container from using: CHECK, doctor and repair know it.
#include "tests/harness/chain.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

class PodAddress : public CtlTest {
  protected:
    // Adds it again, as a process in the container may.
    static void add_again(const Pod &pod, const std::string &address, const std::string &transmits) {
        pod.container->run("ip -6 addr del " + address + " dev eth0");
        set_sysctl(pod.container->ns(), "net.ipv6.conf.eth0.dad_transmits", transmits);
        pod.container->run("ip -6 addr add " + address + " dev eth0");
    }
    // Another interface of its link has the address.
    void fail_detection(const Pod &pod, const std::string &address) const {
        const std::string plain = address.substr(0, address.find('/'));
        node_.run("ip -6 addr add " + plain + "/128 dev " + pod.host_ifname + " nodad");
        add_again(pod, address, "1");
        ASSERT_TRUE(wait_until([&] { return !pod.container->run("ip -6 addr show dadfailed").empty(); }));
        node_.run("ip -6 addr del " + plain + "/128 dev " + pod.host_ifname);
    }
    void expect_repaired(const Pod &made, const std::string &says) const {
        EXPECT_THAT(check(made), fails_with(105, {says}));
        EXPECT_THAT(ctl("doctor"), prints(1, {says}));
        EXPECT_THAT(ctl("repair"), prints(0, {says}));
        EXPECT_THAT(check(made), succeeds());
        EXPECT_THAT(ctl("doctor"), prints(0));
        EXPECT_TRUE(ping(node_.ns(), made.text6()));
    }
};

TEST_F(PodAddress, ThatStaysTentativeIsFoundAndMadeUsable) {
    const Pod made = make();
    add_again(made, made.text6() + "/128", "600");
    expect_repaired(made, "address " + made.text6() + " of");
}

TEST_F(PodAddress, ThatIsADuplicateIsFoundAndMadeUsable) {
    const Pod made = make({{"antiSpoof", false}});
    fail_detection(made, made.text6() + "/128");
    expect_repaired(made, "(dadfailed)");
}

// The kernel detects duplicates of it again after the link was down.
TEST_F(PodAddress, OfTheLinkMayBeTentative) {
    const Pod made = make();
    add_again(made, to_string(made.link_local) + "/64", "600");
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
}

TEST_F(PodAddress, OfAnotherMainPluginMayBeTentativeButNoDuplicate) {
    Json main_plugin = {{"type", "ptp"}, {"ipam", node_.ipam()}};
    main_plugin["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
    Chain chain(node_, {main_plugin, {{"type", "podlane"}, {"bpffs", node_.bpffs()}}});
    const auto container = node_.container();
    const Reply added = chain.add(*container);
    ASSERT_THAT(added, succeeds());
    const Pod made = look_at(container, added.json);
    const std::string listed = container->run("ip -6 -o addr show dev eth0 scope global");
    const std::string address = words(listed).at(3);
    add_again(made, address, "600");
    EXPECT_THAT(chain.check(*container, "ptp"), succeeds());
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("cannot be used")));
    fail_detection(made, address);
    EXPECT_THAT(chain.check(*container, "ptp"), fails_with(105, {"(dadfailed)"}));
    EXPECT_THAT(ctl("doctor"), prints(1, {"(dadfailed)"}));
}

TEST_F(PodAddress, ThatIsOptimisticIsUsable) {
    const Pod made = make();
    for (const char *key : {"optimistic_dad", "use_optimistic"})
        set_sysctl(made.container->ns(), std::string("net.ipv6.conf.eth0.") + key, "1");
    add_again(made, made.text6() + "/128", "600");
    made.container->run("ip -6 addr del " + made.text6() + "/128 dev eth0");
    made.container->run("ip -6 addr add " + made.text6() + "/128 dev eth0 optimistic");
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
}

} // namespace
} // namespace podlane::test
