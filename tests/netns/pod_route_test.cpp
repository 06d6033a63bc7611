// SPDX-License-Identifier: MIT
// A route in the container that refuses what one of the plan's is for: CHECK, doctor and repair name it, and how to be
// rid of it. Nothing is added behind it. Likewise a rule there. Its local routes come back.
#include "loader/record.hpp"
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

struct Barrier {
    const char *name;
    std::string inflict, says, undo; // behind "ip" or "ip -6" in the container
    std::vector<std::string> families = {"ip ", "ip -6 "};
};
void PrintTo(const Barrier &one, std::ostream *out) { *out << one.name; }

const std::vector<Barrier> kBarriers = {
    {"Refusal", "rule add pref 5 prohibit", "the container's rule 5, from all, refuses its packets", "rule del pref 5"},
    {"NoMainTable",
     "rule del pref 32766",
     "no rule of the container looks up its main table",
     "rule add pref 32766 lookup main",
     {"ip "}}, // IPv6 looks it up all the same, unless there are other rules
    {"ARefusingTable", "rule add pref 5 lookup 77; route add prohibit default table 77",
     "table 77 of the container refuses its packets", "route del prohibit default table 77; rule del pref 5"},
    {"OfTheLocalTable", "route add prohibit default table local", "table local of the container refuses its packets",
     "route del prohibit default table local"},
    {"BehindASuppressedMainTable",
     "rule add pref 5 lookup main suppress_prefixlength 0; rule add pref 6 lookup 77; route add prohibit default "
     "table 77",
     "table 77 of the container refuses its packets",
     "route del prohibit default table 77; rule del pref 6; rule del pref 5"},
    {"ABogonListV4",
     "rule add pref 5 lookup 77; route add blackhole 240.0.0.0/4 table 77",
     "",
     "route del blackhole 240.0.0.0/4 table 77; rule del pref 5",
     {"ip "}},
    {"ABogonListV6",
     "rule add pref 5 lookup 77; route add unreachable 4000::/3 table 77",
     "",
     "route del unreachable 4000::/3 table 77; rule del pref 5",
     {"ip -6 "}},
    {"OfSomePackets", "rule add pref 5 fwmark 7 prohibit", "", "rule del pref 5"},
    {"ToSomeLinkLocalV4", "rule add pref 5 to 169.254.0.0/16 prohibit", "", "rule del pref 5", {"ip "}},
    {"ToSomeLinkLocalV6", "rule add pref 5 to fe80::/10 prohibit", "", "rule del pref 5", {"ip -6 "}},
    {"OfItsOwn", "rule add pref 5 lookup 77", "", "rule del pref 5"},
};

class PodRule : public CtlTest, public testing::WithParamInterface<Barrier> {};

