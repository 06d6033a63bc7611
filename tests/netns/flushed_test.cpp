// SPDX-License-Identifier: MIT
// Another program emptied chains or sets of Podlane's that remain, or removed pins that pods do without: CHECK or
// doctor names it, and repair and the next ADD restore it.
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

class FlushedTest : public CtlTest {
  protected:
    // As they were written, without counters.
    [[nodiscard]] std::string rules() const { return node_.run("nft -s list ruleset"); }

    // By repair, and by the ADD of another pod.
    void expect_restored(const std::string &flush, const Json &keys, const std::string &says) {
        SCOPED_TRACE(flush);
        const Pod made = make(keys);
        ASSERT_THAT(check(made, keys), succeeds());
        const std::string whole = rules();
        on_node(flush);
        ASSERT_NE(rules(), whole);
        EXPECT_THAT(check(made, keys), fails_with(105, {says}));
        EXPECT_THAT(ctl("doctor"), prints(1, {says, "remedy"}));
        EXPECT_THAT(ctl("endpoint show " + made.container->id()).out, HasSubstr(says));
        EXPECT_THAT(ctl("repair"), prints(0, {says}));
        EXPECT_EQ(rules(), whole);
        EXPECT_THAT(check(made, keys), succeeds());
        on_node(flush);
        const Pod next = make(keys);
        EXPECT_THAT(check(made, keys), succeeds());
        EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(says)));
        for (const Pod *pod : {&made, &next})
            EXPECT_THAT(del(*pod->container, keys), succeeds());
    }

    const Json masqueraded_ = {
        {"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8::/32"}}, {"noMasquerade", {"192.0.2.0/24"}}};
};

TEST_F(FlushedTest, ChainsOfIptablesAreRestored) {
    on_node("iptables-legacy -w -t nat -N KUBE-SERVICES"); // the older iptables does the node's NAT
    std::array<char, 24> chain{};
    std::snprintf(chain.data(), chain.size(), "PODLANE-%08x", network_id("pods"));
    for (const std::string flush : {"iptables -t nat -F", "ip6tables -t nat -F POSTROUTING"})
        expect_restored(flush, masqueraded_, "that masquerade");
    for (const std::string command : {"iptables -t nat -F ", "ip6tables -t nat -F "})
        expect_restored(command + chain.data(), masqueraded_, "that masquerade");
}

TEST_F(FlushedTest, SetsOfNftablesAreRestored) {
    for (const std::string command :
         {"nft flush set inet podlane-pods cluster4", "nft flush set inet podlane-pods cluster6",
          "nft delete element inet podlane-pods cluster4 { 192.0.2.0/24 }"})
        expect_restored(command, masqueraded_, "that masquerade");
    const Json limited = {
        {"egress", "cluster"}, {"firstPacket", "host"}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8::/32"}}};
    for (const std::string set : {"inside4", "inside6"})
        expect_restored("nft flush set inet podlane-pods " + set, limited, "that limit the egress");
}

// By another handle it would be another rule.
TEST_F(FlushedTest, RulesThatAreWholeAreNotWrittenAgain) {
    Json keys = masqueraded_;
    keys["egress"] = "cluster";
    (void)make(keys);
    const auto chains = [&] {
        return node_.run("nft -s -a list chain inet podlane-pods postrouting") +
               node_.run("nft -s -a list chain inet podlane-pods egress");
    };
    const std::string before = chains();
    ASSERT_THAT(before, AllOf(HasSubstr("masquerade"), HasSubstr("handle")));
    (void)make(keys);
    EXPECT_EQ(chains(), before);
}

// The rules are those of the newest configuration: the ranges of an earlier one are none of theirs.
TEST_F(FlushedTest, OtherRangesOfAnEarlierPodAreNotMissed) {
    const Pod earlier = make(masqueraded_);
    Json changed = masqueraded_;
    changed["noMasquerade"] = {"203.0.113.0/24"};
    const Pod newest = make(changed);
    for (const Pod *pod : {&earlier, &newest})
        EXPECT_THAT(check(*pod, pod == &earlier ? masqueraded_ : changed), succeeds());
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr("that masquerade")));
}

