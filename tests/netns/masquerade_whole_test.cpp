// SPDX-License-Identifier: MIT
// The rules of ipMasq are compared whole: CHECK, doctor and repair see each single rule and set element that is gone,
// changed or in another place, whichever pod's configuration wrote them.
#include "maps/text.hpp"
#include "tests/netns/ctl.hpp"

#include <regex>

namespace podlane::test {
namespace {

using testing::HasSubstr;

class MasqueradeWholeTest : public CtlTest {
  protected:
    // The node's programs are looked for in `programs_` first.
    [[nodiscard]] Output ctl(const std::string &command) const {
        auto argv = ctl_argv(node_.bpffs(), command);
        argv.insert(argv.begin(), {"env", path_});
        return run(node_.ns(), argv);
    }
    void expect_whole() const {
        EXPECT_EQ(rules(), whole_);
        for (const auto &[pod, keys] : pods_)
            EXPECT_THAT(check(pod, keys), succeeds());
    }
    // Every pod's CHECK sees it, and the command, which examines as doctor does.
    void expect_seen(const std::string &damage) const {
        (void)on_node_by_path(damage);
        ASSERT_NE(rules(), whole_);
        for (const auto &[pod, keys] : pods_)
            EXPECT_THAT(check(pod, keys), fails_with(105, {"that masquerade " + pod.host_ifname + " are gone"}));
        EXPECT_THAT(ctl("repair"), prints(0, {"that masquerade"}));
    }
    // A repair writes what was there.
    void expect_repaired(const std::string &damage) const {
        SCOPED_TRACE(damage);
        expect_seen(damage);
        expect_whole();
    }
    [[nodiscard]] std::string on_node_by_path(const std::string &command) const {
        return must_run(node_.ns(), {"env", path_, "sh", "-c", command});
    }
    void make_pods() {
        for (const Json &keys : {older_, newest_})
            pods_.emplace_back(make(keys), keys);
        whole_ = rules();
    }
    [[nodiscard]] virtual std::string rules() const { return node_.run("nft -s list ruleset"); }

