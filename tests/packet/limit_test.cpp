// SPDX-License-Identifier: MIT
// Limits: what is charged, marked and dropped, whatever the clock and the rate.
#include "tests/packet/neighbour_cases.hpp"

#include "loader/limit.hpp"
#include "maps/abi/limit_math.h"
#include "maps/clock.hpp"

#include <atomic>
#include <ctime>

namespace podlane::packet {
namespace {

Bytes large() { return from_pod() / to_peer4() / Udp{} / bytes(1000); }
Bytes small() { return from_pod() / to_peer4() / Udp{} / bytes(56); }
Bytes to_pod(std::size_t payload) {
    return Ethernet{kPodMac, kHostMac} / Ipv4{peer4(), pod4()} / Udp{} / bytes(payload);
}

class Limit : public PacketTest {
  protected:
    void limit(Pod &of, std::uint64_t ingress, std::uint64_t egress, std::uint64_t burst = kAuto) {
        of.limits.bandwidth = {ingress, ingress == 0 ? 0 : burst, egress, egress == 0 ? 0 : burst};
        node().put(of);
    }
    limit_state state(const Pod &of, limit_direction direction = LIMIT_EGRESS) {
        return require(node().tables().limit_states.find({of.ifindex, direction})).value();
    }
    // The bucket as if so much had just been let through.
    void fill(const Pod &of, limit_direction direction, std::uint64_t backlog, std::uint64_t of_small = 0,
              std::uint64_t ahead = 0) {
        limit_state full{};
        std::ranges::fill(full.parts, monotonic_ns() + ahead);
        full.free_at_ns = monotonic_ns() + backlog;
        full.small_free_at_ns = monotonic_ns() + of_small;
        require(node().tables().limit_states.update({of.ifindex, direction}, full));
    }
    // The pod sends a frame after as much, and before a busy machine lets much of the backlog go.
    Outcome send_behind(const Bytes &frame, std::uint64_t backlog, std::uint64_t of_small, std::uint64_t ahead) {
        Outcome outcome;
        for (int attempt = 0; attempt < 50; ++attempt) {
            fill(node().pod, LIMIT_EGRESS, backlog, of_small, ahead);
            const std::uint64_t since = monotonic_ns();
            outcome = node().run(frame);
            if (monotonic_ns() - since < 10 * kMs)
                break;
        }
        return outcome;
    }
    void expect_behind(const Bytes &frame, reason why, std::uint64_t backlog, std::uint64_t of_small = 0,
                       std::uint64_t ahead = 0) {
        expect_ends_in(node(), send_behind(frame, backlog, of_small, ahead), why);
    }
    // One thread for each CPU, and two at least.
    template <typename Send> static void by_all_cpus(const Send &send) {
        std::vector<std::thread> others;
        for (std::uint64_t i = 1; i < cpus(); ++i)
            others.emplace_back(send);
        send();
        for (std::thread &other : others)
            other.join();
    }
    static std::uint64_t cpus() { return std::max(2U, std::thread::hardware_concurrency()); }
    void send_by_all_cpus() {
        by_all_cpus([&] {
            for (std::uint64_t i = 0; i < all_ / cpus(); ++i)
                node().run_uncounted(large());
        });
    }

