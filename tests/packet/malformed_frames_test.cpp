// SPDX-License-Identifier: MIT
// Whatever bytes a pod sends: one verdict, one counter, and no fast path for a forged source.
#include "tests/packet/neighbour_cases.hpp"

#include <random>

namespace podlane::packet {
namespace {

constexpr unsigned kMutations = 20000;
constexpr unsigned kSeed = 20250711;

class MalformedFrames : public PacketTest {
  protected:
    static std::vector<Case> all() {
        std::vector<Case> every;
        for (const auto &cases : {protocol_cases(), destination_cases(), source_cases(), detour_cases(),
                                  malformed_cases(), arp_cases(), nd_cases()})
            every.insert(every.end(), cases.begin(), cases.end());
        return every;
    }

    // False if the kernel refuses to run the frame at all.
    bool holds_for(const Bytes &frame, const char *program) {
        Outcome outcome;
        const auto before = totals();
        if (!node().try_run(frame, {.program = program}, outcome))
            return false;
        const auto after = totals();
        const reason why = only_reason(before, after);
        EXPECT_NE(why, REASON_NONE) << hex(frame);
        EXPECT_EQ(outcome.verdict, verdict_of(why)) << hex(frame);
        if (why == REASON_SENT_DIRECT) {
            EXPECT_TRUE(source_is_own(frame)) << hex(frame);
        }
        return true;
    }

  private:
    counters totals() { return require(sum_of(node().tables().counters, node().pod.ifindex)); }

    // REASON_NONE if not exactly one packet was counted.
    static reason only_reason(const counters &before, const counters &after) {
        reason found = REASON_NONE;
        std::uint64_t packets = 0;
        for (int i = 0; i < COUNTER_REASONS; ++i) {
            const std::uint64_t more = after.by_reason[i].packets - before.by_reason[i].packets;
            packets += more;
            if (more != 0)
                found = static_cast<reason>(i);
        }
        return packets == 1 ? found : REASON_NONE;
    }

    static bool source_is_own(const Bytes &frame) {
        Bytes addr;
        const bool v4 = frame[12] == 0x08;
        append(addr, v4 ? pod4() : pod6());
        return std::ranges::equal(kPodMac, std::span(frame).subspan(6, 6)) &&
               std::ranges::equal(addr, std::span(frame).subspan(v4 ? 26 : 22, addr.size()));
    }
};

TEST_F(MalformedFrames, CutAtEveryOffsetPassNothing) {
    unsigned ran = 0;
    for (const Case &given : all()) {
        SCOPED_TRACE(given.name);
        for (std::size_t length = 0; length <= given.frame.size(); ++length)
            for (const char *program : {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD})
                ran += holds_for(cut(given.frame, length), program) ? 1 : 0;
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(ran, 5000U);
}

TEST_F(MalformedFrames, RandomlyChangedPassNothing) {
    std::mt19937 random(kSeed);
    const auto below = [&](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
    const std::vector<Case> seeds = all();
    unsigned ran = 0;
    for (unsigned i = 0; i < kMutations; ++i) {
        Bytes frame = seeds[below(seeds.size())].frame;
        for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
            // Headers are where the decisions are.
            std::uint8_t &byte = frame[below(std::min<std::size_t>(frame.size(), 14 + 40 + 24))];
            byte = below(2) == 0 ? static_cast<std::uint8_t>(byte ^ (1U << below(8)))
                                 : static_cast<std::uint8_t>(random());
        }
        if (below(4) == 0)
            frame.resize(14 + below(frame.size()));
        ran += holds_for(frame, below(4) == 0 ? PODLANE_PROGRAM_TO_POD : PODLANE_PROGRAM_FROM_POD) ? 1 : 0;
        ASSERT_FALSE(HasFailure()) << "seed " << kSeed << ", change " << i;
    }
    EXPECT_GT(ran, kMutations / 2);
}

} // namespace
} // namespace podlane::packet
