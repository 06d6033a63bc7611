// SPDX-License-Identifier: MIT
// Limits that pods share: guarantees, what is borrowed, and when the group goes.
#include "tests/netns/limits.hpp"

#include "maps/abi/limit_group.h"

namespace podlane::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kGroupRate = 40000000;

Json member(std::uint64_t guarantee, std::uint64_t rate = kGroupRate) {
    Json keys = limits(0, guarantee);
    keys["limitGroup"] = "tenant-a";
    keys["limitGroups"] = {{"tenant-a", {{"egressRate", rate}}}};
    return keys;
}

class LimitGroup : public LimitTest {
  protected:
    [[nodiscard]] std::vector<std::pair<std::uint32_t, limit_group>> groups() {
        return require(require(open_limit_groups(lab_.node().bpffs(), Access::read_only)).entries());
    }
    [[nodiscard]] std::uint64_t sent(const Pod &pod) { return state(pod, LIMIT_EGRESS).bytes; }
    // Bits per second that each has sent for a while.
    std::vector<double> rates(const std::vector<const Pod *> &pods, std::chrono::milliseconds time) {
        std::vector<std::uint64_t> before;
        before.reserve(pods.size());
        for (const Pod *pod : pods)
            before.push_back(sent(*pod));
        const auto since = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(time);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
        std::vector<double> found;
        found.reserve(pods.size());
        for (std::size_t i = 0; i < pods.size(); ++i)
            found.push_back(static_cast<double>(sent(*pods[i]) - before[i]) * 8 / seconds);
        return found;
    }
    Json groups_shown() { return Json::parse(ctl({"bandwidth", "groups", "--json"}).out); }
};

TEST_F(LimitGroup, EachHasItsGuaranteeAndBorrowsWhatIsUnused) {
    const Pod large = lab_.add_pod(member(3 * kGroupRate / 4));
    const Pod small = lab_.add_pod(member(kGroupRate / 4));
    const Pod receiver = lab_.add_pod();
    const auto rate = static_cast<double>(kGroupRate);
    {
        const Repeat one = flood(small, receiver.v4);
        ASSERT_TRUE(wait_until([&] { return rates({&small}, 200ms)[0] > 0.9 * rate; })) << "it borrows the rest";
        const Repeat other = flood(large, receiver.v4);
        ASSERT_TRUE(wait_until([&] {
            const auto both = rates({&large, &small}, 500ms);
            return std::abs(both[0] / rate - 0.75) < 0.08 && std::abs(both[1] / rate - 0.25) < 0.08;
        })) << "each has its guarantee";
    }
    const Json shown = groups_shown();
    ASSERT_EQ(shown.size(), 2U);
    EXPECT_EQ(shown[1]["group"], "tenant-a");
    EXPECT_EQ(shown[1]["pods"], 2);
    EXPECT_EQ(shown[1]["guaranteed_bits_per_s"], kGroupRate);
    EXPECT_GT(shown[1]["bytes"], 0);
    EXPECT_EQ(sent(large) + sent(small) >= shown[1]["bytes"].get<std::uint64_t>(), true);
}

// Their guarantees exceed the group's rate, so that what they want would be cut from what the busy one gets.
TEST_F(LimitGroup, PodsThatSendAPacketNowAndThenTakeNothingFromABusyOne) {
    const Json keys = member(kGroupRate / 2);
    const Pod busy = lab_.add_pod(keys);
    const Pod receiver = lab_.add_pod();
    std::vector<Fd> sockets;
    for (int i = 0; i < 7; ++i)
        sockets.push_back(connected(lab_.add_pod(keys).ns(), Transport::udp, {receiver.v4, 9}));
    const Repeat now_and_then([&] {
        for (const Fd &socket : sockets)
            (void)send_text(socket, "x"); // refused now and then: nobody listens
        std::this_thread::sleep_for(60ms);
    });
    const Repeat sending = flood(busy, receiver.v4);
    EXPECT_TRUE(wait_until([&] { return rates({&busy}, 500ms)[0] > 0.7 * kGroupRate; }));
}

