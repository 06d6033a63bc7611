// SPDX-License-Identifier: MIT
// The two ends of a measurement: each runs in a process and a network namespace of its own, until it is stopped.
#pragma once

#include "tests/bench/ends.hpp"

#include <atomic>
#include <cstdint>
#include <optional>

namespace podlane::bench {

enum class Mode { tcp_stream, tcp_rr, tcp_crr, udp_pps, udp_flows };

enum class Phase : uint32_t { warm_up, measure, stop };

struct Settings : Ends {
    Mode mode = Mode::tcp_stream;
    unsigned flows = 1;
    uint64_t rate = 100'000; // of udp_flows
    double seconds = 3;
    int server_cpu = 1;
    int client_cpu = 0;
    std::optional<Ends> service{}; // whose address the client connects to, instead of the server's
};

constexpr size_t kMaxLatencies = size_t{1} << 21;

// Lives in memory shared by the three processes; each counter on a cache line of its own.
struct Shared {
    alignas(64) std::atomic<Phase> phase{Phase::warm_up};
    std::atomic<uint16_t> port{0};                     // host byte order; set once the server listens
    alignas(64) std::atomic<uint64_t> received{0};     // tcp_stream: bytes, UDP: packets; by the server
    alignas(64) std::atomic<uint64_t> transactions{0}; // tcp_rr, tcp_crr: by the client
    alignas(64) std::atomic<uint64_t> sent{0};         // UDP: packets; by the client
    alignas(64) std::atomic<size_t> latency_count{0};
    uint32_t latencies_ns[kMaxLatencies]{}; // of the phase `measure`
};

// Both run in a child: they enter the namespace, write one byte to `ready_fd`, work, and end the process with 0 or 1.
[[noreturn]] void run_server(const Settings &settings, Shared &shared, int ready_fd);
[[noreturn]] void run_client(const Settings &settings, Shared &shared, int ready_fd);

} // namespace podlane::bench
