// SPDX-License-Identifier: MIT
// Earliest departure times: who gets one, which one, and by which way the packet goes.
#include "tests/packet/cases.hpp"
#include "maps/abi/limit_math.h"
#include "maps/clock.hpp"

#include <ctime>

namespace podlane::packet {
namespace {

Bytes datagram(std::size_t payload = 1000) { return from_pod() / to_peer4() / Udp{} / bytes(payload); }
Bytes segment() { return from_pod() / to_peer4() / Tcp{} / bytes(1000); }
Frame arriving(const char *from) { return Ethernet{kPodMac, kHostMac} / Ipv4{ip(from), pod4()}; }

class Edt : public PacketTest {
  protected:
    void time(Pod &of, std::uint32_t more_flags = 0, std::uint64_t rate = kRate) {
        of.flags |= INTERFACE_LIMIT_EDT | more_flags;
        of.limits.bandwidth = {rate, kAuto, 0, 0};
        node().put(of);
    }
    limit_state state(const Pod &of) {
        return require(node().tables().limit_states.find({of.ifindex, LIMIT_INGRESS})).value();
    }
    void fill(const Pod &of, std::uint64_t backlog, std::uint64_t busy, std::uint64_t of_small = 0) {
        limit_state full{};
        full.free_at_ns = monotonic_ns() + backlog;
        full.small_free_at_ns = monotonic_ns() + of_small;
        for (__u64 &place : full.departures)
            place = monotonic_ns() + busy;
        require(node().tables().limit_states.update({of.ifindex, LIMIT_INGRESS}, full));
    }
    // It goes on to the qdisc, and counts at the receiver alone.
    void expect_counted(const Outcome &outcome, reason why) {
        EXPECT_EQ(outcome.verdict, kNext);
        EXPECT_EQ(outcome.counted, (std::vector<Counted>{{node().pod.ifindex, why, 1, outcome.frame.size()}}));
    }
    Outcome deliver(const Bytes &frame, std::uint32_t mark = 0, std::uint32_t came_by = 0) {
        return node().run(frame, {.program = PODLANE_PROGRAM_TO_POD, .mark = mark, .came_by = came_by});
    }
};

TEST_F(Edt, WhatCannotBePacedGoesByTheQdiscOfTheReceiver) {
    time(node().peer);
    const Outcome outcome = node().run(datagram());
    EXPECT_EQ(outcome.verdict, kRedirected);
    EXPECT_EQ(outcome.mark, PODLANE_MARK);
    EXPECT_EQ(outcome.counted,
              (std::vector<Counted>{{node().pod.ifindex, REASON_SENT_DIRECT, 1, outcome.frame.size()}}));
    EXPECT_EQ(state(node().peer).packets, 0U) << "it is charged where it gets its earliest departure time";

    expect_ends_in(node(), node().run(segment()), REASON_SENT_DIRECT);
    EXPECT_EQ(state(node().peer).packets, 1U);
    time(node().peer, INTERFACE_LIMIT_UNPACED_INGRESS);
    EXPECT_EQ(node().run(segment()).mark, PODLANE_MARK);
}

TEST_F(Edt, WhatTheFastPathHandsOverIsCountedWhereItCameFrom) {
    time(node().pod);
    fill(node().pod, 50 * kMs, 50 * kMs);
    const Bytes frame = arriving("192.0.2.20") / Udp{} / bytes(1000);
    const std::uint64_t before = monotonic_ns();
    const Outcome direct = deliver(frame, PODLANE_MARK | 1, node().peer.ifindex);
    expect_counted(direct, REASON_RECEIVED_DIRECT);
    EXPECT_EQ(direct.mark, 1U);
    EXPECT_GE(direct.departure_ns, before + 40 * kMs);
    EXPECT_LE(direct.departure_ns, before + 60 * kMs);
    EXPECT_EQ(direct.priority, LIMIT_CLASS);
    expect_counted(deliver(frame, PODLANE_MARK, node().unknown_ifindex), REASON_RECEIVED_UPLINK);
    EXPECT_TRUE(require(node().paths().entries()).empty());
    EXPECT_EQ(state(node().pod).delayed, 2U);
    EXPECT_EQ(state(node().pod).bytes, 2 * frame.size());
}

// Nobody may pass for the fast path by the mark of a socket.
TEST_F(Edt, AProcessOfTheNodeIsHandledAsTheHostStacks) {
    time(node().pod);
    const Bytes frame = arriving("203.0.113.1") / Udp{} / bytes(1000);
    expect_counted(deliver(frame, PODLANE_MARK), REASON_RECEIVED_HOST);
    node().put_with(node().pod, INTERFACE_ISOLATED_GROUP);
    expect_ends_in(node(), deliver(frame, PODLANE_MARK), REASON_DROP_ISOLATION);
}

TEST_F(Edt, PacketsOfTheSlowPathAreDelayedUnlessTheirSenderIsPaced) {
    time(node().pod);
    fill(node().pod, 50 * kMs, 50 * kMs);
    const auto departure_of = [&](const Bytes &frame) {
        const Outcome outcome = deliver(frame);
        expect_ends_in(node(), outcome, REASON_RECEIVED_HOST);
        return outcome.departure_ns;
    };
    const std::uint64_t before = monotonic_ns();
    EXPECT_GT(departure_of(arriving("192.0.2.20") / Udp{} / bytes(1000)), before + 30 * kMs);
    EXPECT_GT(departure_of(arriving("203.0.113.1") / Tcp{} / bytes(1000)), before + 30 * kMs);
    EXPECT_EQ(departure_of(arriving("192.0.2.20") / Tcp{} / bytes(1000)), 0U);
    EXPECT_EQ(state(node().pod).packets, 3U);
}

// pl_pace finds both ends of a connection by their namespaces.
TEST_F(Edt, ASenderInAnotherNetworkOfThisNodeIsPaced) {
    time(node().pod);
    const auto departure_of = [&](const Bytes &frame) {
        fill(node().pod, 50 * kMs, 50 * kMs);
        const Outcome outcome = deliver(frame);
        expect_ends_in(node(), outcome, REASON_RECEIVED_HOST);
        return outcome.departure_ns;
    };
    const auto of = [&](const char *sender) { return arriving(sender) / Tcp{} / bytes(1000); };
    require(
        node().tables().senders.update({require(netns_of(node().root())), ip("192.0.2.30")}, node().foreign.ifindex));
    EXPECT_EQ(departure_of(of("192.0.2.30")), 0U);
    EXPECT_GT(departure_of(arriving("192.0.2.30") / Udp{} / bytes(1000)), 0U);
    EXPECT_GT(departure_of(of("192.0.2.31")), 0U);
    fill(node().pod, 200 * kMs, 200 * kMs);
    expect_ends_in(node(), deliver(of("192.0.2.30")), REASON_DROP_INGRESS_LIMIT);
}

TEST_F(Edt, AFlowWithNothingUnderWayDoesNotWait) {
    time(node().pod, 0, kRate / 10);
    const Bytes frame = arriving("192.0.2.20") / Udp{} / bytes(1000);
    fill(node().pod, 80 * kMs, 0);
    const Outcome sparse = deliver(frame);
    const std::uint64_t first = sparse.departure_ns;
    EXPECT_LE(first, monotonic_ns());
    EXPECT_EQ(sparse.priority, 0U) << "the class would hold it behind the others";
    const std::uint64_t second = deliver(frame).departure_ns;
    EXPECT_GT(second, monotonic_ns()) << "more than a sixteenth of the rate";
    EXPECT_EQ(state(node().pod).delayed, 1U);
    fill(node().pod, 80 * kMs, 80 * kMs);
    EXPECT_GT(deliver(frame).departure_ns, first + 50 * kMs) << "it would overtake itself";
    fill(node().pod, 0, 0);
    EXPECT_EQ(deliver(frame).priority, LIMIT_CLASS) << "what waits there longer than the bucket knows is before it";
}

Bytes from_far(const Tcp &tcp, std::size_t payload = 0) { return arriving("203.0.113.1") / tcp / bytes(payload); }

// They keep neither each other nor data of their flow from it, and do not overtake data that waits.
TEST_F(Edt, AcknowledgementsLeaveAtOnce) {
    node().pod.flags |= INTERFACE_LIMIT_EDT;
    node().pod.limits.bandwidth = {kRate, kRate * 9 / 10, 0, 0}; // long, as a busy machine has it
    node().put(node().pod);
    constexpr std::uint8_t kFin = 0x01;
    struct Case {
        const char *what;
        Bytes frame;
        bool is_ack, is_now;
        std::uint64_t busy = 0, of_small = 0;
    };
    const Bytes v6 = Ethernet{kPodMac, kHostMac} / Ipv6{ip("2001:db8:ffff::1"), pod6()} / Tcp{.flags = kAck};
    for (const auto &[what, frame, is_ack, is_now, busy, of_small] :
         {Case{"plain", from_far({.flags = kAck}), true, true}, Case{"IPv6", v6, true, true},
          Case{"SACK", from_far({.flags = kAck, .options = bytes(40, 1)}), true, true},
          Case{"behind data of its flow", from_far({.flags = kAck}), true, false, 600 * kMs},
          Case{"beyond half of the part of small frames", from_far({.flags = kAck}), true, false, 0, 800 * kMs},
          Case{"data", from_far({.flags = kAck}, 1), false, true},
          Case{"an end", from_far({.flags = kAck | kFin}), false, true},
          Case{"a beginning", from_far({.flags = kSyn}), false, true},
          Case{"UDP", arriving("203.0.113.1") / Udp{} / bytes(12), false, true}}) {
        SCOPED_TRACE(what);
        fill(node().pod, 600 * kMs, busy, of_small);
        const limit_state before = state(node().pod);
        const Outcome outcome = deliver(frame);
        expect_ends_in(node(), outcome, REASON_RECEIVED_HOST);
        EXPECT_EQ(outcome.departure_ns < before.free_at_ns, is_now);
        EXPECT_EQ(outcome.priority, is_now ? 0 : LIMIT_CLASS);
        const limit_state charged = state(node().pod);
        EXPECT_EQ(std::ranges::equal(charged.departures, before.departures), is_ack);
        EXPECT_EQ(charged.small_free_at_ns != before.small_free_at_ns, is_now);
        EXPECT_EQ(charged.bytes, frame.size());
        EXPECT_GT(charged.free_at_ns, before.free_at_ns);
    }
}

TEST_F(Edt, AFloodOfAcknowledgementsHasHalfOfThePartOfSmallFrames) {
    constexpr std::uint64_t kSlow = kRate / 100, kHalf = LEAST_FRAMES * 100 * kMs / 2; // a busy machine is faster
    time(node().pod, 0, kSlow);
    fill(node().pod, 0, 0);
    const Bytes ack = from_far({.flags = kAck});
    const std::uint64_t cost = ack.size() * 8 * SMALL_SHARE * 1000 * kMs / kSlow, begin = monotonic_ns();
    const auto passes = [&](const Bytes &frame) {
        limit_state full = state(node().pod);
        full.free_at_ns = monotonic_ns() + 900 * kMs; // the burst is used up
        require(node().tables().limit_states.update({node().pod.ifindex, LIMIT_INGRESS}, full));
        return deliver(frame).verdict == kNext;
    };
    std::uint64_t passed = 0;
    while (passed < 1000 && passes(ack))
        ++passed;
    EXPECT_GE(passed, kHalf / cost);
    EXPECT_LE((passed - 1) * cost, kHalf + monotonic_ns() - begin);
    EXPECT_TRUE(passes(arriving("203.0.113.1") / Icmp{} / bytes(56))) << "the other half is left to a ping";
}

TEST_F(Edt, AFlowWithinItsPartWaitsWhileAFloodIsDropped) {
    time(node().pod);
    for (const auto &[ahead, why] :
         {std::pair(50 * kMs, REASON_RECEIVED_HOST), std::pair(120 * kMs, REASON_DROP_INGRESS_LIMIT)}) {
        limit_state full{};
        full.free_at_ns = full.small_free_at_ns = monotonic_ns() + 120 * kMs;
        std::ranges::fill(full.parts, monotonic_ns() + ahead);
        require(node().tables().limit_states.update({node().pod.ifindex, LIMIT_INGRESS}, full));
        expect_ends_in(node(), deliver(arriving("192.0.2.20") / Udp{} / bytes(1000)), why);
    }
}

TEST_F(Edt, BeyondTheBurstIsDropped) {
    time(node().pod);
    fill(node().pod, 200 * kMs, 200 * kMs);
    expect_ends_in(node(), deliver(arriving("192.0.2.20") / Udp{} / bytes(1000)), REASON_DROP_INGRESS_LIMIT);
    EXPECT_EQ(state(node().pod).dropped, 1U);
    fill(node().pod, 200 * kMs, 0);
    expect_ends_in(node(), deliver(arriving("192.0.2.20") / Icmp{} / bytes(56)), REASON_RECEIVED_HOST);
}

TEST_F(Edt, ExemptSendersAreNotHeld) {
    node().pod.limits.limited_prefixes[LIMIT_INGRESS].unshaped = {*parse_prefix("192.0.2.20/32")};
    time(node().pod);
    fill(node().pod, 200 * kMs, 200 * kMs);
    EXPECT_EQ(deliver(arriving("192.0.2.20") / Udp{} / bytes(1000)).departure_ns, 0U);
    EXPECT_EQ(state(node().pod).packets, 0U);
}

TEST_F(Edt, EarliestDepartureTimesAreSoonByAnyClockAndRate) {
    const Bytes frame = arriving("192.0.2.20") / Udp{} / bytes(1000);
    for (const std::uint64_t rate : {std::uint64_t{100000}, kRate, std::uint64_t{400000000000}, kForever}) {
        time(node().pod, 0, rate);
        for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{1}, kForever / 2, kForever}) {
            limit_state wild{};
            wild.free_at_ns = wild.small_free_at_ns = wild.window_since_ns = wrong;
            for (__u64 &place : wild.departures)
                place = wrong;
            require(node().tables().limit_states.update({node().pod.ifindex, LIMIT_INGRESS}, wild));
            SCOPED_TRACE(std::to_string(rate) + " " + std::to_string(wrong));
            const Outcome outcome = deliver(frame);
            expect_ends_in(node(), outcome, REASON_RECEIVED_HOST);
            const std::uint64_t soon = monotonic_ns() + 1000 * kMs;
            EXPECT_LE(outcome.departure_ns, soon);
        }
    }
}

} // namespace
} // namespace podlane::packet