// A pod that sends next to nothing is lent much, and its bucket holds 100 ms of that.
TEST_F(LimitGroup, BurstsAfterASmallPacketDoNotExceedTheRate) {
    const Pod steady = lab_.add_pod(member(kGroupRate / 2)), bursts = lab_.add_pod(member(kGroupRate / 2));
    const Pod receiver = lab_.add_pod();
    const Repeat sending = flood(steady, receiver.v4);
    const Repeat bursting([socket = connected(bursts.ns(), Transport::udp, {receiver.v4, 9}),
                           text = std::string(1400, 'b'), next = std::chrono::steady_clock::now()]() mutable {
        std::this_thread::sleep_until(next - 20ms);
        (void)send_text(socket, std::string(20, 's'));
        std::this_thread::sleep_until(next);
        for (int i = 0; i < 400; ++i)
            (void)send_text(socket, text);
        next = std::max(next + 120ms, std::chrono::steady_clock::now() + 60ms);
    });
    ASSERT_TRUE(wait_until([&] { return sent(bursts) > kGroupRate / 16; }));
    const auto both = rates({&steady, &bursts}, 4s);
    EXPECT_LT(both[0] + both[1], 1.1 * kGroupRate) << both[0] << " and " << both[1];
    if (!slow()) {
        EXPECT_GT(both[0] + both[1], 0.8 * kGroupRate);
        EXPECT_GT(both[0], 0.45 * kGroupRate) << "the other has its guarantee";
    }
}

TEST_F(LimitGroup, ItsRateChangesWhileItIsUsed) {
    const Pod sender = lab_.add_pod(member(kGroupRate / 8));
    const Pod receiver = lab_.add_pod();
    const Repeat sending = flood(sender, receiver.v4);
    const auto reaches = [&](double rate) {
        return wait_until([&] { return std::abs(rates({&sender}, 300ms)[0] / rate - 1) < 0.15; });
    };
    EXPECT_TRUE(reaches(kGroupRate));
    ASSERT_THAT(ctl({"bandwidth", "set-group", "tenant-a", "--egress", "10M"}), prints(0));
    EXPECT_TRUE(reaches(10e6));
    lab_.add_pod(member(kGroupRate / 8));
    EXPECT_EQ(groups_shown()[1]["rate_bits_per_s"], 10000000) << "an ADD with the same configuration changes nothing";
    ASSERT_THAT(ctl({"bandwidth", "set-group", "tenant-a", "--egress", "0"}), prints(0));
    EXPECT_TRUE(reaches(kGroupRate / 8.0)) << "nothing is lent";
    lab_.add_pod(member(kGroupRate / 8, 2 * kGroupRate));
    EXPECT_TRUE(reaches(2 * kGroupRate)) << "the configuration has changed";
    EXPECT_EQ(ctl({"bandwidth", "set-group", "tenant-b", "--egress", "10M"}).rc, 1);
    EXPECT_EQ(ctl({"bandwidth", "set-group", "tenant-a"}).rc, 2);
}

// A pod without a limit of its own would not be held to the group's.
TEST_F(LimitGroup, NoPodLeavesItByAChangeOfItsLimit) {
    Json keys = member(kGroupRate / 8);
    keys.update(limits(kRate, kGroupRate / 8));
    const Pod pod = lab_.add_pod(keys);
    const Pod other = lab_.add_pod(limits(0, kRate));
    const std::string host = pod.host_ifname;
    const auto guaranteed = [&] { return groups_shown()[1]["guaranteed_bits_per_s"].get<std::uint64_t>(); };
    for (const std::vector<std::string> &words : {std::vector<std::string>{"bandwidth", "clear", host},
                                                  {"bandwidth", "set", host, "--egress", "0"},
                                                  {"bandwidth", "clear", "--network", "pods"}}) {
        const Output done = ctl(words);
        EXPECT_EQ(done.rc, 2) << done.out;
        EXPECT_THAT(done.err, testing::HasSubstr("is in the limit group \"tenant-a\""));
    }
    EXPECT_EQ(guaranteed(), kGroupRate / 8);
    EXPECT_EQ(Json::parse(ctl({"bandwidth", "list", "--json"}).out).size(), 3U) << "no other pod lost its limit";
    EXPECT_THAT(ctl({"bandwidth", "set", host, "--ingress", "0"}), prints(0)) << "the group has no rate in it";
    EXPECT_THAT(ctl({"bandwidth", "set", host, "--egress", "1k"}), prints(0));
    EXPECT_EQ(guaranteed(), 1000U);
    EXPECT_THAT(ctl({"bandwidth", "set-group", "tenant-a", "--egress", "0"}), prints(0));
    EXPECT_THAT(ctl({"bandwidth", "clear", host}), prints(0)) << "the operator has ended the group's limit";
}

