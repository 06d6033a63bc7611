// SPDX-License-Identifier: MIT
// The uplink of living pods gets another MAC, by the administrator or by a bond, or is made again: neighbours reach the
// pods again after the next ADD, `uplink sync` or repair.
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

constexpr const char *kOtherMac = "02:00:00:00:77:01", *kThirdMac = "02:00:00:00:77:03";

class ChangedUplink : public Lan {
  protected:
    // The host has spoken with the pods before, and knows them by the MAC of before.
    void change_mac(const std::vector<std::shared_ptr<Container>> &pods) {
        for (const auto &pod : pods)
            EXPECT_TRUE(gets_answer(host_->ns(), "icmp", addr(*pod), kPort));
        node().run(std::string("ip link set lan0 address ") + kOtherMac);
    }
    void make_again() {
        node().run("ip link del lan0");
        node().run("ip link add lan0 type veth peer name port0 netns " + switch_->path());
        node().run("ip link set lan0 up");
        (void)switch_->run("ip link set port0 master br0 up");
    }
    void expect_healed(const std::shared_ptr<Container> &pod) {
        EXPECT_TRUE(gets_answer(host_->ns(), "icmp", addr(*pod), kPort));
        for (const char *ifname : {"eth0", "net1"})
            EXPECT_EQ(lab_.check(pod, ifname).rc, 0) << lab_.check(pod, ifname);
    }
    void expect_reported(const std::shared_ptr<Container> &pod) {
        const Reply checked = lab_.check(pod, "net1");
        EXPECT_EQ(checked.code(), 105) << checked;
        EXPECT_NE(checked.out.find("podlanectl repair"), std::string::npos) << checked;
    }
    [[nodiscard]] std::string neighbour(const Container &pod) {
        return host_->run("ip neigh show " + to_string(addr(pod)));
    }
};

TEST_P(ChangedUplink, OfAnotherMacIsFollowedByTheNextAdd) {
    const auto pod = add_pod(), second = add_pod();
    change_mac({pod, second});
    expect_reported(pod);
    const auto next = add_pod();
    for (const auto &one : {pod, second}) {
        EXPECT_TRUE(wait_until([&] { return neighbour(*one).find(kOtherMac) != std::string::npos; }))
            << neighbour(*one);
        expect_healed(one);
    }
    expect_healed(next);
}

TEST_P(ChangedUplink, OfAnotherMacIsFollowedBySync) {
    const auto pod = add_pod();
    change_mac({pod});
    const Wire heard(host_->ns(), "eth0");
    EXPECT_EQ(node().podlanectl("uplink sync").rc, 0);
    EXPECT_TRUE(wait_until([&] { return is_announced(heard); }));
    EXPECT_NE(neighbour(*pod).find(kOtherMac), std::string::npos) << neighbour(*pod);
    expect_healed(pod);
}

TEST_P(ChangedUplink, MadeAgainIsFollowedBySync) {
    const auto pod = add_pod();
    EXPECT_TRUE(gets_answer(host_->ns(), "icmp", addr(*pod), kPort));
    make_again();
    EXPECT_EQ(node().podlanectl("uplink sync").rc, 0);
    expect_healed(pod);
}

TEST_P(ChangedUplink, MadeAgainIsFollowedByTheNextAdd) {
    const auto pod = add_pod();
    make_again();
    const auto next = add_pod();
    expect_healed(pod);
    expect_healed(next);
}

// The pods of another network follow by themselves with their own next ADD, or with any that meets them.
TEST_P(ChangedUplink, OfTwoNetworksIsFollowedByAnAddOfEach) {
    std::vector<std::shared_ptr<Container>> pods;
    Json others = {{"name", "others"}};
    const auto range = [](const char *subnet, const char *start, const char *end, const char *gateway) {
        return Json{{{"subnet", subnet}, {"rangeStart", start}, {"rangeEnd", end}, {"gateway", gateway}}};
    };
    others["ipam"]["ranges"] = {
        range("192.168.133.0/24", "192.168.133.221", "192.168.133.240", "192.168.133.1"),
        range("2001:db8:133::/64", "2001:db8:133::221", "2001:db8:133::240", "2001:db8:133::1")};
    for (int i = 0; i < 4; ++i) {
        pods.push_back(add_pod());
        pods.push_back(add_pod(others));
    }
    make_again();
    pods.push_back(add_pod(others));
    pods.push_back(add_pod());
    for (const auto &one : pods)
        expect_healed(one);
}

TEST_P(ChangedUplink, OfAnotherMacIsFollowedByTheNextAddBesideARepairedPod) {
    const std::vector<std::shared_ptr<Container>> pods = {add_pod(), add_pod(), add_pod()};
    change_mac(pods);
    for (const auto &one : pods)
        (void)node().podlanectl("repair " + one->id()); // of what else it finds here, it repairs no more
    node().run(std::string("ip link set lan0 address ") + kThirdMac);
    (void)node().podlanectl("repair " + pods[1]->id());
    (void)add_pod();
    for (const auto &one : pods)
        expect_healed(one);
}

// The kernel forgets the IPv6 addresses that it listens for.
TEST_P(ChangedUplink, SetDownAndUpItListensAgainAfterSync) {
    const auto pod = add_pod();
    node().run("ip link set lan0 down");
    node().run("ip link set lan0 up");
    EXPECT_EQ(node().podlanectl("uplink sync").rc, 0);
    expect_healed(pod);
}

// The routes of a network whose uplink is another one stay as they are.
TEST_P(ChangedUplink, OfAnotherNetworkIsLeftAlone) {
    const auto pod = add_pod(), other = node().container();
    lab_.add(other, "eth0", 0, {{"uplink", "up0"}});
    node().run("ip link set up1 address 02:00:00:00:77:02");
    const std::string before = node().podlanectl("map dump source_route").out;
    EXPECT_EQ(node().podlanectl("uplink sync").rc, 0);
    EXPECT_EQ(node().podlanectl("map dump source_route").out, before);
    EXPECT_EQ(lab_.check(other, "eth0").rc, 0) << lab_.check(other, "eth0");
}

INSTANTIATE_TEST_SUITE_P(Family, ChangedUplink, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
