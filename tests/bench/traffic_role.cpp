// SPDX-License-Identifier: MIT
#include "tests/bench/traffic_role.hpp"

#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

namespace podlane::bench {
namespace {

constexpr size_t kStreamChunk = 128 * 1024;
constexpr size_t kDatagram = 18; // the smallest Ethernet frame over IPv4
constexpr unsigned kBatch = 64;
constexpr uint16_t kFlowServers = 32; // ports of udp_flows' server, each for as many flows as there are ports
constexpr int kBacklog = 1024;
constexpr int kUdpReceiveBuffer = 4 << 20;
constexpr timeval kPatience{.tv_sec = 0, .tv_usec = 200'000}; // how long a blocked call may miss a phase change
constexpr timeval kAnswerTimeout{.tv_sec = 3, .tv_usec = 0};

bool stopped(const Shared &shared) { return shared.phase.load(std::memory_order_relaxed) == Phase::stop; }

void add(std::atomic<uint64_t> &counter, uint64_t value) { counter.fetch_add(value, std::memory_order_relaxed); }

void enter(const std::string &netns, int cpu) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench::enter(netns);
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(static_cast<size_t>(cpu), &cpus);
    if (cpu >= 0 && sched_setaffinity(0, sizeof cpus, &cpus) != 0)
        fail("pinning to a CPU");
}

template <typename T> void set_option(int fd, int level, int option, const T &value, const char *name) {
    if (setsockopt(fd, level, option, &value, sizeof value) != 0)
        fail(name);
}

void set_up_tcp(int fd) {
    set_congestion(fd, "cubic");
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
}

bool is_tcp(const Settings &settings) { return settings.mode != Mode::udp_pps && settings.mode != Mode::udp_flows; }

int open_socket(const Settings &settings) {
    const bool tcp = is_tcp(settings);
    const int fd = socket(settings.server.ss_family, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket");
    if (tcp)
        set_up_tcp(fd);
    return fd;
}

void say_ready(int fd) {
    if (write(fd, "r", 1) != 1)
        fail("telling the parent");
    close(fd);
}

// A bound socket whose port, chosen by the kernel if none is given, is in `shared`.
int open_server(const Settings &settings, Shared &shared) {
    const int fd = open_socket(settings);
    if (bind(fd, reinterpret_cast<const sockaddr *>(&settings.server), settings.server_length) != 0)
        fail("binding the server's address");
    if (is_tcp(settings) && listen(fd, kBacklog) != 0)
        fail("listen");
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    if (getsockname(fd, reinterpret_cast<sockaddr *>(&bound), &length) != 0)
        fail("getsockname");
    shared.port = ntohs(port_of(bound));
    set_option(fd, SOL_SOCKET, SO_RCVTIMEO, kPatience, "SO_RCVTIMEO");
    return fd;
}

// The first server, and one at each of the ports that follow.
std::vector<int> open_more_servers(Settings settings, Shared &shared, int first) {
    std::vector<int> servers{first};
    const uint16_t port = shared.port;
    while (servers.size() < kFlowServers) {
        port_of(settings.server) = htons(static_cast<uint16_t>(port + servers.size()));
        servers.push_back(open_server(settings, shared));
    }
    shared.port = port;
    return servers;
}

// The next connection, or -1 once the measurement has stopped.
int accept_next(int listener, const Shared &shared) {
    for (;;) {
        const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        if (fd >= 0)
            return fd;
        if (stopped(shared))
            return -1;
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            fail("accept");
    }
}

void connect_to_server(int fd, const Settings &settings, const Shared &shared) {
    sockaddr_storage server = settings.service ? settings.service->server : settings.server;
    port_of(server) = htons(shared.port);
    set_option(fd, SOL_SOCKET, SO_SNDTIMEO, kAnswerTimeout, "SO_SNDTIMEO");
    set_option(fd, SOL_SOCKET, SO_RCVTIMEO, kAnswerTimeout, "SO_RCVTIMEO");
    if (connect(fd, reinterpret_cast<const sockaddr *>(&server), settings.server_length) != 0)
        fail("connecting to the server");
}

// Like recv(), but what a phase without traffic times out is tried again, until the measurement has stopped.
ssize_t receive(int fd, char *buffer, size_t size, const Shared &shared) {
    for (;;) {
        const ssize_t got = recv(fd, buffer, size, 0);
        if (got >= 0 || errno != EAGAIN || stopped(shared))
            return got;
    }
}

// Each flow has a thread of its own; all share the CPU the process is pinned to.
template <typename F> void for_each_flow(const std::vector<int> &flows, F work) {
    std::vector<std::jthread> threads;
    for (const int fd : flows)
        threads.emplace_back(work, fd);
}

void serve_stream(int listener, const Settings &settings, Shared &shared) {
    std::vector<int> flows;
    while (flows.size() < settings.flows) {
        const int fd = accept_next(listener, shared);
        if (fd < 0)
            return;
        flows.push_back(fd);
    }
    for_each_flow(flows, [&shared](int fd) {
        std::vector<char> buffer(kStreamChunk);
        ssize_t got;
        while ((got = receive(fd, buffer.data(), buffer.size(), shared)) > 0)
            add(shared.received, static_cast<uint64_t>(got));
    });
}

void send_stream(const std::vector<int> &flows, const Shared &shared) {
    for_each_flow(flows, [&shared](int fd) {
        const std::vector<char> buffer(kStreamChunk, 'x');
        while (!stopped(shared))
            if (send(fd, buffer.data(), buffer.size(), MSG_NOSIGNAL) < 0)
                fail("sending the stream");
        shutdown(fd, SHUT_WR);
    });
}

// Answers each byte with a byte until the other side is gone.
void answer(int fd, const Shared &shared) {
    char byte;
    while (receive(fd, &byte, 1, shared) == 1)
        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
            break;
    close(fd);
}

void ask(int fd) {
    char byte = 'x';
    if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || recv(fd, &byte, 1, 0) != 1)
        fail("no answer to a request");
}

void note_transaction(Shared &shared, uint64_t start_ns, uint64_t end_ns) {
    add(shared.transactions, 1);
    if (shared.phase.load(std::memory_order_relaxed) != Phase::measure)
        return;
    const size_t index = shared.latency_count.load(std::memory_order_relaxed);
    if (index == kMaxLatencies)
        return;
    shared.latencies_ns[index] = static_cast<uint32_t>(end_ns - start_ns);
    shared.latency_count.store(index + 1, std::memory_order_relaxed);
}

void ask_again_and_again(const std::vector<int> &flows, Shared &shared) {
    const int fd = flows.front();
    uint64_t start = podlane::monotonic_ns();
    while (!stopped(shared)) {
        ask(fd);
        const uint64_t end = podlane::monotonic_ns();
        note_transaction(shared, start, end);
        start = end;
    }
    for (size_t i = 1; i < flows.size(); ++i) { // the server answers one connection after the other
        close(flows[i - 1]);
        ask(flows[i]);
    }
}

// Closes with a reset, so that no port is held in TIME_WAIT and the ports never run out.
void connect_again_and_again(const Settings &settings, Shared &shared) {
    while (!stopped(shared)) {
        const uint64_t start = podlane::monotonic_ns();
        const int fd = open_socket(settings);
        set_option(fd, SOL_SOCKET, SO_LINGER, linger{.l_onoff = 1, .l_linger = 0}, "SO_LINGER");
        connect_to_server(fd, settings, shared);
        ask(fd);
        close(fd);
        note_transaction(shared, start, podlane::monotonic_ns());
    }
}

// `kBatch` datagrams in one call, all in the same buffer.
struct Batch {
    std::array<char, 2048> buffer{};
    iovec vector{.iov_base = buffer.data(), .iov_len = buffer.size()};
    std::array<mmsghdr, kBatch> messages{};

