// SPDX-License-Identifier: MIT
// bench_limit: bulk flows through a bandwidth limit, what each of them got and when, as one line of JSON.
#include "tests/bench/options.hpp"

#include <linux/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace podlane::bench {
namespace {

constexpr char kHelp[] = R"(bench_limit: bulk flows through a bandwidth limit, printed as one line of JSON

usage: bench_limit --server-netns NS --client-netns NS --address ADDRESS [options]

  --server-netns NS    receives; a name below /run/netns
  --client-netns NS    sends
  --address ADDRESS    the server's, IPv4 or IPv6
  --flows N            TCP flows that send as much as they can (1)
  --idle N             connections beside them that say nothing (0)
  --join N             flows that begin later (0) ...
  --join-at S          ... after so many seconds (2)
  --congestion NAME    (cubic)
  --udp RATE           no TCP, but datagrams of 1400 bytes at so many bits per second
  --settle S           "shares" are the bytes of each flow after so many seconds, "settled_..." since then (1)
  --seconds S          (10)

"samples" are bytes received in each tenth of a second, from the first one sent on.
)";

constexpr std::size_t kChunk = std::size_t{128} << 10U;
constexpr std::size_t kDatagram = 1400;
constexpr double kSample = 0.1;
constexpr int kBacklog = 1024;
constexpr int kWaitMs = 20;

struct Settings : Ends {
    std::string congestion = "cubic";
    unsigned flows = 1, idle = 0, join = 0;
    double join_at = 2, udp = 0, settle = 1, seconds = 10;
};

struct Segments {
    std::uint64_t sent = 0, again = 0;
};

struct Shared {
    explicit Shared(std::size_t flows) : received(flows) {}
    std::atomic<std::uint16_t> port{0}; // once the server listens
    std::atomic<bool> sending{false}, stop{false};
    std::deque<std::atomic<std::uint64_t>> received; // bytes, by flow; written by the server
    std::vector<int> flows;                          // once they send
    Segments segments;
    std::uint64_t sent = 0;
};

void sleep_s(double seconds) { usleep(static_cast<useconds_t>(std::max(seconds, 0.0) * 1e6)); }

int open_socket(const Settings &settings, int flags = 0) {
    const int type = settings.udp > 0 ? SOCK_DGRAM : SOCK_STREAM;
    const int fd = socket(settings.server.ss_family, type | SOCK_CLOEXEC | flags, 0);
    if (fd < 0)
        fail("socket");
    if (settings.udp == 0)
        set_congestion(fd, settings.congestion);
    return fd;
}

int open_server(const Settings &settings, Shared &shared) {
    const int fd = open_socket(settings, SOCK_NONBLOCK);
    if (bind(fd, reinterpret_cast<const sockaddr *>(&settings.server), settings.server_length) != 0)
        fail("binding the server's address");
    if (settings.udp == 0 && listen(fd, kBacklog) != 0)
        fail("listen");
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &length);
    shared.port = ntohs(port_of(bound));
    return fd;
}

void watch(int poller, int fd, std::uint32_t events, std::uint64_t data) {
    epoll_event event{.events = events, .data = {.u64 = data}};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll");
}

// Flows are numbered as they come: the client opens one after the other.
void serve(const Settings &settings, Shared &shared) {
    enter(settings.server_netns);
    const int listener = open_server(settings, shared), poller = epoll_create1(EPOLL_CLOEXEC);
    std::vector<int> flows(settings.udp > 0 ? 1 : 0, listener);
    std::vector<char> buffer(kChunk);
    std::array<epoll_event, 64> ready{};
    const std::uint64_t accepting = UINT64_MAX;
    watch(poller, listener, EPOLLIN, settings.udp > 0 ? 0 : accepting);
    while (!shared.stop) {
        const int count = epoll_wait(poller, ready.data(), ready.size(), kWaitMs);
        for (int i = 0; i < count; ++i) {
            if (ready[static_cast<std::size_t>(i)].data.u64 == accepting) {
                const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (fd < 0 || flows.size() == shared.received.size())
                    continue;
                watch(poller, fd, EPOLLIN, flows.size());
                flows.push_back(fd);
                continue;
            }
            const std::size_t flow = ready[static_cast<std::size_t>(i)].data.u64;
            const ssize_t got = recv(flows[flow], buffer.data(), buffer.size(), 0);
            if (got > 0)
                shared.received[flow] += static_cast<std::uint64_t>(got);
            else if (got == 0)
                epoll_ctl(poller, EPOLL_CTL_DEL, flows[flow], nullptr);
        }
    }
    for (const int fd : flows)
        close(fd);
}

