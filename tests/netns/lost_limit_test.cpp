// SPDX-License-Identifier: MIT
// The qdiscs of limits outlive the pins: after a restore they hold what the maps say, and CHECK, doctor and repair see
// one that holds another rate.
#include "tests/netns/limits.hpp"

#include "loader/edt.hpp"
#include "loader/pins.hpp"

#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <future>
#include <optional>

namespace podlane::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kEgress = 10000000, kIngress = 20000000;
constexpr const char *kOtherRate = "the qdisc of the limit on";

class LostLimit : public LimitTest {
  protected:
    void SetUp() override {
        if (require(edt_qdisc()).empty())
            GTEST_SKIP() << "this kernel has neither fq nor htb";
        limited_ = lab_.add_pod(limits(kIngress, kEgress));
        if (sent(limited_).empty())
            GTEST_SKIP() << "this kernel has no htb";
    }
    // The classes at the two ends of a pod's link; fq has none.
    static std::string sent(const Pod &pod) {
        return run(pod.ns(), words("tc class show dev eth0 classid 504c:10")).out;
    }
    std::string received(const Pod &pod) { return lab_.node().run("tc class show dev " + pod.host_ifname); }
    void expect_rates(const Pod &pod, const std::string &ingress, const std::string &egress) {
        EXPECT_THAT(sent(pod), HasSubstr(" rate " + egress + " "));
        if (kind_ == "htb") {
            EXPECT_THAT(received(pod), HasSubstr(" rate " + ingress + " "));
        }
        EXPECT_THAT(pod.chain->check(*pod.container), succeeds());
        EXPECT_THAT(ctl({"doctor"}).out, Not(HasSubstr(kOtherRate)));
    }
    void set(const Pod &pod, const std::string &ingress, const std::string &egress) {
        ASSERT_THAT(ctl({"bandwidth", "set", pod.host_ifname, "--ingress", ingress, "--egress", egress}), prints(0));
    }
    void lose_pins() { fs::remove_all(lab_.node().bpffs()); }

    const std::string kind_ = require(edt_qdisc());
    Pod limited_;
};

TEST_F(LostLimit, RepairRestoresTheRatesOfTheConfiguration) {
    for (const auto &[ingress, egress] : {std::pair("4M", "2M"), std::pair("400M", "200M")}) {
        SCOPED_TRACE(ingress);
        set(limited_, ingress, egress);
        lose_pins();
        ASSERT_THAT(ctl({"repair"}), prints(0));
        expect_rates(limited_, "20Mbit", "9900Kbit");
    }
    const Json shown = Json::parse(ctl({"bandwidth", "show", limited_.host_ifname, "--json"}).out);
    EXPECT_EQ(shown[0]["rate_bits_per_s"], kIngress);
    EXPECT_EQ(shown[1]["rate_bits_per_s"], kEgress);
}

TEST_F(LostLimit, TheNextAddAndTheNextDelRestoreThemToo) {
    set(limited_, "4M", "2M");
    lose_pins();
    const Pod later = lab_.add_pod();
    expect_rates(limited_, "20Mbit", "9900Kbit");
    set(limited_, "4M", "2M");
    lose_pins();
    detach_pod(later);
    expect_rates(limited_, "20Mbit", "9900Kbit");
}

// The pod lives, and its path leads to another container's namespace by now.
TEST_F(LostLimit, NothingIsPutIntoANamespaceThatHasThePathNow) {
    Node &node = lab_.node();
    const std::string path = limited_.container->path();
    const Json link = Json::parse(limited_.container->run("ip -j link show eth0")).at(0);
    const auto foreign = node.container(), other = node.container();
    foreign->run("ip link add eth0 index " + link.at("ifindex").dump() + " type veth peer name eth1 index 1000");
    foreign->run("ip link set eth0 up");
    const std::string before = foreign->run("tc qdisc show");
    lose_pins();
    ASSERT_EQ(mount(foreign->path().c_str(), path.c_str(), nullptr, MS_BIND, nullptr), 0);
    const Reply added = node.cni("ADD", node.config(), *other);
    EXPECT_EQ(foreign->run("tc qdisc show"), before);
    ASSERT_EQ(umount2(path.c_str(), MNT_DETACH), 0);
    EXPECT_THAT(added, succeeds());
    EXPECT_THAT(added.err, HasSubstr(path + " is not the container's namespace any more"));
    EXPECT_THAT(node.cni("DEL", node.config(), *other), succeeds());
    expect_rates(limited_, "20Mbit", "9900Kbit");
}

// Of the limit nothing is left that podlanectl shows.
TEST_F(LostLimit, ALimitOfPodlanectlAloneHoldsNothingAfterwards) {
    const Pod pod = lab_.add_pod();
    set(pod, "4M", "2M");
    EXPECT_THAT(sent(pod), HasSubstr(" rate 1980Kbit "));
    lose_pins();
    ASSERT_THAT(ctl({"repair"}), prints(0));
    EXPECT_THAT(sent(pod), HasSubstr("bit ")) << "the qdisc stays";
    EXPECT_THAT(sent(pod), Not(HasSubstr(" rate 1980Kbit ")));
    EXPECT_THAT(ctl({"bandwidth", "list"}).out, Not(HasSubstr(pod.host_ifname)));
    EXPECT_THAT(pod.chain->check(*pod.container), succeeds());
}

