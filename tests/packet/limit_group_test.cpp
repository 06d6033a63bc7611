// SPDX-License-Identifier: MIT
// Pods that share a limit: each path by which a packet is charged reports to the group, and follows its answer.
#include "tests/packet/cases.hpp"

#include "maps/abi/limit_math.h"
#include "maps/clock.hpp"

namespace podlane::packet {
namespace {

constexpr std::uint64_t kGuarantee = kRate;
constexpr std::uint64_t kShared = 4 * kGuarantee;
constexpr std::uint32_t kGroup = LIMIT_GROUP | 7;

class SharedLimit : public PacketTest {
  protected:
    void prepare() override {
        require(node().tables().bandwidths.update(kGroup, {kShared, kAuto, kShared, kAuto}));
        for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS})
            require(node().tables().limit_states.update({kGroup, direction}, {}));
    }
    void join(Pod &of, limit_direction direction, std::uint32_t more_flags = 0) {
        const std::uint64_t ingress = direction == LIMIT_INGRESS ? kGuarantee : 0;
        const std::uint64_t egress = direction == LIMIT_EGRESS ? kGuarantee : 0;
        of.flags = kAllFlags | INTERFACE_LIMIT_GROUP | more_flags;
        of.limits.bandwidth = {ingress, ingress == 0 ? 0 : kAuto, egress, egress == 0 ? 0 : kAuto};
        node().put(of);
        limit_state own = state(of.ifindex, direction);
        own.group = kGroup;
        require(node().tables().limit_states.update({of.ifindex, direction}, own));
    }
    limit_state state(std::uint32_t ifindex, limit_direction direction) {
        return require(node().tables().limit_states.find({ifindex, direction})).value();
    }
    // The pod is alone in its group, and its packets always wait: it borrows the rest.
    void expect_borrows(const Pod &of, limit_direction direction, const Bytes &frame, const How &how) {
        const std::uint64_t end = monotonic_ns() + 10000 * kMs;
        while (state(of.ifindex, direction).limit.rate_bits_per_s < kShared - kShared / 8 && monotonic_ns() < end)
            node().run_uncounted(frame, how);
        const limit_state own = state(of.ifindex, direction), group = state(kGroup, direction);
        EXPECT_GE(own.limit.rate_bits_per_s, kShared - kShared / 8);
        EXPECT_EQ(own.given_bits_per_s, kGuarantee);
        EXPECT_EQ(group.bytes, own.reported) << "each byte is charged to the group once";
        EXPECT_LE(own.reported, own.bytes);
        EXPECT_GT(own.reported, 0U);
    }
    static Bytes to_pod() { return Ethernet{kPodMac, kHostMac} / Ipv4{peer4(), pod4()} / Udp{} / bytes(1000); }
    static Bytes out() { return from_pod() / to_peer4() / Udp{} / bytes(1000); }
};

TEST_F(SharedLimit, WhatAPodSendsIsReported) {
    join(node().pod, LIMIT_EGRESS);
    expect_borrows(node().pod, LIMIT_EGRESS, out(), {});
}

TEST_F(SharedLimit, WhatTheFastPathDeliversIsReported) {
    join(node().peer, LIMIT_INGRESS);
    expect_borrows(node().peer, LIMIT_INGRESS, out(), {});
}

TEST_F(SharedLimit, WhatTheHostStackDeliversIsReported) {
    join(node().pod, LIMIT_INGRESS);
    expect_borrows(node().pod, LIMIT_INGRESS, to_pod(), {.program = PODLANE_PROGRAM_TO_POD});
}

TEST_F(SharedLimit, WhatTheQdiscHoldsIsReported) {
    join(node().pod, LIMIT_INGRESS, INTERFACE_LIMIT_EDT);
    expect_borrows(node().pod, LIMIT_INGRESS, to_pod(), {.program = PODLANE_PROGRAM_TO_POD});
}

TEST_F(SharedLimit, APodReportsOncePer10Ms) {
    join(node().pod, LIMIT_EGRESS);
    limit_state reported = state(node().pod.ifindex, LIMIT_EGRESS);
    reported.share.at_ns = monotonic_ns() + 500 * kMs; // by another CPU
    require(node().tables().limit_states.update({node().pod.ifindex, LIMIT_EGRESS}, reported));
    node().run_uncounted(out());
    EXPECT_EQ(state(kGroup, LIMIT_EGRESS).bytes, 0U);
    EXPECT_EQ(state(node().pod.ifindex, LIMIT_EGRESS).packets, 1U);
}

// Its records are lost, or were never there.
TEST_F(SharedLimit, WithoutTheGroupTheGuaranteeHolds) {
    join(node().pod, LIMIT_EGRESS);
    require(node().tables().limit_states.remove({kGroup, LIMIT_EGRESS}));
    for (int i = 0; i < 10; ++i)
        node().run_uncounted(out());
    EXPECT_EQ(state(node().pod.ifindex, LIMIT_EGRESS).limit.rate_bits_per_s, kGuarantee);
}

} // namespace
} // namespace podlane::packet
