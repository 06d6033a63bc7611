// SPDX-License-Identifier: MIT
// The same random conversations beside the same rules (kube-proxy's, portmap's, a stateful firewall) with the fast path
// off and on: both ends see the same, and conntrack ends in the same states.
// PODLANE_SEED=N repeats a run; PODLANE_CONVERSATION_SECONDS=N makes it longer.
#include "tests/harness/environment.hpp"
#include "tests/netns/conversation.hpp"

namespace podlane::test {
namespace {

struct ConversationCase {
    std::string attach;
    bool nftables = false;
    bool ipv4 = true;
};
std::string text_of(const ConversationCase &of) {
    return of.attach + (of.nftables ? "_nftables" : "_iptables") + (of.ipv4 ? "_v4" : "_v6");
}
void PrintTo(const ConversationCase &of, std::ostream *out) { *out << text_of(of); }

class Conversations : public testing::TestWithParam<ConversationCase> {
  protected:
    void SetUp() override {
        if (GetParam().attach == "tcx" && !kernel_can_tcx())
            GTEST_SKIP() << "this kernel has no tcx";
    }
    [[nodiscard]] static Json keys(const std::string &fast_path) {
        return {{"fastPath", fast_path}, {"firstPacket", "host"}, {"ipMasq", true}, {"attach", GetParam().attach}};
    }
    // A round of steps on both nodes, one after another.
    static void expect_same(Conversation &fast, Conversation &slow, std::mt19937 &random) {
        constexpr int kSteps = 80;
        std::ostringstream steps;
        for (int i = 0; i < kSteps; ++i) {
            const Step step = random_step(random);
            const std::string seen = fast.run(step);
            steps << text_of(step) << ": " << seen << "\n";
            ASSERT_EQ(seen, slow.run(step)) << "the last of these steps:\n" << steps.str();
        }
        fast.close_all();
        slow.close_all();
        (void)wait_until([&] { return fast.states() == slow.states(); });
        ASSERT_EQ(fast.states(), slow.states()) << "after these steps:\n" << steps.str();
    }
};

TEST_P(Conversations, AreTheSameOnBothPaths) {
    const auto seed = printed_seed();
    const std::chrono::seconds time(number_from("PODLANE_CONVERSATION_SECONDS", 12));
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    Conversation fast(keys("on"), GetParam().nftables, GetParam().ipv4);
    Conversation slow(keys("off"), GetParam().nftables, GetParam().ipv4);
    const auto end = std::chrono::steady_clock::now() + time;
    int rounds = 0;
    do {
        ASSERT_NO_FATAL_FAILURE(expect_same(fast, slow, random)) << "PODLANE_SEED=" << seed;
        ++rounds;
    } while (std::chrono::steady_clock::now() < end);
    std::cout << rounds << " rounds, " << fast.fast_packets() << " packets on the fast path" << std::endl;
    EXPECT_GT(fast.fast_packets(), 10U);
    EXPECT_EQ(slow.fast_packets(), 0U);
}

TEST_P(Conversations, EndTheSameIfBothEndsCloseAtOnce) {
    Conversation fast(keys("on"), GetParam().nftables, GetParam().ipv4);
    Conversation slow(keys("off"), GetParam().nftables, GetParam().ipv4);
    for (Conversation *one : {&fast, &slow}) {
        EXPECT_THAT(one->run({.port = 20001}), testing::StartsWith("server 0 accepts"));
        EXPECT_EQ(one->run({.verb = Verb::talk, .bytes = 299999}), "heard 299999");
        EXPECT_EQ(one->close_at_once(0), "other end sees 0 bytes, other end sees 0 bytes");
        one->close_all();
    }
    EXPECT_GT(fast.fast_packets(), 0U);
    EXPECT_TRUE(wait_until([&] { return fast.states() == slow.states(); }));
    EXPECT_EQ(fast.states(), slow.states());
    EXPECT_EQ(fast.run({.port = 20001}), slow.run({.port = 20001})) << "the port is used again";
}

// The end follows an eviction, and what the host stack has seen of the connection is more than a window ago.
TEST_P(Conversations, EndTheSameIfTheirEntriesWereEvicted) {
    Conversation fast(keys("on"), GetParam().nftables, GetParam().ipv4);
    Conversation slow(keys("off"), GetParam().nftables, GetParam().ipv4);
    std::uint16_t port = 20001;
    for (const Side side : {Side::client, Side::server})
        for (const Verb end : {Verb::shut, Verb::reset}) {
            const Step opened{.caller = Caller::outside, .target = Target::node_port, .port = port++};
            for (Conversation *one : {&fast, &slow}) {
                EXPECT_THAT(one->run(opened), testing::StartsWith("server"));
                EXPECT_EQ(one->run({.verb = Verb::talk, .side = Side::server, .bytes = 900}), "heard 900");
                EXPECT_EQ(one->run({.verb = Verb::talk, .bytes = 299999}), "heard 299999");
                EXPECT_EQ(one->run({.verb = Verb::talk, .side = Side::server, .bytes = 66001}), "heard 66001");
                one->evict();
            }
            EXPECT_EQ(fast.run({.verb = end, .side = side}), slow.run({.verb = end, .side = side}));
            fast.close_all();
            slow.close_all();
        }
    EXPECT_GT(fast.fast_packets(), 0U);
    EXPECT_TRUE(wait_until([&] { return fast.states() == slow.states(); }));
    EXPECT_EQ(fast.states(), slow.states());
}

INSTANTIATE_TEST_SUITE_P(Netns, Conversations,
                         testing::Values(ConversationCase{"tcx", false, true}, ConversationCase{"tcx", true, false},
                                         ConversationCase{"clsact", true, true},
                                         ConversationCase{"clsact", false, false}),
                         [](const auto &info) { return text_of(info.param); });

} // namespace
} // namespace podlane::test
