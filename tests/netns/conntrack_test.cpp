// SPDX-License-Identifier: MIT
// A node without any rule that needs connection tracking: Podlane's own rule turns it on for the fast path, and goes
// with the network's last pod.
#include "tests/netns/ctl.hpp"
#include "tests/netns/lab.hpp"

#include <gmock/gmock.h>

namespace podlane::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Conntrack : public LabTest {
  protected:
    Pod add_pod(Json keys = Json::object()) {
        if (!keys.contains("firstPacket"))
            keys["firstPacket"] = "host";
        return LabTest::add_pod(keys);
    }
    [[nodiscard]] std::string rules() { return lab_->node().run("nft list ruleset"); }
    [[nodiscard]] std::string ctl(const std::string &command) {
        return run(lab_->node().ns(), ctl_argv(lab_->node().bpffs(), command)).out;
    }
};

TEST_P(Conntrack, IsOnForTheFirstPodAndOffAfterTheLast) {
    const Pod a = add_pod(), b = add_pod();
    EXPECT_THAT(rules(), HasSubstr("ct state invalid"));

    const EchoServer server(b.ns(), ipv4(), 7);
    const Fd socket = connected(a.ns(), Transport::tcp, {addr(b), 7});
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_GE(lab_->count(a, REASON_SENT_DIRECT), 10U);

    ASSERT_EQ(a.chain->del(*a.container).rc, 0);
    EXPECT_THAT(rules(), HasSubstr("ct state invalid"));
    ASSERT_EQ(b.chain->del(*b.container).rc, 0);
    EXPECT_EQ(rules(), "");
}

TEST_P(Conntrack, StaysOffForNetworksThatDoNotFollowIt) {
    (void)add_pod({{"firstPacket", "direct"}});
    (void)add_pod({{"fastPath", "off"}});
    EXPECT_EQ(rules(), "");
}

TEST_P(Conntrack, AFailedAddLeavesNoRule) {
    for (int host = 1; host < 8; ++host) // whichever address it gets
        lab_->node().run("ip route add 198.18.9." + std::to_string(host) + " dev lo");
    const auto container = lab_->node().container();
    Chain chain(lab_->node(), {lab_->node().config({{"firstPacket", "host"}})});
    const Reply reply = chain.add(*container);
    EXPECT_THAT(reply.out, HasSubstr("has a route to"));
    EXPECT_EQ(rules(), "");
}

TEST_P(Conntrack, AFlushedRuleIsPutBackByTheNextAdd) {
    (void)add_pod();
    lab_->node().run("nft flush ruleset");
    (void)add_pod();
    EXPECT_THAT(rules(), HasSubstr("ct state invalid"));
}

TEST_P(Conntrack, MasqueradingKeepsItsTable) {
    const Pod a = add_pod({{"ipMasq", true}});
    EXPECT_THAT(rules(), HasSubstr("ct state invalid"));
    EXPECT_THAT(rules(), HasSubstr("masquerade"));
    ASSERT_EQ(a.chain->del(*a.container).rc, 0);
    EXPECT_THAT(rules(), Not(HasSubstr("podlane")));
}

TEST_P(Conntrack, TheFirstAddLogsRulesThatEstablishedConnectionsDoNotMeet) {
    lab_->node().run("nft -f -", "table inet f { chain c { type filter hook forward priority 0; limit rate 1000/second "
                                 "accept; }\n}\n");
    const std::string log = lab_->node().dir() + "/log";
    const Json keys = {{"log", {{"file", log}, {"level", "warning"}}}};
    (void)add_pod(keys);
    (void)add_pod(keys);
    const std::string text = lab_->node().run("cat " + log);
    const std::string sentence = "chain f c (inet): limit: established connections on the fast path do not meet";
    EXPECT_THAT(text, HasSubstr(sentence));
    EXPECT_EQ(text.find(sentence), text.rfind(sentence)) << "once is enough";
}

INSTANTIATE_TEST_SUITE_P(All, Conntrack, testing::Values(LabParameter{"auto", true}, LabParameter{"auto", false}),
                         lab_parameter_name);

} // namespace
} // namespace podlane::test