TEST_F(FlushedTest, PinsOfPacingAreRestored) {
    const Json limited = {{"ingressRate", 20000000}, {"ingressBurst", 2000000}};
    const Pod first = make(limited);
    const std::string program = pin_path(node_.bpffs(), PODLANE_PROGRAM_PACE),
                      link = pin_path(node_.bpffs(), PODLANE_PIN_PACING);
    if (!require(is_pacing(node_.bpffs())))
        GTEST_SKIP() << "this kernel does not pace";
    const auto expect_both = [&] {
        EXPECT_TRUE(fs::exists(program));
        EXPECT_TRUE(fs::exists(link));
        EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(PODLANE_PROGRAM_PACE)));
        EXPECT_TRUE(
            find_program_map(require(open_program(node_.bpffs(), PODLANE_PROGRAM_PACE)).get(), "paced_sockets"));
    };
    for (const auto &[lost, says] :
         std::vector<std::pair<std::vector<std::string>, std::string>>{{{program, link}, "pl_pace is not attached"},
                                                                       {{link}, "pl_pace is not attached"},
                                                                       {{program}, "the pin of pl_pace is gone"}}) {
        SCOPED_TRACE(testing::PrintToString(lost));
        const auto lose = [&, lost = lost] {
            for (const std::string &pin : lost)
                ASSERT_TRUE(fs::remove(pin));
        };
        lose();
        EXPECT_THAT(ctl("doctor"), prints(1, {says, "remedy"}));
        EXPECT_THAT(ctl("status"), prints(1, {says}));
        EXPECT_THAT(ctl("repair"), prints(0, {says}));
        expect_both();
        lose();
        const Pod next = make(limited);
        expect_both();
        EXPECT_THAT(check(first, limited), succeeds());
        EXPECT_THAT(del(*next.container, limited), succeeds());
    }
}

TEST_F(FlushedTest, PinsOfPacingAreRestoredByAnUpgrade) {
    const Pod made = make({{"ingressRate", 20000000}, {"ingressBurst", 2000000}});
    if (!require(is_pacing(node_.bpffs())))
        GTEST_SKIP() << "this kernel does not pace";
    EXPECT_THAT(ctl("upgrade"), prints(0, {"already have this version"}));
    const std::string program = pin_path(node_.bpffs(), PODLANE_PROGRAM_PACE),
                      link = pin_path(node_.bpffs(), PODLANE_PIN_PACING);
    const auto id_of = [&](const char *name) {
        return require(program_facts(require(open_program(node_.bpffs(), name)).get())).id;
    };
    const std::uint32_t from_pod = id_of(PODLANE_PROGRAM_FROM_POD);
    for (const auto &lost : std::vector<std::vector<std::string>>{{program, link}, {link}, {program}}) {
        SCOPED_TRACE(testing::PrintToString(lost));
        for (const std::string &pin : lost)
            ASSERT_TRUE(fs::remove(pin));
        const Json done = ctl_json("upgrade");
        EXPECT_THAT(done, has_members({{"upgraded", true}, {"hooks", 0}}));
        ASSERT_EQ(done.at("programs").size(), 1U) << done;
        EXPECT_EQ(done.at("programs").at(0).at("name"), PODLANE_PROGRAM_PACE);
        EXPECT_EQ(done.at("programs").at(0).at("id"), id_of(PODLANE_PROGRAM_PACE));
        EXPECT_EQ(require(pacing_fault(node_.bpffs())), std::nullopt);
        EXPECT_EQ(id_of(PODLANE_PROGRAM_FROM_POD), from_pod) << "what is current stays";
        EXPECT_THAT(ctl("upgrade"), prints(0, {"already have this version"}));
    }
    EXPECT_THAT(ctl("doctor").out, Not(HasSubstr(PODLANE_PROGRAM_PACE)));
}

// Isolation needs conntrack without the fast path, too: without it replies are refused.
TEST_F(FlushedTest, TrackingForIsolationAloneIsRestored) {
    const Pod made = make({{"isolation", "network"}, {"fastPath", "off"}});
    if (!require(programs_query_conntrack(node_.bpffs())))
        GTEST_SKIP() << "this kernel has no bpf_skb_ct_lookup";
    const std::string whole = rules();
    ASSERT_THAT(whole, HasSubstr("chain conntrack"));
    on_node("nft delete chain inet podlane-pods conntrack");
    EXPECT_THAT(ctl("doctor"), prints(1, {"track connections is missing"}));
    EXPECT_THAT(ctl("repair"), prints(0, {"track connections is missing"}));
    EXPECT_EQ(rules(), whole);
}

} // namespace
} // namespace podlane::test