    // Of several prefixes in one family, not in the order of their addresses.
    const Json older_ = {{"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/16", "2001:db8::/32"}}};
    const Json newest_ = {{"ipMasq", true},
                          {"clusterCIDRs", {"198.18.0.0/16", "192.0.2.0/25", "2001:db8::/32", "2001:db7::/32"}},
                          {"noMasquerade", {"192.0.2.128/25", "198.51.100.7", "fd00:1::/64"}}};
    std::string path_ = "PATH=" + std::string(std::getenv("PATH"));
    std::vector<std::pair<Pod, Json>> pods_;
    std::string whole_;
};

// By the iptables that is built on nf_tables, and by the older one.
class MasqueradeByIptables : public MasqueradeWholeTest, public testing::WithParamInterface<std::string> {
  protected:
    MasqueradeByIptables() {
        node_.run("iptables-legacy -w -t nat -N KUBE-SERVICES"); // the older iptables does the node's NAT
        const std::string programs = node_.dir() + "/programs";
        fs::create_directory(programs);
        for (const std::string family : {"iptables", "ip6tables"})
            for (const std::string program : {"", "-restore", "-save"})
                fs::create_symlink("/usr/sbin/xtables-" + GetParam() + "-multi",
                                   programs + "/" + family + std::string(program));
        path_ = "PATH=" + programs + ":" + std::getenv("PATH");
        node_.put_plugin("podlane", "#!/bin/sh\n" + path_ + " exec " +
                                        fs::read_symlink(node_.plugins() + "/podlane").string() + "\n");
        make_pods();
    }
    [[nodiscard]] std::string rules() const override {
        return on_node_by_path("iptables -w -t nat -S; ip6tables -w -t nat -S");
    }
    [[nodiscard]] std::vector<std::string> chain_rules(const std::string &program) const {
        const std::string listed = on_node_by_path(program + " -w -t nat -S " + chain_);
        auto lines = split<std::string>(listed, "\n");
        lines.erase(lines.begin()); // which adds the chain
        return lines;
    }
    const std::string chain_ = [] {
        std::array<char, 24> name{};
        std::snprintf(name.data(), name.size(), "PODLANE-%08x", network_id("pods"));
        return std::string(name.data());
    }();
};

TEST_P(MasqueradeByIptables, EachSingleRuleOfTheChainCounts) {
    expect_whole();
    for (const std::string program : {"iptables", "ip6tables"}) {
        const std::size_t count = chain_rules(program).size();
        ASSERT_GE(count, 4U) << rules();
        for (std::size_t i = 1; i <= count; ++i)
            expect_repaired(program + " -w -t nat -D " + chain_ + " " + std::to_string(i));
    }
}

TEST_P(MasqueradeByIptables, AnotherRuleOrAnotherOrderCounts) {
    const std::string table = "ip6tables -w -t nat ", first = chain_rules("ip6tables").at(0);
    expect_repaired(table + "-D " + chain_ + " 1 && " + table + "-I " + chain_ + " 2" +
                    first.substr(("-A " + chain_).size()));
    expect_repaired(table + "-R " + chain_ + " 1 -j RETURN");
    expect_repaired(table + "-R " + chain_ + " 2 -j ACCEPT");
    expect_repaired(table + "-I " + chain_ + " 1 -p tcp -j RETURN");
    expect_repaired(table + "-F " + chain_);
}

// Another agent's condition in it lets packets pass the chain by.
TEST_P(MasqueradeByIptables, TheRuleThatLeadsToTheChainCounts) {
    const std::string table = "iptables -w -t nat ", subnet = "198.18.9.0/24";
    const std::string rule = " POSTROUTING -s " + subnet + " ! -d " + subnet;
    ASSERT_THAT(whole_, HasSubstr("-A" + rule + " -j " + chain_));
    expect_repaired(table + "-D POSTROUTING 1");
    expect_seen(table + "-R POSTROUTING 1" + rule.substr(std::string(" POSTROUTING").size()) + " -p tcp -j " + chain_);
    (void)on_node_by_path(table + "-D" + rule + " -p tcp -j " + chain_);
    expect_whole();
}

// Its exit code for that is also one of its failures.
TEST_P(MasqueradeByIptables, AChainThatIsGoneCounts) {
    const std::string table = "iptables -w -t nat ";
    expect_repaired(table + "-D POSTROUTING 1 && " + table + "-F " + chain_ + " && " + table + "-X " + chain_);
}

// All destinations are exempt: the rule has none, as iptables shows it.
TEST_P(MasqueradeByIptables, AChainThatExemptsEverythingIsWhole) {
    const Json all = {{"ipMasq", true}, {"clusterCIDRs", {"0.0.0.0/0", "::/0"}}};
    pods_.emplace_back(make(all), all);
    whole_ = rules();
    expect_whole();
    expect_repaired("ip6tables -w -t nat -D " + chain_ + " 1");
}

INSTANTIATE_TEST_SUITE_P(Of, MasqueradeByIptables, testing::Values("nft", "legacy"),
                         [](const auto &info) { return info.param; });

class MasqueradeByNftables : public MasqueradeWholeTest {
  protected:
    MasqueradeByNftables() { make_pods(); }
    const std::string sets_ = "inet podlane-pods cluster";
    [[nodiscard]] std::vector<std::string> handles() const {
        std::vector<std::string> found;
        const std::string listed = node_.run("nft -a list chain inet podlane-pods postrouting");
        for (const std::string &line : split<std::string>(listed, "\n"))
            if (line.find(" masquerade ") != std::string::npos)
                found.push_back(line.substr(line.rfind(' ') + 1));
        return found;
    }
    // Its rules and sets stay as they are.
    [[nodiscard]] std::vector<std::string> damages_of_chain() const {
        const std::string chain = "inet podlane-pods postrouting", file = node_.dir() + "/other-priority.nft";
        const std::string listed = node_.run("nft -s list chain " + chain);
        std::ofstream(file) << "flush chain " << chain << "\ndelete chain " << chain << "\n"
                            << std::regex_replace(listed, std::regex("priority [a-z0-9]+"), "priority 50");
        return {"nft 'add table inet podlane-pods { flags dormant; }'",
                "nft 'add chain " + chain + " { policy drop; }'", "nft -f " + file};
    }
};

TEST_F(MasqueradeByNftables, EachSingleElementCountsForEachPod) {
    for (const std::string element :
         {"4 { 192.0.2.0/25 }", "4 { 192.0.2.128/25 }", "4 { 198.18.0.0/16 }", "4 { 198.51.100.7 }",
          "6 { 2001:db7::/32 }", "6 { 2001:db8::/32 }", "6 { fd00:1::/64 }"})
        expect_repaired("nft 'delete element " + sets_ + element + "'");
    const auto replace = [&](const std::string &element, const std::string &by) {
        expect_repaired("nft 'delete element " + sets_ + element + "; add element " + sets_ + by + "'");
    };
    replace("4 { 198.18.0.0/16 }", "4 { 198.18.0.0/24 }");
    replace("4 { 198.51.100.7 }", "4 { 198.51.100.7-198.51.100.9 }");
    expect_repaired("nft 'add element " + sets_ + "6 { 2001:db9::/32 }'");
}

TEST_F(MasqueradeByNftables, TheTableAndTheKindOfItsChainCount) {
    for (const std::string &damage : damages_of_chain())
        expect_repaired(damage);
}

TEST_F(MasqueradeByNftables, AnAddRestoresTheTableAndItsChain) {
    for (const std::string &damage : damages_of_chain()) {
        SCOPED_TRACE(damage);
        (void)on_node_by_path(damage);
        const Pod made = make(newest_);
        EXPECT_THAT(check(made, newest_), succeeds());
        EXPECT_THAT(del(*made.container, newest_), succeeds());
        expect_whole();
    }
}

// The pods are masqueraded all the same; other machines' packets, or another pod's, would be, too. One that lives may
// be of another root, and on record alone.
TEST_F(MasqueradeByNftables, AnAddressOfNoPodIsFoundAndRemoved) {
    Json elsewhere = newest_;
    elsewhere["bpffs"] = node_.bpffs() + "-other";
    const Pod other = make(elsewhere);
    whole_ = rules();
    ASSERT_THAT(whole_, HasSubstr(other.text4()));
    for (const std::string element : {"pods4 { 203.0.113.1 }", "pods6 { 2001:db8:cafe::1 }"}) {
        SCOPED_TRACE(element);
        const std::string addr = element.substr(8, element.size() - 10);
        node_.run("nft add element inet podlane-pods " + element);
        ASSERT_NE(rules(), whole_);
        EXPECT_THAT(ctl("doctor"), prints(1, {"masquerades what no pod of network pods needs: " + addr}));
        EXPECT_THAT(ctl("repair"), prints(0, {"masquerades what no pod of network pods needs: " + addr}));
        expect_whole();
    }
    EXPECT_EQ(ctl("doctor").out.find("what no pod"), std::string::npos) << ctl("doctor").out;
}

TEST_F(MasqueradeByNftables, EachSingleRuleCounts) {
    expect_whole();
    ASSERT_EQ(handles().size(), 2U);
    for (const std::size_t i : {0U, 1U}) {
        const std::string rule = "inet podlane-pods postrouting handle " + handles().at(i);
        SCOPED_TRACE(i);
        expect_repaired("nft 'delete rule " + rule + "'");
    }
}

// Its mark is of the prefixes in the configuration's order, which nobody knows any more.
TEST_F(MasqueradeByNftables, RulesOfAnEarlierVersionAreWhole) {
    const std::string written = node_.run("nft -s list table inet podlane-pods"), file = node_.dir() + "/before.nft";
    std::ofstream(file) << std::regex_replace(written, std::regex("podlane v2 [0-9a-f]{16}"),
                                              "podlane 0123456789abcdef");
    (void)on_node_by_path("nft delete table inet podlane-pods; nft -f " + file);
    ASSERT_NE(rules(), whole_);
    whole_ = rules();
    expect_whole();
    EXPECT_EQ(ctl("doctor").out.find("masquerade"), std::string::npos) << ctl("doctor").out;
    pods_.emplace_back(make(newest_), newest_); // an ADD writes its own
    EXPECT_EQ(rules().find("0123456789abcdef"), std::string::npos) << rules();
}

// Whether the older iptables does the node's NAT is not known then.
TEST_F(MasqueradeByNftables, AnAddFailsThatCannotLookForTheOlderIptables) {
    const auto container = node_.container();
    Variables variables = attachment(*container);
    variables.insert({{"CNI_COMMAND", "ADD"}, {"CNI_PATH", node_.plugins()}});
    const std::string names = "/proc/thread-self/net/ip_tables_names";
    const std::vector<std::string> argv = {"strace",
                                           "-qq",
                                           "-o",
                                           "/dev/null",
                                           "-P",
                                           names,
                                           "-e",
                                           "trace=openat",
                                           "-e",
                                           "inject=openat:error=EMFILE",
                                           node_.plugins() + "/podlane"};
    const Reply reply = to_reply(run(node_.ns(), argv, node_.config(newest_).dump(), variables));
    EXPECT_THAT(reply, fails_with(5, {"reading " + names + ": Too many open files"}));
    expect_whole();
}

TEST_F(MasqueradeByNftables, EachPodsOwnAddressCounts) {
    for (const std::string set : {"pods4", "pods6"})
        for (std::size_t i = 0; i < pods_.size(); ++i) {
            const auto one = pods_.at(i);
            const std::string addr = set == "pods4" ? one.first.text4() : one.first.text6();
            SCOPED_TRACE(addr);
            node_.run("nft delete element inet podlane-pods " + set + " {" + addr + "}");
            EXPECT_THAT(check(one.first, one.second),
                        fails_with(105, {"that masquerade " + one.first.host_ifname + " are gone"}));
            EXPECT_THAT(ctl("repair"), prints(0, {"that masquerade " + one.first.host_ifname}));
            expect_whole();
        }
}

// Nor is the order of prefixes in the maps another configuration, which a repair takes from there.
TEST_F(MasqueradeByNftables, ARepairOfAllRulesLeavesThemAsTheyWere) {
    expect_repaired("nft flush ruleset");
    expect_repaired("nft 'delete element " + sets_ + "4 { 192.0.2.128/25 }'");
}

// No configuration on the node has its ranges.
TEST_F(MasqueradeByNftables, EachSingleElementCountsIfTheNewestPodIsDeleted) {
    const auto [pod, keys] = pods_.back();
    EXPECT_THAT(del(*pod.container, keys), succeeds());
    pods_.pop_back();
    whole_ = rules();
    expect_whole();
    node_.run("nft delete element inet podlane-pods cluster4 {192.0.2.0/25}");
    EXPECT_THAT(check(pods_.at(0).first, older_), fails_with(105, {"that masquerade"}));
    EXPECT_THAT(ctl("repair"), prints(0, {"that masquerade"}));
    EXPECT_THAT(check(pods_.at(0).first, older_), succeeds());
    EXPECT_THAT(rules(), HasSubstr("192.0.2.0/25"));
}

} // namespace
} // namespace podlane::test
