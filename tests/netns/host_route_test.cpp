// SPDX-License-Identifier: MIT
// A route of the node that hides a pod's own, or shares its packets: CHECK, doctor and repair name it, and how to be
// rid of it. Routes that leave the pod's packets alone are left alone.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

struct Hiding {
    const char *name;
    std::string inflict; // commands on the node between semicolons; "@" words as in filled()
    std::string says;
    std::string way_out; // in the remedy, without "ip"; empty: nothing is wrong
    std::string undo{};  // empty: the way out
};
void PrintTo(const Hiding &one, std::ostream *out) { *out << one.name; }

class HostRoute : public CtlTest, public testing::WithParamInterface<Hiding> {
  protected:
    void run_all(const std::string &commands) const {
        std::istringstream all(commands);
        for (std::string one; std::getline(all >> std::ws, one, ';');)
            run_for(node_, made_, one);
    }

    const Pod other_ = make();
    const Pod made_ = make();
};

const std::vector<Hiding> kHiding = {
    {"ASecondNextHop", "ip route replace @v4 nexthop dev @host nexthop via 203.0.113.1 dev up0",
     "sends packets to others than @host", "route del @v4/32"},
    {"ABetterMetric",
     "ip route del @v4; ip route add @v4 dev @host scope link metric 50; ip route add @v4 via 203.0.113.1 metric 5",
     "the node's route @v4/32 metric 5 hides", "route del @v4/32 metric 5"},
    {"ARefusalOfABetterMetric",
     "ip route del @v4; ip route add @v4 dev @host scope link metric 50; ip route add prohibit @v4",
     "the node's route prohibit @v4/32 hides", "route del prohibit @v4/32"},
    {"ARefusalInTheLocalTable", "ip route add unreachable @v4 table local",
     "the node's route unreachable @v4/32 table local hides", "route del unreachable @v4/32 table local"},
    {"ALocalRoute", "ip route add local @v4 dev lo table local", "the node's route local @v4/32 table local hides",
     "route del local @v4/32 table local"},
    {"ALocalRouteV6", "ip -6 route add local @v6 dev lo table local", "the node's route local @v6/128",
     "-6 route del local @v6/128 metric 1024 table local"},
    {"ARangeInTheLocalTable",
     "ip rule add pref 900 to 192.0.2.0/24 lookup 77; ip route add local 198.18.0.0/16 dev lo table local",
     "the node's route local 198.18.0.0/16 table local hides", "route del local 198.18.0.0/16 table local"},
    {"ABetterMetricV6", "ip -6 route add @v6 via 2001:db8:cafe::1 metric 1", "the node's route @v6/128 metric 1 hides",
     "-6 route del @v6/128 metric 1"},
    {"ARefusalV6", "ip -6 route add blackhole @v6 metric 1", "the node's route blackhole @v6/128 metric 1 hides",
     "-6 route del blackhole @v6/128 metric 1"},
    {"AnotherPodsV6", "ip -6 route add @v6 dev @other metric 1", "the node's route @v6/128 metric 1 hides",
     "-6 route del @v6/128 metric 1"},
    {"AnAppendedOneV6", "ip -6 route append @v6 via 2001:db8:cafe::1 dev up0",
     "the node's route @v6/128 metric 1024 by up0 draws", "-6 route del @v6/128 dev up0 metric 1024"},
    {"NoRuleForTheMainTable", "ip rule del pref 32766", "no rule of the node looks up its main table",
     "rule add pref 32766 lookup main"},
    {"NoRuleForTheMainTableV6", "ip -6 rule del pref 32766", "no rule of the node looks up its main table",
     "-6 rule add pref 32766 lookup main"},
    {"ARuleThatPassesOverHostRoutes",
     "ip rule del pref 32766; ip rule add pref 900 lookup main suppress_prefixlength 32; ip rule add pref 901 lookup "
     "77; "
     "ip route add default dev up0 table 77",
     "the node's rule 901", "rule del pref 901", "ip rule del pref 901; ip rule add pref 32766 lookup main"},
    {"AWorseMetric", "ip route add @v4 via 203.0.113.1 metric 5", "", ""},
    {"AWorseMetricV6", "ip -6 route add @v6 via 2001:db8:cafe::1 metric 2000", "", ""},
    {"TheSameVethV6", "ip -6 route add @v6 dev @host metric 1", "", ""},
    {"AWiderRefusal", "ip route add unreachable 198.18.0.0/16", "", ""},
    {"ARuleForAMark", "ip rule add pref 7 fwmark 7 to @v4 unreachable", "", ""},
    {"ARuleForForwardedPackets", "ip rule add pref 7 iif up0 to @v4 unreachable", "", ""},
    {"ARuleForItsOwnPackets", "ip rule add pref 7 iif lo to @v4 prohibit", "", ""},
    {"ARuleForAllButASource",
     "ip route add default dev up0 table 77; ip rule add pref 7 not from 192.0.2.0/24 to @v4 lookup 77", "", ""},
    {"ARuleForAllButASourceWithAHostRoute",
     "ip route add @v4 dev up0 table 77; ip rule add pref 7 not from 192.0.2.0/24 to @v4 lookup 77", "", ""},
    {"TheLocalTableLater", "ip rule add pref 900 lookup local; ip rule del pref 0", "", ""},
};

INSTANTIATE_TEST_SUITE_P(Of, HostRoute, testing::ValuesIn(kHiding),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(HostRoute, IsNamedIfItHidesThePods) {
    Hiding hiding = GetParam();
    for (std::string *text : {&hiding.inflict, &hiding.says, &hiding.way_out}) {
        if (const auto at = text->find("@other"); at != std::string::npos)
            text->replace(at, 6, other_.host_ifname);
        *text = filled(*text, made_);
    }
    EXPECT_THAT(check(made_), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
    run_all(hiding.inflict);
    if (hiding.way_out.empty()) {
        EXPECT_THAT(check(made_), succeeds());
        EXPECT_THAT(ctl("doctor"), prints(0));
        EXPECT_THAT(check(other_), succeeds());
        return;
    }
    const std::string way_out = "ip " + hiding.way_out;
    const Reply reply = check(made_);
    EXPECT_THAT(reply, fails_with(105, {hiding.says}));
    EXPECT_THAT(reply.details(), HasSubstr("`" + way_out + "`"));
    for (const std::string command : {"doctor", "repair"})
        EXPECT_THAT(ctl(command), prints(1, {hiding.says, way_out})) << command;
    run_all(hiding.undo.empty() ? way_out : hiding.undo);
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_THAT(check(made_), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
}

} // namespace
} // namespace podlane::test