TEST_F(LimitGroup, WantedIsAPartOfTheRate) {
    const Pod pod = lab_.add_pod(member(kGroupRate / 2));
    const Pod receiver = lab_.add_pod();
    ASSERT_THAT(ctl({"bandwidth", "set-group", "tenant-a", "--egress", "1"}), prints(0));
    const Repeat sending = flood(pod, receiver.v4);
    EXPECT_TRUE(wait_until([&] { return groups_shown()[1]["wanted_percent"] == 100; })) << groups_shown();
    EXPECT_THAT(ctl({"bandwidth", "groups"}).out, testing::HasSubstr(" 100 %"));
}

TEST_F(LimitGroup, WantedIsAllOfTheRateWhereTheGroupHoldsPodsBack) {
    const Pod one = lab_.add_pod(member(kGroupRate / 8));
    const Pod other = lab_.add_pod(member(kGroupRate / 8));
    lab_.add_pod(member(kGroupRate / 2)); // silent
    const Pod receiver = lab_.add_pod();
    const auto wanted = [&] { return groups_shown()[1]["wanted_percent"].get<int>(); };
    {
        const Repeat flooding = flood(one, receiver.v4), flooding_too = flood(other, receiver.v4);
        EXPECT_TRUE(wait_until([&] { return wanted() == 100; })) << groups_shown();
    }
    const Fd socket = connected(one.ns(), Transport::udp, {receiver.v4, 9});
    const Repeat a_tenth([&, text = std::string(1200, 'u')] {
        (void)send_text(socket, text);
        usleep(2400);
    });
    EXPECT_TRUE(wait_until([&] { return wanted() > 0 && wanted() < 50; })) << groups_shown();
}

// Towards the pod, the class on its host-side veth lets through what it may borrow at most.
TEST_F(LimitGroup, TheCeilingOfWhatAPodGetsFollowsTheConfiguration) {
    const auto receiver = [](std::uint64_t rate) {
        Json keys = limits(kGroupRate / 8, 0);
        keys["limitGroup"] = "tenant-a";
        keys["limitGroups"] = {{"tenant-a", {{"ingressRate", rate}}}};
        return keys;
    };
    const Pod pod = lab_.add_pod(receiver(kGroupRate));
    const auto shown = [&] { return lab_.node().run("tc class show dev " + pod.host_ifname); };
    EXPECT_EQ(state(pod, LIMIT_INGRESS).group, groups().at(0).first);
    const Pod sender = lab_.add_pod();
    const Repeat sending = flood(sender, pod.v4);
    const auto reaches = [&](double rate) {
        return wait_until([&] {
            const std::uint64_t before = state(pod, LIMIT_INGRESS).bytes;
            std::this_thread::sleep_for(300ms);
            const auto bits = static_cast<double>(state(pod, LIMIT_INGRESS).bytes - before) * 8;
            return std::abs(bits / 0.3 / rate - 1) < 0.25;
        });
    };
    EXPECT_TRUE(reaches(kGroupRate)) << "it borrows";
    lab_.add_pod(receiver(2 * kGroupRate));
    EXPECT_TRUE(reaches(2 * kGroupRate)) << "the configuration has changed";
    if (shown().find("htb") == std::string::npos)
        return; // this kernel has fq: the programs alone set earliest departure times
    EXPECT_THAT(shown(), testing::HasSubstr("rate 80Mbit"));
    ASSERT_THAT(ctl({"bandwidth", "set-group", "tenant-a", "--ingress", "20M"}), prints(0));
    EXPECT_THAT(shown(), testing::HasSubstr("rate 20Mbit"));
}

TEST_F(LimitGroup, AnAddThatFailsChangesNoRate) {
    const Pod pod = lab_.add_pod(member(kGroupRate / 8));
    ASSERT_THAT(ctl({"bandwidth", "set-group", "tenant-a", "--egress", "10M"}), prints(0));
    const Json before = groups_shown();
    Json keys = member(kGroupRate / 8, 2 * kGroupRate);
    keys["sysctls"] = {{"net.ipv4.no_such_setting", "1"}};
    const auto container = lab_.node().container();
    EXPECT_NE(lab_.node().cni("ADD", lab_.node().config(keys), *container).rc, 0);
    const Json after = groups_shown();
    ASSERT_EQ(after.size(), before.size());
    for (std::size_t i = 0; i < after.size(); ++i)
        EXPECT_EQ(after[i]["rate_bits_per_s"], before[i]["rate_bits_per_s"]);
    lab_.add_pod(member(kGroupRate / 8));
    EXPECT_EQ(groups_shown()[1]["rate_bits_per_s"], 10000000) << "an ADD with the configuration of before";
}