int connect_to_server(const Settings &settings, const Shared &shared) {
    const int fd = open_socket(settings);
    sockaddr_storage server = settings.server;
    port_of(server) = htons(shared.port);
    if (connect(fd, reinterpret_cast<const sockaddr *>(&server), settings.server_length) != 0)
        fail("connecting to the server");
    const linger abort{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

void send_all(const Settings &settings, Shared &shared, std::vector<int> &flows) {
    const int poller = epoll_create1(EPOLL_CLOEXEC);
    const std::vector<char> buffer(kChunk, 'x');
    std::array<epoll_event, 64> ready{};
    for (unsigned i = 0; i < settings.flows; ++i)
        watch(poller, flows[i], EPOLLOUT, static_cast<std::uint64_t>(flows[i]));
    const double join_at = now_s() + settings.join_at;
    bool joined = settings.join == 0;
    shared.sending = true;
    while (!shared.stop) {
        const int count = epoll_wait(poller, ready.data(), ready.size(), kWaitMs);
        for (int i = 0; i < count; ++i) {
            const auto fd = static_cast<int>(ready[static_cast<std::size_t>(i)].data.u64);
            if (send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN && !shared.stop)
                fail("sending");
        }
        if (joined || now_s() < join_at)
            continue;
        for (unsigned i = 0; i < settings.join; ++i) {
            flows.push_back(connect_to_server(settings, shared));
            watch(poller, flows.back(), EPOLLOUT, static_cast<std::uint64_t>(flows.back()));
        }
        joined = true;
    }
}

void flood(const Settings &settings, Shared &shared, int fd) {
    const std::array<char, kDatagram> datagram{};
    const double start = now_s();
    shared.sending = true;
    while (!shared.stop) {
        const auto due = static_cast<std::uint64_t>((now_s() - start) * settings.udp / 8 / kDatagram);
        for (; shared.sent / kDatagram < due && !shared.stop; shared.sent += kDatagram)
            if (send(fd, datagram.data(), datagram.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != ENOBUFS &&
                errno != ECONNREFUSED)
                fail("sending datagrams");
        sleep_s(0.0005);
    }
}

Segments segments_of(const std::vector<int> &flows) {
    Segments all;
    for (const int fd : flows) {
        tcp_info facts{};
        socklen_t size = sizeof facts;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &facts, &size) != 0)
            continue;
        all.sent += facts.tcpi_data_segs_out;
        all.again += facts.tcpi_total_retrans;
    }
    return all;
}

void send_to_server(const Settings &settings, Shared &shared) {
    enter(settings.client_netns);
    while (shared.port == 0)
        sleep_s(0.001);
    std::vector<int> flows;
    for (unsigned i = 0; i < (settings.udp > 0 ? 1 : settings.flows + settings.idle); ++i)
        flows.push_back(connect_to_server(settings, shared));
    shared.flows = flows;
    if (settings.udp > 0)
        flood(settings, shared, flows.front());
    else
        send_all(settings, shared, flows);
    shared.segments = segments_of(flows);
    for (const int fd : flows)
        close(fd);
}

std::vector<std::uint64_t> totals(const Shared &shared) { return {shared.received.begin(), shared.received.end()}; }

std::uint64_t sum(const std::vector<std::uint64_t> &of) {
    std::uint64_t all = 0;
    for (const std::uint64_t one : of)
        all += one;
    return all;
}

template <typename T> void print_list(const char *name, const std::vector<T> &values) {
    std::printf(", \"%s\": [", name);
    for (std::size_t i = 0; i < values.size(); ++i)
        std::printf("%s%.0f", i == 0 ? "" : ", ", static_cast<double>(values[i]));
    std::printf("]");
}

int measure(const Settings &settings) {
    Shared shared(settings.flows + settings.idle + settings.join);
    std::thread server([&] { serve(settings, shared); }), client([&] { send_to_server(settings, shared); });
    while (!shared.sending)
        sleep_s(0.001);
    const double start = now_s();
    std::vector<std::uint64_t> samples, settled = totals(shared);
    Segments before_settled;
    bool is_settled = settings.settle <= 0;
    for (std::uint64_t before = 0; static_cast<double>(samples.size()) * kSample < settings.seconds;) {
        sleep_s(start + static_cast<double>(samples.size() + 1) * kSample - now_s());
        const std::uint64_t all = sum(totals(shared));
        samples.push_back(all - before);
        before = all;
        if (!is_settled && now_s() - start >= settings.settle) {
            settled = totals(shared);
            before_settled = segments_of(shared.flows);
            is_settled = true;
        }
    }
    const double seconds = now_s() - start;
    std::vector<std::uint64_t> shares = totals(shared);
    const std::uint64_t bytes = sum(shares);
    shared.stop = true;
    server.join();
    client.join();
    for (std::size_t i = 0; i < shares.size(); ++i)
        shares[i] -= settled[i];
    shares.erase(shares.begin() + settings.flows, shares.begin() + settings.flows + settings.idle);
    std::printf("{\"started\": %.6f, \"seconds\": %.3f", start, seconds);
    for (const auto &[name, number] : std::initializer_list<std::pair<const char *, std::uint64_t>>{
             {"bytes", bytes},
             {"sent", shared.sent},
             {"segments", shared.segments.sent},
             {"retransmitted", shared.segments.again},
             {"settled_segments", shared.segments.sent - before_settled.sent},
             {"settled_retransmitted", shared.segments.again - before_settled.again}})
        std::printf(", \"%s\": %llu", name, static_cast<unsigned long long>(number));
    print_list("samples", samples);
    print_list("shares", shares);
    std::printf("}\n");
    return 0;
}

int usage(const char *what) {
    std::fprintf(stderr, "bench_limit: %s; see bench_limit --help\n", what);
    return 2;
}

int run(int argc, char **argv) {
    Settings settings;
    std::vector<Option> options = options_of(settings);
    options.insert(options.end(), {{"flows", into(settings.flows)},
                                   {"idle", into(settings.idle)},
                                   {"join", into(settings.join)},
                                   {"join-at", into(settings.join_at)},
                                   {"congestion", into(settings.congestion)},
                                   {"udp", into(settings.udp)},
                                   {"settle", into(settings.settle)},
                                   {"seconds", into(settings.seconds)}});
    if (const auto code = read_options(argc, argv, kHelp, options))
        return *code;
    if (!settings.are_complete())
        return usage("--server-netns, --client-netns and --address are needed");
    if (settings.flows + settings.idle + settings.join > 1000 || settings.flows == 0 || settings.seconds < kSample)
        return usage("1 to 1000 flows, for a tenth of a second at least");
    return measure(settings);
}

} // namespace
} // namespace podlane::bench

int main(int argc, char **argv) { return podlane::bench::run(argc, argv); }
