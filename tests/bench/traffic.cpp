// SPDX-License-Identifier: MIT
// bench_traffic: measures one kind of traffic between two network namespaces and prints one line of JSON.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "tests/bench/options.hpp"
#include "tests/bench/traffic_role.hpp"
#include "maps/clock.hpp"

extern "C" { // glibc 2.36 forgot it in this header
#include <sys/pidfd.h>
}

namespace podlane::bench {
namespace {

constexpr double kWarmUpSeconds = 0.3;
constexpr double kPatienceSeconds = 5; // for a child to get ready, and to end once signalled

constexpr char kHelp[] =
    R"(bench_traffic: one measurement between two network namespaces, printed as one line of JSON

usage: bench_traffic --mode MODE --server-netns NS --client-netns NS --address ADDRESS [options]

  --mode MODE          tcp_stream  bytes per second, CPU seconds per GB
                       tcp_rr      one byte there and back: transactions per second, latency
                       tcp_crr     connect, one byte there and back, close by reset
                       udp_pps     18-byte datagrams delivered per second
                       udp_flows   the same, each between other ports, --rate a second
  --server-netns NS    name below /run/netns, or a path
  --client-netns NS
  --address ADDRESS    the server's, IPv4 or IPv6
  --service ADDRESS    the client connects to this address and the server's port; a node translates it to the server's
  --flows N            1 to 64 (1): of tcp_stream; of tcp_rr all but one are idle until the end, and must answer then
  --rate N             of udp_flows, datagrams a second (100000)
  --seconds S          to measure, 0.1 to 600, after 0.3 s of warm-up (3)
  --server-cpu N       CPU to run the server on, -1 for any (1)
  --client-cpu N       (0)

TCP uses cubic. CPU time is the machine's: what was not idle in /proc/stat, softirqs included.
"own_cpu_s" is what the two processes were charged with: "cpu_s" is much more where others use the machine.
)";

struct Child {
    pid_t pid = -1;
    int pidfd = -1;
    int ready_fd = -1;
};

// The resources that the machine and the two processes had used at one moment.
struct Snapshot {
    double wall_s = 0;
    double idle_s = 0; // of all CPUs, time stolen by a hypervisor included
    double processes_s = 0;
    uint64_t received = 0;
    uint64_t transactions = 0;
    uint64_t sent = 0;
};

double seconds_of(clockid_t clock) { return static_cast<double>(podlane::clock_ns(clock)) * 1e-9; }

double process_seconds(const Child &child) {
    clockid_t clock{};
    return clock_getcpuclockid(child.pid, &clock) == 0 ? seconds_of(clock) : 0;
}

double idle_seconds() {
    std::ifstream stat("/proc/stat");
    std::string cpu;
    std::array<double, 8> ticks{}; // user nice system idle iowait irq softirq steal
    stat >> cpu;
    for (double &tick : ticks)
        stat >> tick;
    return (ticks[3] + ticks[4] + ticks[7]) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

Snapshot take_snapshot(const Shared &shared, const Child &server, const Child &client) {
    Snapshot snapshot;
    snapshot.wall_s = seconds_of(CLOCK_MONOTONIC);
    snapshot.received = shared.received;
    snapshot.transactions = shared.transactions;
    snapshot.sent = shared.sent;
    snapshot.idle_s = idle_seconds();
    snapshot.processes_s = process_seconds(server) + process_seconds(client);
    return snapshot;
}

std::optional<Child> start(const std::function<void(int)> &role) {
    std::array<int, 2> pipe_fds{};
    if (pipe2(pipe_fds.data(), O_CLOEXEC) != 0)
        return {};
    const pid_t pid = fork();
    if (pid == 0) {
        close(pipe_fds[0]);
        role(pipe_fds[1]);
    }
    close(pipe_fds[1]);
    if (pid < 0)
        return {};
    return Child{.pid = pid, .pidfd = pidfd_open(pid, 0), .ready_fd = pipe_fds[0]};
}

bool wait_ready(const Child &child) {
    pollfd waiting{.fd = child.ready_fd, .events = POLLIN, .revents = 0};
    char byte;
    return poll(&waiting, 1, static_cast<int>(kPatienceSeconds * 1000)) == 1 && read(child.ready_fd, &byte, 1) == 1;
}

// True when both children are still at work after `seconds`.
bool let_run(const Child &server, const Child &client, double seconds) {
    const double end = seconds_of(CLOCK_MONOTONIC) + seconds;
    std::array<pollfd, 2> ends{
        {{.fd = server.pidfd, .events = POLLIN, .revents = 0}, {.fd = client.pidfd, .events = POLLIN, .revents = 0}}};
    for (double left = seconds; left > 0; left = end - seconds_of(CLOCK_MONOTONIC)) {
        const int count = poll(ends.data(), ends.size(), static_cast<int>(left * 1000) + 1);
        if (count > 0 || (count < 0 && errno != EINTR))
            return false;
    }
    return true;
}

// Waits for the child's end, kills it when that takes too long; true when it ended well.
bool finish(const Child &child) {
    pollfd ending{.fd = child.pidfd, .events = POLLIN, .revents = 0};
    const bool ended = poll(&ending, 1, static_cast<int>(kPatienceSeconds * 1000)) == 1;
    if (!ended) {
        std::fprintf(stderr, "bench_traffic: a child did not end in time\n");
        kill(child.pid, SIGKILL);
    }
    int status = 0;
    waitpid(child.pid, &status, 0);
    return ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

constexpr std::array<std::pair<std::string_view, Mode>, 5> kModes{{
    {"tcp_stream", Mode::tcp_stream},
    {"tcp_rr", Mode::tcp_rr},
    {"tcp_crr", Mode::tcp_crr},
    {"udp_pps", Mode::udp_pps},
    {"udp_flows", Mode::udp_flows},
}};

void print_latencies(Shared &shared) {
    const size_t count = shared.latency_count;
    if (count == 0)
        return;
    std::sort(shared.latencies_ns, shared.latencies_ns + count);
    const auto microseconds = [&](size_t per_mille) {
        return shared.latencies_ns[(count - 1) * per_mille / 1000] / 1e3;
    };
    std::printf(", \"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f", microseconds(500), microseconds(900),
                microseconds(990));
}

void print_rates(const Settings &settings, Shared &shared, const Snapshot &from, const Snapshot &to, double cpu_s) {
    const double wall_s = to.wall_s - from.wall_s;
    const auto received = static_cast<double>(to.received - from.received);
    const auto transactions = static_cast<double>(to.transactions - from.transactions);
    switch (settings.mode) {
    case Mode::tcp_stream:
        std::printf(", \"bytes\": %.0f, \"bytes_per_s\": %.0f, \"cpu_s_per_gb\": %.5f", received, received / wall_s,
                    cpu_s / (received / 1e9));
        return;
    case Mode::udp_pps:
    case Mode::udp_flows:
        std::printf(", \"sent\": %.0f, \"received\": %.0f, \"packets_per_s\": %.0f, \"packets_per_cpu_s\": %.0f",
                    static_cast<double>(to.sent - from.sent), received, received / wall_s, received / cpu_s);
        return;
    case Mode::tcp_rr:
    case Mode::tcp_crr:
        std::printf(", \"transactions\": %.0f, \"transactions_per_s\": %.1f, \"cpu_us_per_transaction\": %.3f",
                    transactions, transactions / wall_s, cpu_s * 1e6 / transactions);
        print_latencies(shared);
        return;
    }
}

void print_result(const Settings &settings, Shared &shared, const Snapshot &from, const Snapshot &to) {
    const double wall_s = to.wall_s - from.wall_s;
    const auto cpus = static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
    const double cpu_s = wall_s * cpus - (to.idle_s - from.idle_s);
    const auto *mode = std::find_if(kModes.begin(), kModes.end(), [&](auto &m) { return m.second == settings.mode; });
    std::printf("{\"mode\": \"%s\", \"family\": %d, \"flows\": %u, \"server_cpu\": %d, \"client_cpu\": %d, "
                "\"seconds\": %.3f, \"cpu_s\": %.3f, \"own_cpu_s\": %.3f",
                mode->first.data(), settings.server.ss_family == AF_INET ? 4 : 6, settings.flows, settings.server_cpu,
                settings.client_cpu, wall_s, cpu_s, to.processes_s - from.processes_s);
    print_rates(settings, shared, from, to, cpu_s);
    std::printf("}\n");
}

bool measure(const Settings &settings, Shared &shared) {
    const auto server = start([&](int ready) { run_server(settings, shared, ready); });
    if (!server || !wait_ready(*server)) {
        std::fprintf(stderr, "bench_traffic: the server did not start\n");
        return false;
    }
    const auto client = start([&](int ready) { run_client(settings, shared, ready); });
    bool well = client && wait_ready(*client) && let_run(*server, *client, kWarmUpSeconds);
    Snapshot from;
    Snapshot to;
    if (well) {
        from = take_snapshot(shared, *server, *client);
        shared.phase = Phase::measure;
        well = let_run(*server, *client, settings.seconds);
        to = take_snapshot(shared, *server, *client);
    }
    shared.phase = Phase::stop;
    well = client && finish(*client) && well;
    well = finish(*server) && well;
    if (well)
        print_result(settings, shared, from, to);
    return well;
}

bool take_mode(const char *value, Settings &settings) {
    const auto *found = std::find_if(kModes.begin(), kModes.end(), [&](auto &one) { return one.first == value; });
    if (found != kModes.end())
        settings.mode = found->second;
    return found != kModes.end();
}

} // namespace

int run(int argc, char **argv) {
    Settings settings;
    std::vector<Option> options = options_of(settings);
    options.insert(options.end(),
                   {{"mode", [&](const char *value) { return take_mode(value, settings); }},
                    {"service", [&](const char *value) { return read_address(value, settings.service.emplace()); }},
                    {"flows", into(settings.flows, 1, 64)},
                    {"rate", into(settings.rate, 1, 1e8)},
                    {"seconds", into(settings.seconds, 0.1, 600)},
                    {"server-cpu", into(settings.server_cpu)},
                    {"client-cpu", into(settings.client_cpu)}});
    if (const auto code = read_options(argc, argv, kHelp, options))
        return *code;
    if (optind != argc || !settings.are_complete())
        return std::fputs(kHelp, stderr), 2;
    void *memory =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        return std::perror("bench_traffic: mmap"), 1;
    return measure(settings, *new (memory) Shared) ? 0 : 1;
}

} // namespace podlane::bench

int main(int argc, char **argv) { return podlane::bench::run(argc, argv); }
