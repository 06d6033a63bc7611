// SPDX-License-Identifier: MIT
// The class and the queue of a limit's qdisc htb: CHECK and doctor find what is missing, and repair restores it.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

struct Fault {
    const char *name;
    std::string inflict; // commands between semicolons
    std::string says;    // empty: nothing is wrong
};
void PrintTo(const Fault &fault, std::ostream *out) { *out << fault.name; }

class LimitClass : public CtlTest, public testing::WithParamInterface<Fault> {
  protected:
    const Json keys_ = {{"runtimeConfig",
                         {{"bandwidth",
                           {{"ingressRate", 8000000},
                            {"ingressBurst", 64000000},
                            {"egressRate", 8000000},
                            {"egressBurst", 64000000}}}}}};
    const Pod made_ = make(keys_);
};

const std::vector<Fault> kFaults = {
    {"NoClass", "tc qdisc del dev @host root; tc qdisc add dev @host root handle 504c: htb",
     "the class of the limit is gone from the qdisc on @host"},
    {"NoClassInThePod", "pod tc qdisc del dev eth0 root; pod tc qdisc add dev eth0 root handle 504c: htb",
     "the class of the limit is gone from the qdisc on interface eth0"},
    {"AnotherQueue", "tc qdisc replace dev @host parent 504c:10 handle 5: pfifo limit 1",
     "the queue of the limit on @host is gone"},
    {"NoQueue", "tc qdisc del dev @host parent 504c:10 handle 504d:", "the queue of the limit on @host is gone"},
    {"AShortQueue", "tc qdisc change dev @host parent 504c:10 handle 504d: bfifo limit 1000",
     "the queue of the limit on @host holds 1000 bytes"},
    {"ThePodsOwnQdisc", "pod tc qdisc del dev eth0 root; pod tc qdisc add dev eth0 root handle 9: htb", ""},
};

INSTANTIATE_TEST_SUITE_P(Of, LimitClass, testing::ValuesIn(kFaults),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_P(LimitClass, IsFoundIfItIsMissingAndRestored) {
    if (node_.run("tc qdisc show dev " + made_.host_ifname).find("htb 504c:") == std::string::npos)
        GTEST_SKIP() << "this kernel has fq, or no htb";
    EXPECT_THAT(check(made_, keys_), succeeds());
    std::istringstream all(GetParam().inflict);
    for (std::string one; std::getline(all >> std::ws, one, ';');)
        run_for(node_, made_, one);
    if (GetParam().says.empty()) {
        EXPECT_THAT(check(made_, keys_), succeeds());
        EXPECT_THAT(ctl("doctor"), prints(0));
        return;
    }
    const std::string says = filled(GetParam().says, made_);
    EXPECT_THAT(check(made_, keys_), fails_with(105, {says}));
    EXPECT_THAT(ctl("doctor"), prints(1, {says}));
    EXPECT_THAT(ctl("repair"), prints(0, {says}));
    EXPECT_THAT(check(made_, keys_), succeeds());
    EXPECT_THAT(ctl("doctor"), prints(0));
}

} // namespace
} // namespace podlane::test
