// SPDX-License-Identifier: MIT
// A route in the container that refuses what one of the plan's is for: CHECK, doctor and repair name it, and how to be
// rid of it. Nothing is added behind it.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

struct Refusing {
    const char *name;
    std::string inflict; // commands in the container between semicolons
    std::string route;   // as ip-route(8) has it; empty: nothing is wrong
};
void PrintTo(const Refusing &one, std::ostream *out) { *out << one.name; }

const std::vector<Refusing> kRefusing = {
    {"InThePlaceOfTheDefaultRoute", "ip route replace blackhole default", "blackhole 0.0.0.0/0"},
    {"BeforeTheDefaultRoute",
     "ip route add default via 169.254.1.1 dev eth0 onlink metric 2050; ip route del default metric 0; "
     "ip route add prohibit default",
     "prohibit 0.0.0.0/0"},
    {"BeforeTheDefaultRouteV6", "ip -6 route add unreachable default metric 1", "unreachable ::/0 metric 1"},
    {"InThePlaceOfALeasedRoute", "ip route replace blackhole 192.0.2.0/24", "blackhole 192.0.2.0/24"},
    {"OfAWorseMetric", "ip route add blackhole default metric 9000; ip -6 route add blackhole default metric 4096", ""},
    {"InAnotherTable", "ip route add blackhole default table 77", ""},
    {"OfALongerDestination", "ip route add unreachable 192.0.2.0/28; ip -6 route add unreachable 4000::/16", ""},
};

class PodRoute : public CtlTest, public testing::WithParamInterface<Refusing> {};

INSTANTIATE_TEST_SUITE_P(Of, PodRoute, testing::ValuesIn(kRefusing),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(PodRoute, IsNamedIfItRefusesPackets) {
    const Json keys = {{"defaultRoute", true}, {"routes", {{{"dst", "192.0.2.0/24"}}}}};
    const Pod made = make(keys);
    EXPECT_THAT(check(made, keys), succeeds());
    std::istringstream all(GetParam().inflict);
    for (std::string one; std::getline(all >> std::ws, one, ';');)
        made.container->run(one);
    const std::string &route = GetParam().route;
    if (route.empty()) {
        EXPECT_THAT(check(made, keys), succeeds());
        EXPECT_THAT(ctl("doctor"), prints(0));
        return;
    }
    const std::string says = "route " + route + " of the container refuses its packets";
    const std::string ip = route.find("::") == std::string::npos ? "ip" : "ip -6", way_out = ip + " route del " + route;
    const Reply reply = check(made, keys);
    EXPECT_THAT(reply, fails_with(105, {says}));
    EXPECT_THAT(reply.details(), HasSubstr("nsenter --net=" + made.container->path() + " " + way_out));
    for (const std::string command : {"doctor", "repair"})
        EXPECT_THAT(ctl(command), prints(1, {says, way_out})) << command;
    EXPECT_THAT(check(made, keys), fails_with(105, {says}));
    made.container->run(way_out);
    EXPECT_THAT(ctl("repair"), prints(0));
    EXPECT_THAT(check(made, keys), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
    for (const std::string &address : {made.text4(), made.text6()})
        EXPECT_TRUE(ping(node_.ns(), address)) << address;
}

} // namespace
} // namespace podlane::test