    explicit Batch(size_t length) {
        vector.iov_len = length;
        for (auto &message : messages) {
            message.msg_hdr.msg_iov = &vector;
            message.msg_hdr.msg_iovlen = 1;
        }
    }
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;
};

void receive_datagrams(int fd, Shared &shared) {
    set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, kUdpReceiveBuffer, "SO_RCVBUFFORCE");
    Batch batch(2048);
    while (!stopped(shared)) {
        const int got = recvmmsg(fd, batch.messages.data(), kBatch, MSG_WAITFORONE, nullptr);
        if (got > 0)
            add(shared.received, static_cast<uint64_t>(got));
        else if (errno != EAGAIN && errno != EINTR)
            fail("receiving datagrams");
    }
}

void send_datagrams(int fd, Shared &shared) {
    Batch batch(kDatagram);
    while (!stopped(shared)) {
        const int sent = sendmmsg(fd, batch.messages.data(), kBatch, 0);
        if (sent > 0)
            add(shared.sent, static_cast<uint64_t>(sent));
        else if (errno != ENOBUFS && errno != EAGAIN)
            fail("sending datagrams");
    }
}

// `settings.rate` datagrams a second, each between two ports that none before had.
void send_new_flows(const Settings &settings, Shared &shared) {
    constexpr uint64_t kPorts = 64000;
    const int fd = socket(settings.server.ss_family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
    if (fd < 0 || connect(fd, reinterpret_cast<const sockaddr *>(&settings.server), settings.server_length) != 0)
        fail("a raw socket");
    if (settings.server.ss_family == AF_INET6)
        set_option(fd, IPPROTO_IPV6, IPV6_CHECKSUM, int{offsetof(udphdr, check)}, "IPV6_CHECKSUM");
    struct {
        udphdr header;
        std::array<char, kDatagram> data;
    } datagram{};
    datagram.header.len = htons(sizeof datagram);
    const uint64_t start = podlane::monotonic_ns();
    for (uint64_t i = 0; !stopped(shared); ++i) {
        while (podlane::monotonic_ns() - start < i * 1'000'000'000 / settings.rate)
            usleep(500);
        datagram.header.source = htons(static_cast<uint16_t>(1024 + i % kPorts));
        datagram.header.dest = htons(static_cast<uint16_t>(shared.port + i / kPorts % kFlowServers));
        if (send(fd, &datagram, sizeof datagram, 0) > 0)
            add(shared.sent, 1);
        else if (errno != ENOBUFS)
            fail("sending a new flow");
    }
}

// More ports for connections that follow each other closely; the namespace is the measurement's own.
void widen_port_range() {
    const int fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
    static constexpr char kRange[] = "1024 65000";
    if (fd < 0 || write(fd, kRange, sizeof kRange - 1) < 0)
        fail("net.ipv4.ip_local_port_range");
    close(fd);
}

} // namespace

void run_server(const Settings &settings, Shared &shared, int ready_fd) {
    enter(settings.server_netns, settings.server_cpu);
    const int fd = open_server(settings, shared);
    const auto servers = settings.mode == Mode::udp_flows ? open_more_servers(settings, shared, fd) : std::vector{fd};
    say_ready(ready_fd);
    if (settings.mode == Mode::tcp_stream)
        serve_stream(fd, settings, shared);
    else if (settings.mode == Mode::udp_pps)
        receive_datagrams(fd, shared);
    else if (settings.mode == Mode::udp_flows)
        for_each_flow(servers, [&shared](int server) { receive_datagrams(server, shared); });
    else
        for (int peer; (peer = accept_next(fd, shared)) >= 0;)
            answer(peer, shared);
    _exit(0);
}

void run_client(const Settings &settings, Shared &shared, int ready_fd) {
    enter(settings.client_netns, settings.client_cpu);
    if (settings.mode == Mode::tcp_crr) {
        widen_port_range();
        say_ready(ready_fd);
        connect_again_and_again(settings, shared);
        _exit(0);
    }
    if (settings.mode == Mode::udp_flows) {
        say_ready(ready_fd);
        send_new_flows(settings, shared);
        _exit(0);
    }
    std::vector<int> flows;
    while (flows.size() < settings.flows) {
        flows.push_back(open_socket(settings));
        connect_to_server(flows.back(), settings, shared);
    }
    say_ready(ready_fd);
    if (settings.mode == Mode::tcp_stream)
        send_stream(flows, shared);
    else if (settings.mode == Mode::tcp_rr)
        ask_again_and_again(flows, shared);
    else
        send_datagrams(flows.front(), shared);
    _exit(0);
}

} // namespace podlane::bench
