// SPDX-License-Identifier: MIT
// A routing rule of the node that draws a pod's packets elsewhere: CHECK, doctor and repair name it, and how to be rid
// of it. Rules that leave them alone are left alone.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

struct Place {
    const char *name;
    const char *rule;  // behind "ip rule add"; "@" is the pod's address
    const char *route; // behind "ip route add"; empty: none
    bool draws;
};
void PrintTo(const Place &place, std::ostream *out) { *out << place.name; }

class ForeignRule : public CtlTest, public testing::WithParamInterface<Place> {};

INSTANTIATE_TEST_SUITE_P(
    Of, ForeignRule,
    testing::Values(Place{"Destination", "pref 900 to @ lookup 77", "default dev up0 table 77", true},
                    Place{"Source", "pref 900 from @ lookup 77", "default dev up0 table 77", false},
                    Place{"AnyAddress", "pref 900 lookup 77", "default dev up0 table 77", true},
                    Place{"Refusal", "pref 900 to @ prohibit", "", true},
                    Place{"BlackholeRoute", "pref 900 to @ lookup 77", "blackhole @ table 77", true},
                    Place{"AnEmptyTable", "pref 900 to @ lookup 77", "", false},
                    Place{"SomeDestinations", "pref 900 lookup 77", "@other dev up0 table 77", false},
                    Place{"TheSameVeth", "pref 900 to @ lookup 77", "@ dev @host table 77", false},
                    Place{"AThrowRoute", "pref 900 to @ lookup 77", "throw @ table 77", false},
                    Place{"NoDefaultRoute", "pref 900 lookup 77 suppress_prefixlength 0", "default dev up0 table 77",
                          false},
                    Place{"MarkedPackets", "pref 900 to @ fwmark 7 lookup 77", "default dev up0 table 77", false},
                    Place{"LaterThanMain", "pref 40000 to @ lookup 77", "default dev up0 table 77", false}),
    [](const auto &info) { return std::string(info.param.name); });

TEST_P(ForeignRule, IsNamedIfItDrawsThePodsPackets) {
    const Place &place = GetParam();
    for (const bool ipv4 : {true, false}) {
        SCOPED_TRACE(ipv4 ? "IPv4" : "IPv6");
        const Pod made = make();
        const std::string ip = ipv4 ? "ip" : "ip -6";
        const auto of = [&](std::string text) {
            const std::vector<std::pair<std::string, std::string>> words = {
                {"@host", made.host_ifname},
                {"@other", ipv4 ? "192.0.2.0/24" : "2001:db8:99::/64"},
                {"@", ipv4 ? made.text4() : made.text6()}};
            for (const auto &[word, value] : words)
                if (const auto at = text.find(word); at != std::string::npos)
                    text.replace(at, word.size(), value);
            return text;
        };
        EXPECT_THAT(check(made), succeeds());
        if (*place.route != '\0')
            node_.run(ip + " route add " + of(place.route));
        node_.run(ip + " rule add " + of(place.rule));
        const std::string says = "leads packets to " + of("@") + " elsewhere", remedy = ip + " rule del pref 900";
        const int wrong = place.draws ? 1 : 0;
        if (place.draws) {
            const Reply reply = check(made);
            EXPECT_THAT(reply, fails_with(105, {"the node's rule 900", says}));
            EXPECT_THAT(reply.details(), testing::HasSubstr(remedy));
            for (const std::string command : {"doctor", "repair"})
                EXPECT_THAT(ctl(command), prints(wrong, {says, remedy})) << command;
        } else {
            EXPECT_THAT(check(made), succeeds());
            EXPECT_THAT(ctl("doctor"), prints(wrong));
        }
        node_.run(ip + " rule del " + of(place.rule));
        EXPECT_THAT(check(made), succeeds());
        EXPECT_THAT(ctl("doctor"), prints(0));
        if (*place.route != '\0')
            node_.run(ip + " route flush table 77");
        EXPECT_THAT(del(*made.container), succeeds());
    }
}

// An administrator's policy routing as docs/SOURCE-ROUTING.md has it.
TEST_F(CtlTest, ForeignRulesBehindOneForPodsAreInOrder) {
    const Pod made = make();
    node_.run("ip route add default dev up0 table 77");
    node_.run("ip rule add pref 1000 to 198.18.0.0/16 lookup main");
    node_.run("ip rule add pref 1001 from 198.18.0.0/16 lookup 77");
    EXPECT_THAT(check(made), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
}

} // namespace
} // namespace podlane::test