INSTANTIATE_TEST_SUITE_P(Of, PodRule, testing::ValuesIn(kBarriers),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(PodRule, IsNamedIfItRefusesPackets) {
    const Pod made = make(Json::object());
    const auto run_each = [&](const std::string &ip, const std::string &commands) {
        std::istringstream all(commands);
        for (std::string one; std::getline(all >> std::ws, one, ';');)
            made.container->run(ip + one);
    };
    for (const std::string &ip : GetParam().families) {
        SCOPED_TRACE(ip);
        run_each(ip, GetParam().inflict);
        if (GetParam().says.empty()) {
            EXPECT_THAT(check(made), succeeds());
            EXPECT_THAT(ctl("doctor"), prints(0));
        } else {
            const Reply reply = check(made);
            EXPECT_THAT(reply, fails_with(105, {GetParam().says}));
            EXPECT_THAT(reply.details(), HasSubstr("--net=" + made.container->path() + " ip "));
            EXPECT_THAT(reply.details(), HasSubstr(GetParam().undo.substr(0, GetParam().undo.find(' ', 11))));
            for (const std::string command : {"doctor", "repair"})
                EXPECT_THAT(ctl(command), prints(1, {GetParam().says})) << command;
        }
        run_each(ip, GetParam().undo);
        EXPECT_THAT(check(made), succeeds());
    }
}

// With them the kernel takes packets to the pod for its own.
TEST_F(CtlTest, LocalRoutesOfAPodComeBack) {
    const Pod made = make(Json::object());
    for (const bool ipv4 : {true, false}) {
        const std::string address = ipv4 ? made.text4() : made.text6();
        SCOPED_TRACE(address);
        made.container->run(std::string(ipv4 ? "ip" : "ip -6") + " route flush table local");
        const std::string says = "the local route to " + address + " is gone from the container";
        EXPECT_FALSE(ping(node_.ns(), address, 1)) << "the test's own foundation";
        EXPECT_THAT(check(made), fails_with(105, {says}));
        EXPECT_THAT(ctl("doctor"), prints(1, {says}));
        EXPECT_THAT(ctl("repair"), prints(0, {says, "fixed"}));
        EXPECT_THAT(check(made), succeeds());
        EXPECT_TRUE(ping(node_.ns(), address)) << address;
    }
}

// Routes by the address stay, and a route that hides the local one is named.
TEST_F(CtlTest, ALocalRouteComesBackAlone) {
    const Pod made = make(Json::object());
    for (const bool ipv4 : {true, false}) {
        const std::string address = ipv4 ? made.text4() : made.text6(), ip = ipv4 ? "ip " : "ip -6 ";
        SCOPED_TRACE(address);
        made.container->run(ip + "route add " + (ipv4 ? "10.99.0.0/16 via 169.254.1.1" : "2001:db8:99::/64") +
                            " dev eth0 onlink src " + address);
        const std::string routes = made.container->run(ip + "route show");
        made.container->run(ip + "route del local " + address + " table local");
        EXPECT_THAT(ctl("repair"), prints(0, {"the local route to " + address}));
        EXPECT_EQ(made.container->run(ip + "route show"), routes);
        EXPECT_TRUE(ping(node_.ns(), address)) << address;
        made.container->run(ip + "route del local " + address + " table local");
        made.container->run(ip + "route add blackhole " + address + " table local");
        for (int time = 0; time < 2; ++time)
            EXPECT_THAT(ctl("repair"), prints(1, {"the local route to " + address, "route show table local"}));
        EXPECT_THAT(check(made), fails_with(105, {"the local route to " + address}));
        made.container->run(ip + "route del blackhole " + address + " table local");
        EXPECT_THAT(ctl("repair"), prints(0));
        EXPECT_TRUE(ping(node_.ns(), address)) << address;
    }
}

// A process in the container may add any number of rules and routes.
TEST_F(CtlTest, ManyRulesOfAPodCostNoQueryEach) {
    constexpr std::size_t kRules = 500;
    const Pod made = make(Json::object());
    const auto queries = [&] {
        const std::string trace = node_.dir() + "/trace";
        std::vector<std::string> argv = words("strace -f -qq -e trace=sendmsg -o " + trace);
        std::ranges::copy(ctl_argv(node_.bpffs(), "doctor"), std::back_inserter(argv));
        EXPECT_EQ(run(node_.ns(), argv).rc, 0);
        const std::string calls = read_file(trace);
        return static_cast<std::size_t>(std::ranges::count(calls, '\n'));
    };
    const std::size_t before = queries();
    std::string rules = "route add prohibit 240.0.0.0/4\n";
    for (std::size_t i = 0; i < kRules; ++i)
        rules += "rule add pref " + std::to_string(100 + i) + " lookup 77\n";
    const std::string file = node_.dir() + "/rules";
    std::ofstream(file) << rules;
    made.container->run("ip -batch " + file);
    EXPECT_LT(queries(), before + kRules / 2);
}

// Without a record as well.
TEST_F(CtlTest, DoctorFindsMissingLocalRoutesWithoutARecord) {
    const Pod made = make(Json::object());
    fs::remove_all(AttachmentRecords(kStateDirectory, node_.bpffs()).directory());
    made.container->run("ip route flush table local");
    EXPECT_THAT(ctl("doctor"), prints(1, {"the local route to " + made.text4()}));
    (void)ctl("repair");
    EXPECT_TRUE(ping(node_.ns(), made.text4()));
}

} // namespace
} // namespace podlane::test
