// SPDX-License-Identifier: MIT
// What the maps cost: the formula that docs/PERFORMANCE.md is computed by, beside the kernel's own accounting.
#include "loader/map_plan.hpp"
#include "tests/packet/run.hpp"

#include <fstream>

namespace podlane::packet {
namespace {

using MapMemory = PacketTest;

std::uint64_t counted_by_the_kernel(const Fd &map) {
    std::ifstream file("/proc/self/fdinfo/" + std::to_string(map.get()));
    std::uint64_t bytes = 0;
    for (std::string word; file >> word;)
        if (word == "memlock:")
            file >> bytes;
    return bytes;
}

// Structs of the kernel differ by a few bytes an entry from version to version.
TEST_F(MapMemory, IsWhatTheKernelCounts) {
    const Fd endpoints(bpf_obj_get(pin_path(node().root(), PODLANE_MAP_ENDPOINTS).c_str()));
    if (counted_by_the_kernel(endpoints) > 16384 * sizeof(endpoint) / 2)
        GTEST_SKIP() << "this kernel counts entries that there could be (before Linux 6.4)";
    for (const PlannedMap &planned : require(planned_maps({}))) {
        const Fd map(bpf_obj_get(pin_path(node().root(), planned.name).c_str()));
        if (!map)
            continue; // scratch has no pin
        const MapFacts facts = require(map_facts(map.get()));
        const bool is_counted = facts.type != BPF_MAP_TYPE_RINGBUF && facts.type != BPF_MAP_TYPE_ARRAY;
        const std::uint64_t entries = is_counted ? require(detail::keys(map.get(), planned.name)).size() : 0;
        const auto kernel = static_cast<double>(counted_by_the_kernel(map));
        EXPECT_NEAR(static_cast<double>(map_bytes(facts, entries, require(possible_cpus()))), kernel,
                    kernel / 10 + 16384)
            << planned.name << " with " << entries << " entries";
    }
}

// All 256 CPUs have counters of each of the 110 pods that Kubernetes allows on a node.
TEST(MapMemoryOfALargeNode, StaysBelow64MiB) {
    constexpr unsigned kCpus = 256;
    constexpr std::uint64_t kPods = 110, kMost = 4 * kPods; // entries of a pod in any map
    std::uint64_t bytes = 0;
    for (const PlannedMap &map : require(planned_maps({})))
        bytes += map_bytes(map.facts, map.name == PODLANE_MAP_COUNTERS ? kPods + 2 : kMost, kCpus);
    EXPECT_GT(bytes, kPods * kCpus * sizeof(counters));
    EXPECT_LT(bytes, 64ULL << 20U);
}

} // namespace
} // namespace podlane::packet