TEST_F(LimitGroup, GoesWithItsLastPod) {
    const Json keys = member(kGroupRate / 2);
    const Pod first = lab_.add_pod(keys);
    const Pod last = lab_.add_pod(keys);
    const Pod other = lab_.add_pod();
    ASSERT_EQ(groups().size(), 1U);
    const std::uint32_t number = groups()[0].first;
    EXPECT_EQ(state(first, LIMIT_EGRESS).group, number);
    EXPECT_NE(number & LIMIT_GROUP, 0U);
    EXPECT_THAT(first.chain->check(*first.container), succeeds());
    EXPECT_EQ(ctl({"doctor"}).out.find("orphan"), std::string::npos);
    detach_pod(first);
    EXPECT_EQ(groups().size(), 1U);
    detach_pod(last);
    EXPECT_EQ(groups().size(), 0U);
    const auto states = require(open_limit_states(lab_.node().bpffs(), Access::read_only));
    EXPECT_FALSE(require(states.find({number, LIMIT_EGRESS})));
    EXPECT_FALSE(require(require(open_bandwidths(lab_.node().bpffs(), Access::read_only)).find(number)));
}

TEST_F(LimitGroup, IsTheOperatorsWord) {
    const Pod other = lab_.add_pod();
    const auto add = [&](const Json &keys) {
        const auto container = lab_.node().container();
        return Chain(lab_.node(), {lab_.node().config(keys)}).add(*container);
    };
    const auto annotated = [](Json keys, const std::string &group, const Json &may) {
        keys.erase("limitGroup");
        keys.update({{"podMay", may}, {"podMayNot", "refuse"}});
        keys["runtimeConfig"] = {{"io.kubernetes.cri.pod-annotations", {{"podlane/limitGroup", group}}}};
        return keys;
    };
    Json unknown = member(kRate);
    unknown["limitGroup"] = "tenant-b";
    EXPECT_THAT(add(unknown), fails_with(7, {"tenant-b", "limitGroups"}));
    Json no_guarantee = member(kRate);
    no_guarantee.erase("egressRate");
    no_guarantee.erase("egressBurst");
    EXPECT_THAT(add(no_guarantee), fails_with(7, {"no guarantee"}));
    no_guarantee["runtimeConfig"] = {{"bandwidth", {{"egressRate", 100 * kRate}, {"egressBurst", kAutoBurst}}}};
    EXPECT_THAT(add(no_guarantee), fails_with(7, {"no guarantee"})) << "a pod gives itself none";
    EXPECT_THAT(add(annotated(member(kRate), "tenant-a", {"bandwidth"})), fails_with(7, {"podlane/limitGroup"}));
    const Json may = {{"limitGroup", {{"names", {"tenant-a"}}}}};
    EXPECT_THAT(add(annotated(member(kRate), "tenant-b", may)), fails_with(7, {"podlane/limitGroup"}));
    EXPECT_EQ(groups().size(), 0U);
    const Pod pod = lab_.add_pod(annotated(member(kRate), "tenant-a", may));
    ASSERT_EQ(groups().size(), 1U);
    EXPECT_EQ(state(pod, LIMIT_EGRESS).group, groups()[0].first);
}

// An ADD or DEL that was killed leaves a group that nobody is in: the network's next DEL finds it.
TEST_F(LimitGroup, WithoutAPodIsRemovedByTheNextDel) {
    const Pod other = lab_.add_pod();
    const auto all = require(open_limit_groups(lab_.node().bpffs(), Access::read_write));
    limit_group left{};
    left.network = require(require(open_endpoints(lab_.node().bpffs(), Access::read_only)).entries())[0].second.network;
    require(all.update(LIMIT_GROUP | 7, left));
    EXPECT_THAT(ctl({"doctor"}).out, testing::HasSubstr("limit-group"));
    detach_pod(lab_.add_pod());
    EXPECT_EQ(groups().size(), 0U);
}

} // namespace
} // namespace podlane::test
