// SPDX-License-Identifier: MIT
// The copy of a program that is only asked: it decides as the one on the hook does, and changes nothing.
#include "loader/trace.hpp"
#include "tests/packet/cases.hpp"
#include "tests/packet/neighbour_cases.hpp"

namespace podlane::packet {
namespace {

class Trace : public PacketTest {
  protected:
    // The first counted reason, which is the packet's own.
    static reason counted(const TracedRun &run) {
        for (const TracedStep &one : run.steps)
            if (one.head.kind == TRACE_COUNT)
                return static_cast<reason>(one.head.answer);
        return REASON_NONE;
    }
    [[nodiscard]] std::uint64_t all_counts() {
        std::uint64_t sum = 0;
        for (const std::uint32_t ifindex : require(node().tables().counters.keys()))
            for (const count &one : require(sum_of(node().tables().counters, ifindex)).by_reason)
                sum += one.packets;
        return sum;
    }
};

TEST_F(Trace, DecidesAsTheProgramOnTheHook) {
    const Tracer tracer = require(Tracer::load(node().root(), PODLANE_PROGRAM_FROM_POD));
    std::size_t compared = 0;
    for (const auto &cases : {protocol_cases(), destination_cases(), source_cases(), detour_cases(), limit_cases(),
                              malformed_cases(), arp_cases(), nd_cases()})
        for (const Case &given : cases) {
            if (given.run.gso_size != 0 || given.run.mark != 0 ||
                std::string_view(given.run.program) != PODLANE_PROGRAM_FROM_POD)
                continue;
            SCOPED_TRACE(given.name);
            node().forget_paths();
            const std::uint64_t before = all_counts();
            const std::size_t paths = require(node().paths().entries()).size();
            const std::uint32_t ifindex = given.run.ifindex == 0 ? node().pod.ifindex : given.run.ifindex;
            const TracedRun asked = require(tracer.run(ifindex, given.frame));
            EXPECT_EQ(all_counts(), before);
            EXPECT_EQ(require(node().paths().entries()).size(), paths);
            const Outcome real = node().run(given.frame, given.run);
            EXPECT_EQ(kReasons[counted(asked)].name, kReasons[given.why].name);
            EXPECT_EQ(asked.verdict, real.verdict);
            EXPECT_EQ(asked.frame, real.frame);
            ++compared;
        }
    EXPECT_GT(compared, 100U);
}

TEST_F(Trace, ReportsEachStep) {
    const Tracer tracer = require(Tracer::load(node().root(), PODLANE_PROGRAM_FROM_POD));
    const TracedRun run = require(tracer.run(node().pod.ifindex, from_pod() / to_peer4() / Tcp{}));
    std::vector<std::pair<std::uint32_t, std::uint32_t>> steps;
    for (const TracedStep &one : run.steps)
        steps.emplace_back(one.head.kind, one.head.map);
    const std::vector<std::pair<std::uint32_t, std::uint32_t>> expected = {
        {TRACE_LOOKUP, STEP_MAP_INTERFACES}, {TRACE_LOOKUP, STEP_MAP_ADDRESSES}, {TRACE_LOOKUP, STEP_MAP_ADDRESSES},
        {TRACE_LOOKUP, STEP_MAP_FLOWS},      {TRACE_WRITE, STEP_MAP_FLOWS},      {TRACE_LOOKUP, STEP_MAP_ADDRESSES},
        {TRACE_ROUTE, STEP_MAP_OTHER},       {TRACE_COUNT, STEP_MAP_OTHER},      {TRACE_COUNT, STEP_MAP_OTHER}};
    EXPECT_EQ(steps, expected);
    interface entry {};
    std::memcpy(&entry, run.steps.front().value.data(), sizeof entry);
    EXPECT_EQ(entry.ipv4, pod4());
}

TEST_F(Trace, LeavesWhatTheHostStackHasForwardedAsItWas) {
    const auto notes =
        require(Map<flow_key, forwarded>::open(node().root() + "/live/" PODLANE_MAP_FORWARDED, Access::read_write));
    const Bytes frame = Ethernet{kPodMac, kHostMac} / Ipv4{peer4(), pod4()} / Udp{53, 40000};
    const std::uint32_t came_by = node().peer.ifindex;
    flow_key key{};
    key.source = peer4();
    key.destination = pod4();
    key.source_port = htons(53);
    key.destination_port = htons(40000);
    key.protocol = IPPROTO_UDP;
    forwarded note{};
    note.at_ns = 7;
    note.check = flow_check(&key);
    require(notes.update(key, note));
    const Tracer tracer = require(Tracer::load(node().root(), PODLANE_PROGRAM_TO_POD));
    const TracedRun run = require(tracer.run(node().pod.ifindex, frame, came_by));
    EXPECT_TRUE(std::ranges::any_of(run.steps, [](const TracedStep &one) { return one.head.kind == TRACE_WRITE; }));
    EXPECT_EQ(require(notes.entries()).size(), 1U);
    EXPECT_EQ(require(notes.entries()).front().second.at_ns, 7U);
}

} // namespace
} // namespace podlane::packet
