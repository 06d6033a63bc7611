// SPDX-License-Identifier: MIT
// bench_charge: how long a packet holds the lock of its limit, alone and while other CPUs want it.
#include "maps/abi/fair_share.h"
#include "maps/clock.hpp"
#include "tests/bench/options.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace podlane::bench {
namespace {

constexpr char kHelp[] = R"(bench_charge: what the programs do under the lock of a limit, an optimised build given

usage: bench_charge [--cpus N] [--bytes N] [--limit BITS]

  --cpus N      1 to N CPUs charge the same limit (2)
  --bytes N     of a packet; those up to 256 are charged to a second bucket as well (128)
  --limit BITS  a second (100000000000)

"ns" is the time between two packets of all CPUs together: of one CPU the time under the lock, with the lock's own
operations. The fastest tenth of 101 turns of 20,000 packets.
)";

constexpr int kTurns = 101, kPackets = 20'000;

struct Settings {
    unsigned cpus = 2;
    std::uint64_t bytes = 128;
    double limit = 1e11;
};

struct Shared {
    limit_state state{};
    struct limit limit {};
    std::atomic<std::uint32_t> next{0}, served{0}; // a lock in the order of arrival, as the kernel's is
    std::atomic<unsigned> ready{0};
};

void charge_packets(const Settings &settings, Shared &shared, unsigned cpu, int count) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    sched_setaffinity(0, sizeof only, &only);
    for (shared.ready -= 1; shared.ready != 0;)
        ;
    std::uint64_t now = monotonic_ns();
    for (int i = 0; i < count; ++i, now += 100) {
        const std::uint32_t own = shared.next++;
        while (shared.served.load(std::memory_order_acquire) != own)
            ;
        charge(&shared.state, &shared.limit, settings.bytes, now, false, true);
        if (settings.bytes <= SMALL_FRAME)
            charge_small(&shared.state, &shared.limit, settings.bytes, now);
        shared.served.store(own + 1, std::memory_order_release);
    }
}

double ns_per_packet(const Settings &settings, unsigned cpus) {
    std::vector<std::uint64_t> found;
    const int each = kPackets / static_cast<int>(cpus);
    for (int turn = 0; turn < kTurns; ++turn) {
        Shared shared;
        make_limit(&shared.limit, static_cast<std::uint64_t>(settings.limit), AUTO_BURST_BITS);
        shared.ready = cpus + 1;
        std::vector<std::thread> threads;
        for (unsigned cpu = 0; cpu < cpus; ++cpu)
            threads.emplace_back(charge_packets, std::cref(settings), std::ref(shared), cpu, each);
        while (shared.ready != 1)
            std::this_thread::yield();
        const std::uint64_t since = monotonic_ns();
        shared.ready = 0;
        for (std::thread &thread : threads)
            thread.join();
        found.push_back(monotonic_ns() - since);
    }
    std::ranges::sort(found);
    return static_cast<double>(found[kTurns / 10]) / (each * static_cast<int>(cpus));
}

int run(int argc, char **argv) {
    Settings settings;
    if (const auto code = read_options(argc, argv, kHelp,
                                       {{"cpus", into(settings.cpus, 1, std::thread::hardware_concurrency())},
                                        {"bytes", into(settings.bytes, 1, 65536)},
                                        {"limit", into(settings.limit, 1)}}))
        return *code;
    for (unsigned cpus = 1; cpus <= settings.cpus; ++cpus)
        std::printf("{\"cpus\": %u, \"ns\": %.1f}\n", cpus, ns_per_packet(settings, cpus));
    return 0;
}

} // namespace
} // namespace podlane::bench

int main(int argc, char **argv) { return podlane::bench::run(argc, argv); }