    const std::uint64_t all_ = test::slow() ? 8000 : 40000;
};

TEST_F(Limit, NothingIsChargedWithoutOne) {
    limit(node().pod, kRate, 0);
    expect_ends_in(node(), node().run(large()), REASON_SENT_DIRECT);
    EXPECT_EQ(state(node().pod).packets, 0U);
}

TEST_F(Limit, DropsByNameBeyondTheBurst) {
    limit(node().pod, 0, kRate);
    for (const auto &[backlog, why] : {std::pair(0 * kMs, REASON_SENT_DIRECT), std::pair(90 * kMs, REASON_SENT_DIRECT),
                                       std::pair(200 * kMs, REASON_DROP_EGRESS_LIMIT)}) {
        expect_behind(large(), why, backlog);
    }
    EXPECT_EQ(state(node().pod).dropped, 1U);
    EXPECT_EQ(state(node().pod).dropped_bytes, large().size());
    EXPECT_EQ(state(node().pod).packets, 0U);
}

// Whatever a pod sends is charged, but what the programs answer themselves.
TEST_F(Limit, NeighbourMessagesAndArpAreCharged) {
    limit(node().pod, 0, kRate);
    fill(node().pod, LIMIT_EGRESS, 200 * kMs, 200 * kMs);
    const Frame far = from_pod() / Ipv6{pod6(), ip("2001:db8:9::9"), 64};
    for (const Bytes &sent :
         {Bytes(nd(pod6()) / Nd{135, peer6()} / own_option()), Bytes(far / Nd{136, pod6()} / nd_option(2, kPodMac)),
          Bytes(far / icmp6(133, 0)), Bytes(arp(arp_request(peer4())))})
        expect_ends_in(node(), node().run(sent), REASON_DROP_EGRESS_LIMIT);
    EXPECT_EQ(node().run(arp(arp_request(gateway4()))).verdict, kRedirected) << "answered";
}

// RFC 3168: before anything is dropped, and only packets of senders that take part in it.
TEST_F(Limit, MarksEcnCapablePacketsFromTwoTargetsOn) {
    limit(node().pod, 0, kRate);
    constexpr std::uint8_t kNot = 0, kOne = 1, kZero = 2, kCongestion = 3;
    for (const auto &[backlog, sent, left] : {std::tuple{30 * kMs, kZero, kZero},
                                              {60 * kMs, kOne, kCongestion},
                                              {60 * kMs, kZero, kCongestion},
                                              {90 * kMs, kNot, kNot}}) {
        for (const bool ipv4 : {true, false}) {
            SCOPED_TRACE(std::to_string(backlog / kMs) + (ipv4 ? " ms, IPv4" : " ms, IPv6"));
            const Frame below =
                ipv4 ? from_pod() / to_peer4({.traffic_class = sent}) : from_pod() / to_peer6({.traffic_class = sent});
            const Outcome outcome = send_behind(below / Udp{} / bytes(1000), backlog, 0, 0);
            expect_ends_in(node(), outcome, REASON_SENT_DIRECT);
            EXPECT_EQ(outcome.frame.at(15) >> (ipv4 ? 0U : 4U) & 3U, left);
            EXPECT_EQ(state(node().pod).marked, left == kCongestion ? 1U : 0U);
        }
    }
}

TEST_F(Limit, HoldsTheLeastAndTheGreatestRate) {
    for (const auto &[rate, burst] :
         {std::pair(std::uint64_t{100000}, 605 * kMs), std::pair(std::uint64_t{400000000000}, 100 * kMs)}) {
        limit(node().pod, 0, rate);
        SCOPED_TRACE(rate);
        expect_behind(large(), REASON_SENT_DIRECT, burst - 20 * kMs);
        expect_behind(large(), REASON_DROP_EGRESS_LIMIT, burst + 20 * kMs);
    }
}

TEST_F(Limit, TheConfiguredBurstIsTheBound) {
    limit(node().pod, 0, kRate, kRate / 2); // 500 ms
    expect_behind(large(), REASON_SENT_DIRECT, 400 * kMs);
    expect_behind(large(), REASON_DROP_EGRESS_LIMIT, 600 * kMs);
}

// Flows of all buckets are busy, and so much ahead of their parts.
TEST_F(Limit, AFlowWithinItsPartPassesWhileAFloodIsDropped) {
    limit(node().pod, 0, kRate);
    const std::uint64_t cost = large().size() * 8 * 1000000000 / kRate;
    for (const auto &[backlog, ahead, why] : {std::tuple{120 * kMs, 0 * kMs, REASON_DROP_EGRESS_LIMIT},
                                              {120 * kMs, 50 * kMs, REASON_SENT_DIRECT},
                                              {120 * kMs, 120 * kMs, REASON_DROP_EGRESS_LIMIT},
                                              {160 * kMs, 50 * kMs, REASON_DROP_EGRESS_LIMIT}}) {
        SCOPED_TRACE(std::to_string(backlog / kMs) + ", " + std::to_string(ahead / kMs));
        expect_behind(large(), why, backlog, backlog, ahead);
        const limit_state after = state(node().pod);
        const auto [least, most] = std::ranges::minmax(after.parts);
        const std::uint64_t charged = why == REASON_SENT_DIRECT ? cost * LIMIT_PARTS : 0;
        EXPECT_LE(most - least, charged + 1) << "the last bit is the turn's";
        EXPECT_GE(most - least + 1, charged) << "charged to its bucket, as if all had equal parts";
    }
}

TEST_F(Limit, SmallFramesPassWhileLargeOnesAreDroppedUnlessTheyAreMany) {
    limit(node().pod, 0, kRate);
    expect_behind(small(), REASON_SENT_DIRECT, 200 * kMs);
    fill(node().pod, LIMIT_EGRESS, 200 * kMs);
    const std::uint64_t before = state(node().pod).small_free_at_ns;
    node().run_uncounted(small());
    EXPECT_GT(state(node().pod).small_free_at_ns, before);
    expect_behind(small(), REASON_DROP_EGRESS_LIMIT, 200 * kMs, 200 * kMs);
}

// Up to half of the target, and beyond it as small frames, of whose part they leave half to others.
TEST_F(Limit, AcknowledgementsTakeWhatOthersLeave) {
    limit(node().pod, 0, kRate);
    const auto of_tcp = [](std::uint8_t flags, std::size_t payload) -> Bytes {
        return from_pod() / to_peer4() / Tcp{.flags = flags, .options = bytes(12, 1)} / bytes(payload);
    };
    constexpr std::uint8_t kFin = 0x01;
    const Bytes ack = of_tcp(kAck, 0);
    for (const auto &[backlog, of_small, why] : {std::tuple{8 * kMs, 80 * kMs, REASON_SENT_DIRECT},
                                                 {30 * kMs, 80 * kMs, REASON_DROP_EGRESS_LIMIT},
                                                 {30 * kMs, 20 * kMs, REASON_SENT_DIRECT},
                                                 {200 * kMs, 20 * kMs, REASON_SENT_DIRECT}}) {
        SCOPED_TRACE(std::to_string(backlog / kMs) + ", " + std::to_string(of_small / kMs));
        expect_behind(ack, why, backlog, of_small);
    }
    for (const Bytes &other : {of_tcp(kAck, 1), of_tcp(kAck | kFin, 0), of_tcp(kSyn, 0), small()})
        expect_behind(other, REASON_SENT_DIRECT, 30 * kMs, 80 * kMs);

    fill(node().pod, LIMIT_EGRESS, 0);
    const std::uint64_t before = state(node().pod).small_free_at_ns;
    node().run_uncounted(ack);
    EXPECT_EQ(state(node().pod).small_free_at_ns, before) << "others may take all of that part";
    fill(node().pod, LIMIT_EGRESS, 90 * kMs);
    node().run_uncounted(ack);
    EXPECT_GT(state(node().pod).small_free_at_ns, before);
}

// All of it is headers, and as large as a frame of data.
TEST_F(Limit, ALargeFrameIsNoAcknowledgement) {
    limit(node().pod, 0, kRate);
    for (const std::uint8_t units : {std::uint8_t{2}, std::uint8_t{100}}) {
        const Bytes sent = from_pod() / to_peer6() / Extension{60, units} / Tcp{.flags = kAck};
        expect_behind(sent, units == 2 ? REASON_HOST_OPTIONS : REASON_DROP_EGRESS_LIMIT, 200 * kMs, 20 * kMs);
    }
}

TEST_F(Limit, SmallIsUpToItsLength) {
    const auto sized = [](std::size_t length) -> Bytes {
        return from_pod() / to_peer4() / Udp{} / bytes(length - 42); // of Ethernet, IPv4 and UDP
    };
    limit(node().pod, 0, kRate);
    for (const std::size_t length : {SMALL_FRAME, SMALL_FRAME + 1}) {
        const bool is_small = length == SMALL_FRAME;
        const reason why = is_small ? REASON_SENT_DIRECT : REASON_DROP_EGRESS_LIMIT;
        expect_behind(sized(length), why, 200 * kMs);
        fill(node().pod, LIMIT_EGRESS, 200 * kMs, 50 * kMs);
        const std::uint64_t before = state(node().pod).small_free_at_ns;
        expect_ends_in(node(), node().run(sized(length)), why);
        EXPECT_EQ(state(node().pod).small_free_at_ns > before, is_small) << length;
    }
    fill(node().pod, LIMIT_EGRESS, 90 * kMs, 50 * kMs);
    const std::uint64_t before = state(node().pod).small_free_at_ns;
    node().run_uncounted(small());
    EXPECT_EQ(state(node().pod).small_free_at_ns, before) << "within the burst it needs no part of its own";
}

TEST_F(Limit, HoldsTheReceiverOnBothPaths) {
    limit(node().peer, kRate, 0);
    fill(node().peer, LIMIT_INGRESS, 200 * kMs);
    expect_ends_in(node(), node().run(large()), REASON_DROP_INGRESS_LIMIT);

    limit(node().pod, kRate, 0);
    fill(node().pod, LIMIT_INGRESS, 200 * kMs);
    const How by_host{.program = PODLANE_PROGRAM_TO_POD};
    expect_ends_in(node(), node().run(to_pod(1000), by_host), REASON_DROP_INGRESS_LIMIT);
    fill(node().pod, LIMIT_INGRESS, 0);
    expect_ends_in(node(), node().run(to_pod(1000), by_host), REASON_RECEIVED_HOST);
    EXPECT_EQ(state(node().pod, LIMIT_INGRESS).bytes, to_pod(1000).size());
}

TEST_F(Limit, ChargesEachSegmentWithItsHeaders) {
    limit(node().pod, 0, 1000 * kRate);
    struct Charged {
        Bytes frame;
        std::uint32_t segment;
        std::uint64_t more;
    };
    const std::vector<Charged> all{
        {from_pod() / to_peer4() / Tcp{} / bytes(2900), 0, 0},
        {from_pod() / to_peer4() / Tcp{} / bytes(3000), 1000, 2 * 54},
        {from_pod() / to_peer4() / Tcp{} / bytes(3001), 1000, 3 * 54},
        {from_pod() / to_peer4() / Tcp{.options = bytes(12, 1)} / bytes(2900), 1000, 2 * 66},
        {from_pod() / to_peer6() / Tcp{} / bytes(2900), 1000, 2 * 74},
        {from_pod() / to_peer4() / Udp{} / bytes(2900), 1000, 2 * 42},
        {from_pod() / to_peer6() / Udp{} / bytes(2900), 1000, 2 * 62},
        {from_pod() / to_peer4() / bytes(2900), 1000, 2 * 94}, // of a protocol that is not read: the most that TCP has
        {from_pod() / to_peer6() / bytes(2900), 1000, 2 * 114},
        {from_pod() / to_peer4() / Udp{.protocol = IPPROTO_SCTP} / bytes(2900), 0xffff, 2 * 46}, // GSO_BY_FRAGS
        {from_pod() / to_peer6() / Udp{.protocol = IPPROTO_SCTP} / bytes(2900), 0xffff, 2 * 66},
    };
    for (const Charged &one : all) {
        if (one.frame.size() > 1500 && one.segment == 0)
            continue; // beyond the peer's MTU
        const std::uint64_t before = state(node().pod).bytes;
        node().run(one.frame, {.gso_size = one.segment, .gso_segments = one.segment == 0 ? 0U : 3U});
        EXPECT_EQ(state(node().pod).bytes - before, one.frame.size() + one.more) << one.segment;
    }
}

TEST_F(Limit, ExemptPrefixesPayNothing) {
    node().pod.limits.limited_prefixes[LIMIT_EGRESS].unshaped = {*parse_prefix("192.0.2.20/32")};
    limit(node().pod, 0, kRate);
    expect_behind(large(), REASON_SENT_DIRECT, 200 * kMs);
    expect_ends_in(node(), node().run(from_pod() / to_peer6() / Udp{} / bytes(1000)), REASON_DROP_EGRESS_LIMIT);

    node().peer.limits.limited_prefixes[LIMIT_EGRESS].unshaped = {*parse_prefix("192.0.2.10/32")}; // not its ingress
    limit(node().peer, kRate, 0);
    fill(node().peer, LIMIT_INGRESS, 200 * kMs);
    expect_ends_in(node(), node().run(large()), REASON_DROP_INGRESS_LIMIT);
    node().peer.limits = {};
    node().put(node().peer);

    node().pod.limits.limited_prefixes[LIMIT_EGRESS].unshaped.clear();
    node().pod.limits.limited_prefixes[LIMIT_EGRESS].shaped = {*parse_prefix("192.0.2.0/24")};
    limit(node().pod, 0, kRate);
    expect_behind(large(), REASON_DROP_EGRESS_LIMIT, 200 * kMs);
    expect_ends_in(node(), node().run(from_pod() / to_peer6() / Udp{} / bytes(1000)), REASON_SENT_DIRECT);
}

TEST_F(Limit, AnIpv6PrefixSaysNothingAboutIpv4) {
    const Bytes large6 = from_pod() / to_peer6() / Udp{} / bytes(1000);
    auto &prefixes = node().pod.limits.limited_prefixes[LIMIT_EGRESS];
    prefixes.unshaped = {*parse_prefix("::/0")};
    limit(node().pod, 0, kRate);
    expect_behind(large(), REASON_DROP_EGRESS_LIMIT, 200 * kMs);
    expect_ends_in(node(), node().run(large6), REASON_SENT_DIRECT);

    prefixes.unshaped.clear();
    prefixes.shaped = {*parse_prefix("::/0")};
    limit(node().pod, 0, kRate);
    expect_behind(large(), REASON_SENT_DIRECT, 200 * kMs);
    expect_ends_in(node(), node().run(large6), REASON_DROP_EGRESS_LIMIT);
}

// After a jump of the clock, a change of the rate, days of silence: the next packet passes, and the state is sound.
TEST_F(Limit, AnyClockAndAnyRateEndInASoundState) {
    for (const std::uint64_t rate :
         {std::uint64_t{1}, std::uint64_t{100000}, kRate, std::uint64_t{400000000000}, kForever}) {
        limit(node().pod, 0, rate);
        for (const std::uint64_t time :
             {std::uint64_t{0}, std::uint64_t{1}, monotonic_ns() - 864000000 * kMs, kForever / 2, kForever}) {
            limit_state wild{};
            wild.free_at_ns = wild.small_free_at_ns = wild.window_since_ns = time;
            wild.window_charged_ns = wild.remainder = wild.fair_bytes_per_s = time;
            wild.flows = wild.weight = wild.slot = static_cast<std::uint32_t>(time);
            wild.gain = wild.other_bytes_per_s = wild.window_other_ns = time;
            require(node().tables().limit_states.update({node().pod.ifindex, LIMIT_EGRESS}, wild));
            SCOPED_TRACE(std::to_string(rate) + " " + std::to_string(time));
            expect_ends_in(node(), node().run(large()), REASON_SENT_DIRECT);
            const limit_state after = state(node().pod);
            const std::uint64_t whole = std::min<std::uint64_t>(rate, 1000000000000000) / 8;
            EXPECT_GE(after.fair_bytes_per_s, 1U);
            EXPECT_LE(after.fair_bytes_per_s, whole + whole / 4 + 1);
            EXPECT_LE(after.window_since_ns, monotonic_ns());
        }
    }
}

TEST_F(Limit, ChargesTheTimeAFrameTakesAtAnyRate) {
    const std::vector<std::pair<std::uint64_t, int>> all{
        {100000, 2}, {1000000, 4}, {kRate, 40}, {10000000000U, 100}, {400000000000, 100}};
    for (const auto &[rate, count] : all) {
        limit(node().pod, 0, rate);
        fill(node().pod, LIMIT_EGRESS, 60 * kMs);
        const std::uint64_t before = state(node().pod).free_at_ns;
        for (int i = 0; i < count; ++i)
            node().run_uncounted(large());
        const std::uint64_t bits = static_cast<std::uint64_t>(count) * large().size() * 8;
        EXPECT_EQ(state(node().pod).packets, static_cast<std::uint64_t>(count)) << rate;
        // Whole ns: what is left of a division is in the next one.
        EXPECT_EQ(state(node().pod).free_at_ns - before, bits * 1000000000 / rate) << rate;
    }
}

TEST_F(Limit, ManyCpusLoseNoPacket) {
    limit(node().pod, 0, 400000000000);
    send_by_all_cpus();
    EXPECT_EQ(state(node().pod).packets, all_);
    EXPECT_EQ(state(node().pod).bytes, all_ * large().size());
}

// Packets beyond the limit are counted without the lock.
TEST_F(Limit, ManyCpusCountEachDroppedPacket) {
    limit(node().pod, 0, 100000); // however long an emulated machine takes for them
    fill(node().pod, LIMIT_EGRESS, 600 * kMs);
    send_by_all_cpus();
    const limit_state after = state(node().pod);
    EXPECT_GT(after.dropped, all_ / 2);
    EXPECT_EQ(after.packets + after.dropped, all_);
    EXPECT_EQ(after.bytes + after.dropped_bytes, all_ * large().size());
}

// The bucket is never empty, so that its clock and what passed are the same to the nanosecond. The burst is so long
// that a busy machine does not empty it.
TEST_F(Limit, ManyCpusGetTheRateTogether) {
    constexpr std::uint64_t burst = 900 * kMs;
    limit(node().pod, 0, kRate, kRate / 10 * 9);
    fill(node().pod, LIMIT_EGRESS, burst);
    const std::uint64_t before = state(node().pod).free_at_ns, end = monotonic_ns() + 1000 * kMs;
    const Bytes elsewhere = from_pod() / Ipv4{pod4(), ip("203.0.113.9")} / Udp{} / bytes(1000); // stays as it is
    std::atomic<std::uint64_t> refused = 0; // when the bucket was known to be full last
    by_all_cpus([&] {
        for (std::uint64_t now = monotonic_ns(); now < end; now = monotonic_ns())
            if (node().run_uncounted(elsewhere, {.repeat = 50}).verdict == kDropped)
                refused = std::max<std::uint64_t>(refused, now);
    });
    const limit_state after = state(node().pod);
    EXPECT_EQ(after.free_at_ns - before, after.bytes * 8 * 1000000000 / kRate);
    EXPECT_GT(after.free_at_ns, refused + burst);
    EXPECT_LT(after.free_at_ns, monotonic_ns() + burst + cpus() * kMs) << "a packet of each beyond the burst";
    EXPECT_GT(after.dropped, after.packets);
}

TEST_F(Limit, ChangesWithTheNextPacket) {
    limit(node().pod, 0, kRate);
    expect_behind(large(), REASON_DROP_EGRESS_LIMIT, 200 * kMs);
    const LimitTables tables = require(LimitTables::open(node().root()));
    const endpoint_key key = require(make_endpoint_key("pod", "eth0"));
    require(set_limits(tables, key, {}));
    expect_ends_in(node(), node().run(large()), REASON_SENT_DIRECT);
    require(set_limits(tables, key, {0, 0, kRate, kAuto}));
    expect_ends_in(node(), node().run(large()), REASON_DROP_EGRESS_LIMIT);
}

} // namespace
} // namespace podlane::packet
