// SPDX-License-Identifier: MIT
// bench_packet: nanoseconds a packet costs in the shipped programs, by BPF_PROG_TEST_RUN, with few and many endpoints.
#include "loader/object.hpp"
#include "maps/clock.hpp"
#include "maps/tables.hpp"
#include "tests/bench/options.hpp"
#include "tests/harness/frame.hpp"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace podlane::bench {
namespace {

constexpr char kHelp[] = R"(bench_packet: nanoseconds per packet in the programs, one JSON object a line

usage: bench_packet [--endpoints N[,N...]] [--packet NAME] [--rounds N] [--isolated 1] [--confirmed 1]
                    [--limit BITS] [--cpus N]

  --endpoints N,...  how many endpoints the maps hold (10,10000)
  --packet NAME      this kind alone (all)
  --rounds N         runs of each kind of packet (2000)
  --isolated 1       all endpoints are isolated, and in one group (0)
  --confirmed 1      flows between pods are those that conntrack has confirmed, not those of firstPacket: direct (0);
                     then translated ones are measured, too
  --limit BITS       what the sender may send a second; packets beyond it are dropped and measured as well (no limit)
  --cpus N           so many send at once, each from its CPU, through the one limit (1)

"hot" is the same packet 250 times in a row, "spread" each packet to another endpoint and alone: caches are
cold, and the test run's own 50 ns or more are in it. Both are medians. "least" is the
fastest of the first, for a machine that is not quiet. Namespaces and pins end with the process.
)";

constexpr char kRoot[] = "/sys/fs/bpf/podlane-bench";
constexpr std::uint32_t kSender = 1; // the loopback of a namespace of our own: what a test run uses as interface
constexpr std::uint32_t kFirstReceiver = 1'000'000;
constexpr std::uint64_t kAutoBurst = 0x7fffffff;
constexpr int kHotRepeat = 250; // the TTL starts at 255 and falls with each
constexpr int kMemoryTries = 100'000;
constexpr std::uint16_t kPort = 8080, kOtherPort = 8081;
constexpr std::size_t kFrameBytes = 128;
// The same at both ends, so that a packet that was forwarded is once more a packet of the sender.
constexpr Mac kSenderMac{0x02, 0, 0, 0, 0, 1};
constexpr Mac kReceiverMac{0x02, 0, 0, 0, 0, 2};

// A sort of packet, and the reason that each of it must end in.
struct Case {
    const char *name;
    const char *program;
    int family;
    std::uint8_t protocol;
    reason expected;
    std::uint32_t came_by = 0; // to the host stack; 0: the node itself sends it
    bool translated = false;
};

constexpr std::array<Case, 11> kCases{{
    {"tcp4 direct", PODLANE_PROGRAM_FROM_POD, 4, IPPROTO_TCP, REASON_SENT_DIRECT},
    {"tcp6 direct", PODLANE_PROGRAM_FROM_POD, 6, IPPROTO_TCP, REASON_SENT_DIRECT},
    {"udp4 direct", PODLANE_PROGRAM_FROM_POD, 4, IPPROTO_UDP, REASON_SENT_DIRECT},
    {"tcp4 translated", PODLANE_PROGRAM_FROM_POD, 4, IPPROTO_TCP, REASON_SENT_DIRECT, 0, true},
    {"tcp6 translated", PODLANE_PROGRAM_FROM_POD, 6, IPPROTO_TCP, REASON_SENT_DIRECT, 0, true},
    {"tcp4 to elsewhere", PODLANE_PROGRAM_FROM_POD, 4, IPPROTO_TCP, REASON_HOST_NOT_LOCAL},
    {"tcp4 spoofed", PODLANE_PROGRAM_FROM_POD, 4, IPPROTO_TCP, REASON_DROP_SOURCE_ADDRESS},
    {"tcp4 from the host stack", PODLANE_PROGRAM_TO_POD, 4, IPPROTO_TCP, REASON_RECEIVED_HOST},
    {"tcp6 from the host stack", PODLANE_PROGRAM_TO_POD, 6, IPPROTO_TCP, REASON_RECEIVED_HOST},
    {"tcp4 of a pod by the host stack", PODLANE_PROGRAM_TO_POD, 4, IPPROTO_TCP, REASON_RECEIVED_HOST, kFirstReceiver},
    {"tcp6 of a pod by the host stack", PODLANE_PROGRAM_TO_POD, 6, IPPROTO_TCP, REASON_RECEIVED_HOST, kFirstReceiver},
}};