// The map of limits has it still: the next ADD restores the entry of the endpoint by the record, which has none.
TEST_F(LostLimit, ALimitOfPodlanectlHoldsIfTheEndpointsAloneAreLost) {
    const Pod pod = lab_.add_pod();
    set(pod, "4M", "2M");
    const auto flags = [&] {
        return lab_.node().podlanectl_json("endpoint show " + pod.host_ifname).at(0).at("flags");
    };
    const Json before = flags();
    fs::remove(pin_path(lab_.node().bpffs(), PODLANE_MAP_ENDPOINTS));
    (void)lab_.add_pod();
    EXPECT_EQ(flags(), before);
    EXPECT_THAT(ctl({"doctor"}).out, Not(HasSubstr("is not enforced")));
    EXPECT_THAT(pod.chain->check(*pod.container), succeeds());
}

// It is nobody else's, which the fast path would bypass.
TEST_F(LostLimit, TheQdiscOfALostLimitKeepsNoPodOffTheFastPath) {
    const Pod pod = lab_.add_pod();
    const auto flags = [&] {
        return lab_.node().podlanectl_json("endpoint show " + pod.host_ifname).at(0).at("flags");
    };
    const Json before = flags();
    set(pod, "4M", "2M");
    lose_pins();
    (void)lab_.add_pod();
    for (const char *command : {"doctor", "repair", "doctor"})
        EXPECT_THAT(ctl({command}).out, Not(HasSubstr("qdisc"))) << command;
    EXPECT_EQ(flags(), before);
    EXPECT_THAT(pod.chain->check(*pod.container), succeeds());
    lab_.node().run("tc qdisc replace dev " + pod.host_ifname + " root handle 7: " + kind_);
    EXPECT_THAT(ctl({"doctor"}).out, HasSubstr("has the qdisc " + kind_ + " of another program"));
}

TEST_F(LostLimit, AnotherRateIsFoundAndRepaired) {
    const auto expect_found = [&](const std::string &rates) {
        const Output found = ctl({"doctor"});
        EXPECT_EQ(found.rc, 1);
        EXPECT_THAT(found.out, HasSubstr(rates));
        EXPECT_THAT(limited_.chain->check(*limited_.container), fails_with(105, {rates}));
        ASSERT_THAT(ctl({"repair"}), prints(0));
        expect_rates(limited_, "20Mbit", "9900Kbit");
    };
    (void)must_run(limited_.ns(), words("tc class change dev eth0 classid 504c:10 htb rate 1mbit"));
    expect_found("interface eth0 of the container has a rate of 1000000 bit/s instead of 9900000");
    if (kind_ == "htb") {
        (void)lab_.node().run("tc class change dev " + limited_.host_ifname + " classid 504c:10 htb rate 64gbit");
        expect_found(limited_.host_ifname + " has a rate of 64000000000 bit/s instead of 20000000");
    }
}

TEST_F(LostLimit, RatesThatPodlanectlSetsAreAsTheyShouldBe) {
    set(limited_, "400M", "100G");
    expect_rates(limited_, "400Mbit", "99Gbit");
    set(limited_, "8", "8");
    expect_rates(limited_, "8bit", "8bit");
    set(limited_, "4M", "2M");
    ASSERT_THAT(ctl({"bandwidth", "clear", limited_.host_ifname}), prints(0));
    EXPECT_THAT(limited_.chain->check(*limited_.container), succeeds());
    EXPECT_THAT(ctl({"doctor"}), prints(0));
}

// The lock is held by whoever changes a limit, between its qdisc and its entry.
TEST_F(LostLimit, AChangeUnderWayIsWaitedFor) {
    std::optional<Lock> changing = require(Lock::exclusive(lab_.node().bpffs()));
    const auto change = [&](const std::string &to) {
        (void)must_run(limited_.ns(), words("tc class change dev eth0 classid 504c:10 htb rate " + to));
    };
    change("1mbit");
    auto shown = std::async(std::launch::async, [&] { return ctl({"endpoint", "show", limited_.host_ifname}).out; });
    struct stat root {};
    ASSERT_EQ(stat(lab_.node().bpffs().c_str(), &root), 0);
    const auto is_waiting = [inode = ":" + std::to_string(root.st_ino) + " "] {
        std::ifstream locks("/proc/locks");
        for (std::string line; std::getline(locks, line);)
            if (line.find("-> FLOCK") != std::string::npos && line.find(inode) != std::string::npos)
                return true;
        return false;
    };
    EXPECT_TRUE(wait_until(is_waiting));
    change("9900kbit");
    changing.reset();
    EXPECT_THAT(shown.get(), Not(HasSubstr(kOtherRate)));
    change("1mbit");
    EXPECT_THAT(ctl({"endpoint", "show", limited_.host_ifname}).out, HasSubstr(kOtherRate));
}

// Towards a pod of a group the class has the group's rate, whoever has changed it last.
TEST_F(LostLimit, OfAGroupTheRateIsTheGroups) {
    if (kind_ != "htb")
        GTEST_SKIP() << "fq has the rate in each packet";
    Json keys = limits(kIngress / 8, 0);
    keys.update({{"limitGroup", "a"}, {"limitGroups", {{"a", {{"ingressRate", kIngress}}}}}});
    const Pod first = lab_.add_pod(keys);
    const auto expect_rate = [&](const Pod &pod, const std::string &rate) {
        EXPECT_THAT(received(pod), HasSubstr(" rate " + rate + " "));
        EXPECT_THAT(pod.chain->check(*pod.container), succeeds());
    };
    expect_rate(first, "20Mbit");
    ASSERT_THAT(ctl({"bandwidth", "set-group", "a", "--ingress", "80M"}), prints(0));
    expect_rate(first, "80Mbit");
    const Pod second = lab_.add_pod(keys);
    expect_rate(second, "80Mbit");
    EXPECT_THAT(ctl({"doctor"}), prints(0));
    lose_pins();
    ASSERT_THAT(ctl({"repair"}), prints(0));
    expect_rate(first, "20Mbit");
    expect_rate(second, "20Mbit");
}

} // namespace
} // namespace podlane::test