ip_addr pod_address(int family, std::uint32_t index) {
    if (family == 4)
        return ipv4_from_host_order((198U << 24U | 18U << 16U) + index); // 198.18.0.0/15
    return {{htonl(0x20010db8), 0, 0, htonl(index)}};
}

ip_addr source_of(const Case &kind) {
    const bool foreign = kind.expected == REASON_DROP_SOURCE_ADDRESS;
    return pod_address(kind.family, foreign ? 99'999 : 1);
}

ip_addr destination_of(const Case &kind, std::uint32_t receiver) {
    return pod_address(kind.family, kind.expected == REASON_HOST_NOT_LOCAL ? 88'888 + receiver % 1000 : 2 + receiver);
}

struct Settings {
    std::vector<std::uint32_t> sizes{10, 10'000};
    int rounds = 2000, isolated = 0, confirmed = 0, cpus = 1;
    double limit = 0;
    std::string packet;
};

// The maps of a node with `count` receivers besides the sender.
struct Node {
    Interfaces interfaces;
    Addresses addresses;
    Counters counters;
    Isolations isolations;
    Flows flows;
    bool confirmed;
    std::uint32_t more_flags; // enum interface_flags

    static Result<Node> open(const Settings &settings) {
        // Without a mark a packet can be handed over to another interface again and again.
        TRY(ensure_loaded(kRoot, LoadSettings{.endpoints = 16384, .paths = 131072, .mark = 0, .confirm_ms = 60'000}));
        return Node{TRY(open_interfaces(kRoot, Access::read_write)),
                    TRY(open_addresses(kRoot, Access::read_write)),
                    TRY(open_counters(kRoot, Access::read_write)),
                    TRY(open_isolations(kRoot, Access::read_write)),
                    TRY(open_flows(kRoot, Access::read_write)),
                    settings.confirmed != 0,
                    settings.isolated != 0 ? std::uint32_t{INTERFACE_ISOLATED_GROUP} : 0U};
    }

    [[nodiscard]] Result<void> put_endpoint(std::uint32_t ifindex, std::uint32_t index, const Mac &mac) const {
        const std::uint32_t flags = INTERFACE_FAST_LOCAL | (confirmed ? 0U : std::uint32_t{INTERFACE_FIRST_DIRECT}) |
                                    INTERFACE_ANTI_SPOOF | INTERFACE_GATEWAY | more_flags;
        interface own {};
        own.flags = flags;
        own.ipv4 = pod_address(4, index);
        own.ipv6 = pod_address(6, index);
        std::copy(mac.begin(), mac.end(), own.pod_mac);
        address owned{};
        owned.ifindex = ifindex;
        owned.flags = flags;
        owned.mtu = 1500;
        std::copy(kReceiverMac.begin(), kReceiverMac.end(), owned.pod_mac);
        std::copy(kSenderMac.begin(), kSenderMac.end(), owned.host_mac);
        TRY(put_counters(ifindex));
        if (more_flags != 0)
            TRY(isolations.update(
                ifindex, {.since_ns = 0, .flags = ISOLATION_HOST, .reserved = 0, .groups = {7}, .accepted = {7}}));
        TRY(interfaces.update(ifindex, own));
        TRY(addresses.update({0, own.ipv4}, owned));
        return addresses.update({0, own.ipv6}, owned);
    }

    // The addresses that the sender may use.
    [[nodiscard]] Result<void> put_limit(std::uint64_t rate) const {
        TRY(TRY(open_bandwidths(kRoot, Access::read_write)).update(kSender, {0, 0, rate, kAutoBurst}));
        TRY(TRY(open_limit_states(kRoot, Access::read_write)).update({kSender, LIMIT_EGRESS}, {}));
        interface own = *TRY(interfaces.find(kSender));
        own.flags |= INTERFACE_LIMIT_EGRESS;
        return interfaces.update(kSender, own);
    }

    // The kernel takes per-CPU memory from a reserve that a worker refills: thousands at once find it empty.
    [[nodiscard]] Result<void> put_counters(std::uint32_t ifindex) const {
        for (int tries = 0;; ++tries) {
            auto done = counters.update(ifindex, counter_shares{});
            if (done || done.error().system_errno != ENOMEM || tries == kMemoryTries)
                return done;
            sched_yield();
        }
    }
};

// A packet of an established flow; its transport checksum is never looked at.
frames::Bytes make_frame(const Case &kind, std::uint32_t receiver) {
    const bool outward = std::strcmp(kind.program, PODLANE_PROGRAM_FROM_POD) == 0;
    const ip_addr pod = source_of(kind), peer = destination_of(kind, receiver);
    const ip_addr &from = outward ? pod : peer, &to = outward ? peer : pod;
    // The loopback's own MAC: frames for another MAC take the slow path.
    const frames::Ethernet link{.destination = {}, .source = kSenderMac};
    const frames::Layer flow =
        kind.protocol == IPPROTO_TCP
            ? frames::Tcp{.source = kPort, .destination = kPort, .flags = frames::kAck}.layer()
            : frames::Udp{.source = kPort, .destination = kPort, .protocol = kind.protocol}.layer();
    const frames::Frame headers =
        kind.family == 4 ? link / frames::Ipv4{.source = from, .destination = to, .ttl = 255, .fragment = 0} / flow
                         : link / frames::Ipv6{.source = from, .destination = to, .hop_limit = 255} / flow;
    const std::size_t bytes = frames::Bytes(headers).size();
    return headers / frames::bytes(kFrameBytes - bytes);
}

Result<std::uint32_t> test_run(int program, const frames::Bytes &frame, std::uint32_t came_by, int repeat) {
    __sk_buff context{};
    context.ingress_ifindex = came_by;
    bpf_test_run_opts options{};
    options.sz = sizeof options;
    options.ctx_in = &context;
    options.ctx_size_in = sizeof context;
    options.data_in = frame.data();
    options.data_size_in = frame.size();
    options.repeat = repeat;
    if (const int error = bpf_prog_test_run_opts(program, &options); error != 0)
        return system_error(ErrorCode::bpf, "running a program", -error);
    return options.duration;
}

double median(std::vector<std::uint32_t> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

Result<std::uint64_t> counted(const Node &node, const Case &kind) {
    const auto sums = TRY(sum_of(node.counters, kSender));
    return sums.by_reason[kind.expected].packets + sums.by_reason[REASON_DROP_EGRESS_LIMIT].packets;
}

// As if conntrack had just confirmed it, or, with firstPacket: direct, had just been found not to know it: the
// connection to this port, which is that of the receiver or translated to it.
Result<void> put_flow(const Node &node, const Case &kind, std::uint32_t receiver, std::uint16_t port,
                      std::uint16_t translated) {
    const flow_key key{.source = source_of(kind),
                       .destination = destination_of(kind, receiver),
                       .source_port = htons(kPort),
                       .destination_port = htons(port),
                       .protocol = kind.protocol,
                       .reserved = {}};
    const std::uint64_t now = monotonic_ns();
    return node.flows.update(key, {.confirmed_ns = now & ~FLOW_LOST,
                                   .since_ns = now,
                                   .source = key.source,
                                   .destination = key.destination,
                                   .source_port = key.source_port,
                                   .destination_port = htons(translated),
                                   .flags = (port == translated ? 0U : std::uint32_t{FLOW_TRANSLATED}) |
                                            (node.confirmed ? 0U : std::uint32_t{FLOW_UNTRACKED}),
                                   .ifindex = kSender,
                                   .check = flow_check(&key),
                                   .window = {}});
}

// A translated packet is translated back by the next run.
Result<void> put_flows(const Node &node, const Case &kind, std::uint32_t receiver) {
    const std::uint16_t other = kind.translated ? kOtherPort : kPort;
    TRY(put_flow(node, kind, receiver, kPort, other));
    return put_flow(node, kind, receiver, other, kPort);
}

struct Durations {
    std::vector<std::uint32_t> hot, spread;
    std::string error;
};

Durations run_all(const Fd &program, const Case &kind, std::uint32_t receivers, unsigned rounds) {
    Durations found;
    for (unsigned i = 0; i < rounds; ++i) {
        const auto hot = test_run(program.get(), make_frame(kind, i % receivers), kind.came_by, kHotRepeat);
        // A stride that is no divisor of a round number, so that neighbours in the map are not visited in a row.
        const auto spread = test_run(program.get(), make_frame(kind, i * 7919 % receivers), kind.came_by, 1);
        if (!hot || !spread) {
            found.error = (hot ? spread : hot).error().message;
            return found;
        }
        found.hot.push_back(*hot);
        found.spread.push_back(*spread);
    }
    return found;
}

// The measurements of the CPUs at the same time.
Durations run_on_cpus(const Fd &program, const Case &kind, std::uint32_t receivers, const Settings &settings) {
    std::vector<Durations> found(static_cast<std::size_t>(settings.cpus));
    std::vector<std::thread> threads;
    for (int cpu = 0; cpu < settings.cpus; ++cpu)
        threads.emplace_back([&, cpu] {
            cpu_set_t only;
            CPU_ZERO(&only);
            CPU_SET(cpu, &only);
            sched_setaffinity(0, sizeof only, &only);
            found[static_cast<std::size_t>(cpu)] =
                run_all(program, kind, receivers, static_cast<unsigned>(settings.rounds));
        });
    for (std::thread &thread : threads)
        thread.join();
    for (std::size_t i = 1; i < found.size(); ++i) {
        found[0].hot.insert(found[0].hot.end(), found[i].hot.begin(), found[i].hot.end());
        found[0].spread.insert(found[0].spread.end(), found[i].spread.begin(), found[i].spread.end());
        found[0].error += found[i].error;
    }
    return found[0];
}

Result<void> measure(const Node &node, const Case &kind, std::uint32_t endpoints, const Settings &settings) {
    const Fd program = TRY(open_program(kRoot, kind.program));
    const std::uint32_t receivers = endpoints - 1;
    const std::uint64_t before = TRY(counted(node, kind));
    if (kind.expected == REASON_SENT_DIRECT)
        for (std::uint32_t i = 0; i < receivers; ++i)
            TRY(put_flows(node, kind, i));
    const Durations found = run_on_cpus(program, kind, receivers, settings);
    if (!found.error.empty())
        return Error{ErrorCode::bpf, found.error};
    const std::uint64_t ended = TRY(counted(node, kind)) - before;
    if (ended !=
        static_cast<std::uint64_t>(settings.rounds) * static_cast<std::uint64_t>(settings.cpus) * (kHotRepeat + 1))
        return Error{ErrorCode::internal, std::string(kind.name) + ": only " + std::to_string(ended) +
                                              " packets ended in " + std::string(kReasons[kind.expected].name)};
    std::printf("{\"packet\": \"%s\", \"endpoints\": %u, \"hot_ns\": %.0f, \"spread_ns\": %.0f, \"least_ns\": %u}\n",
                kind.name, endpoints, median(found.hot), median(found.spread), *std::ranges::min_element(found.hot));
    return {};
}

Result<void> run(const Settings &settings) {
    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("bpf", "/sys/fs/bpf", "bpf", 0, nullptr) != 0)
        return system_error(ErrorCode::io_failure, "entering namespaces with a bpffs of their own", errno);
    const Node node = TRY(Node::open(settings));
    TRY(node.put_endpoint(kSender, 1, kSenderMac));
    if (settings.limit > 0)
        TRY(node.put_limit(static_cast<std::uint64_t>(settings.limit)));
    std::uint32_t present = 0;
    for (const std::uint32_t size : settings.sizes) { // ascending: endpoints are only added
        for (; present + 1 < size; ++present)
            TRY(node.put_endpoint(kFirstReceiver + present, 2 + present, kReceiverMac));
        for (const Case &kind : kCases)
            if ((settings.packet.empty() || settings.packet == kind.name) &&
                (settings.confirmed != 0 || !kind.translated))
                TRY(measure(node, kind, size, settings));
    }
    return {};
}

// Ascending numbers from 2 to 16,000; empty if the text is something else.
std::vector<std::uint32_t> parse_sizes(const char *text) {
    std::vector<std::uint32_t> sizes;
    for (char *end = nullptr;; text = end + 1) {
        const unsigned long size = std::strtoul(text, &end, 10);
        if (size < 2 || size > 16'000 || (*end != ',' && *end != '\0'))
            return {};
        sizes.push_back(static_cast<std::uint32_t>(size));
        if (*end == '\0')
            break;
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes;
}

int main_with_result(int argc, char **argv) {
    Settings settings;
    const auto code = read_options(argc, argv, kHelp,
                                   {{"endpoints",
                                     [&](const char *value) {
                                         settings.sizes = parse_sizes(value);
                                         return !settings.sizes.empty();
                                     }},
                                    {"packet",
                                     [&](const char *value) {
                                         settings.packet = value;
                                         return std::ranges::any_of(
                                             kCases, [&](const Case &kind) { return settings.packet == kind.name; });
                                     }},
                                    {"rounds", into(settings.rounds, 1)},
                                    {"isolated", into(settings.isolated, 0)},
                                    {"confirmed", into(settings.confirmed, 0)},
                                    {"limit", into(settings.limit)},
                                    {"cpus", into(settings.cpus, 1)}});
    if (code)
        return *code;
    if (const auto done = run(settings); !done) {
        std::fprintf(stderr, "bench_packet: %s\n", done.error().message.c_str());
        return 1;
    }
    return 0;
}

} // namespace
} // namespace podlane::bench

int main(int argc, char **argv) { return podlane::bench::main_with_result(argc, argv); }
