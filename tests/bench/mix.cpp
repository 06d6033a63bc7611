// SPDX-License-Identifier: MIT
// bench_mix: flows of several kinds through one limit at once, what each kind got, as one line of JSON.
#include "tests/bench/options.hpp"

#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace podlane::bench {
namespace {

constexpr char kHelp[] = R"(bench_mix: flows of several kinds at once, printed as one line of JSON

usage: bench_mix --server-netns NS --client-netns NS --address ADDRESS --flow SPEC… [options]

  --server-netns NS    sends; a name below /run/netns
  --client-netns NS    asks and receives
  --address ADDRESS    the server's, IPv4 or IPv6
  --flow SPEC          flows of one kind, KEY=VALUE,…:
                         count=N       so many (1)
                         fetch=BYTES   each asks for so many bytes again and again; 0: gets all it can (0)
                         think=S       mean pause before it asks again (0)
                         new=1         with a new connection each time
                         rate=BITS     the server writes so many bits a second, every 40 ms
                         on=S,off=S    it writes for S seconds, then pauses
                         pacing=BITS   it sets SO_MAX_PACING_RATE
                         cc=NAME       its congestion control (cubic)
                         mptcp=1       Multipath TCP
                         udp=BITS      no TCP: so many bits a second in GSO packets of ten datagrams
  --warm S             not measured (1)
  --seconds S          (5)

For each SPEC: "mbit" received, "least" by one flow, and of fetches "p50" and "p99" of the time of one in ms.
)";

constexpr std::size_t kChunk = std::size_t{64} << 10U;
constexpr std::uint16_t kPort = 8081, kMptcpPort = 8082, kUdpPort = 9000;
constexpr double kTick = 0.04;
constexpr int kMptcp = 262, kPacing = 47, kDatagram = 1200, kDatagrams = 10;

struct Kind {
    double count = 1, fetch = 0, think = 0, is_new = 0, rate = 0, on = 0, off = 0, pacing = 0, mptcp = 0, udp = 0;
    std::string congestion = "cubic";
};

// A flow's request to the server.
struct Ask {
    double fetch, rate, on, off, pacing;
    std::array<char, 16> congestion;
};

struct Settings : Ends {
    std::vector<Kind> kinds;
    double warm = 1, seconds = 5;
};

struct Group {
    std::deque<std::atomic<std::uint64_t>> received;
    std::mutex lock;
    std::vector<double> times;
};

std::atomic<bool> g_measuring{false};

bool read_kind(const char *text, Settings &settings) {
    Kind kind;
    const std::vector<std::pair<std::string, double *>> keys = {
        {"count", &kind.count}, {"fetch", &kind.fetch}, {"think", &kind.think}, {"new", &kind.is_new},
        {"rate", &kind.rate},   {"on", &kind.on},       {"off", &kind.off},     {"pacing", &kind.pacing},
        {"mptcp", &kind.mptcp}, {"udp", &kind.udp}};
    std::istringstream all(text);
    for (std::string one; std::getline(all, one, ',');) {
        const std::size_t at = one.find('=');
        const std::string name = one.substr(0, at), value = at == std::string::npos ? "" : one.substr(at + 1);
        const auto found = std::find_if(keys.begin(), keys.end(), [&](const auto &key) { return key.first == name; });
        if (name == "cc")
            kind.congestion = value;
        else if (found != keys.end())
            *found->second = std::strtod(value.c_str(), nullptr);
        else
            return false;
    }
    settings.kinds.push_back(kind);
    return true;
}

void sleep_s(double seconds) {
    if (seconds > 0)
        usleep(static_cast<useconds_t>(seconds * 1e6));
}

sockaddr_storage at_port(const Settings &settings, std::uint16_t port) {
    sockaddr_storage address = settings.server;
    port_of(address) = htons(port);
    return address;
}

bool send_all(int fd, std::uint64_t bytes) {
    static const std::vector<char> buffer(kChunk, 'x');
    while (bytes > 0) {
        const ssize_t sent = send(fd, buffer.data(), std::min<std::uint64_t>(bytes, kChunk), MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes -= static_cast<std::uint64_t>(sent);
    }
    return true;
}

// Without end: as fast as it goes, at a rate, or on and off.
void stream(int fd, const Ask &ask) {
    const double start = now_s();
    for (double due = start; ask.rate > 0; due += kTick) {
        sleep_s(due - now_s());
        if (!send_all(fd, static_cast<std::uint64_t>(ask.rate * kTick / 8)))
            return;
    }
    while (send_all(fd, kChunk)) {
        const double period = ask.on + ask.off, place = period > 0 ? std::fmod(now_s() - start, period) : 0;
        if (period > 0 && place >= ask.on)
            sleep_s(period - place);
    }
}

void answer(int fd) {
    Ask ask{};
    while (recv(fd, &ask, sizeof ask, MSG_WAITALL) == sizeof ask) {
        constexpr int kTcpCongestion = 13;
        setsockopt(fd, IPPROTO_TCP, kTcpCongestion, ask.congestion.data(),
                   static_cast<socklen_t>(strnlen(ask.congestion.data(), ask.congestion.size())));
        const auto pacing = static_cast<std::uint32_t>(ask.pacing / 8);
        if (pacing != 0)
            setsockopt(fd, SOL_SOCKET, kPacing, &pacing, sizeof pacing);
        if (ask.fetch > 0)
            send_all(fd, static_cast<std::uint64_t>(ask.fetch));
        else
            stream(fd, ask);
    }
    close(fd);
}

[[noreturn]] void serve(const Settings &settings, std::uint16_t port, int protocol, std::atomic<int> &ready) {
    enter(settings.server_netns);
    const int listener = socket(settings.server.ss_family, SOCK_STREAM | SOCK_CLOEXEC, protocol);
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const sockaddr_storage here = at_port(settings, port);
    if (bind(listener, reinterpret_cast<const sockaddr *>(&here), settings.server_length) != 0 ||
        listen(listener, 1024) != 0)
        fail("listening");
    ++ready;
    while (true)
        if (const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); fd >= 0)
            std::thread(answer, fd).detach();
}

void flood(const Settings &settings, double rate, sockaddr_storage to, socklen_t length) {
    enter(settings.server_netns);
    const int fd = socket(settings.server.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), size = kDatagram;
    if (setsockopt(fd, SOL_UDP, UDP_SEGMENT, &size, sizeof size) != 0)
        fail("UDP_SEGMENT");
    const std::vector<char> packet(std::size_t{kDatagram} * kDatagrams, 'u');
    const double start = now_s();
    for (std::uint64_t sent = 0;; sleep_s(0.001))
        for (; static_cast<double>(sent) < (now_s() - start) * rate / 8; sent += packet.size())
            (void)sendto(fd, packet.data(), packet.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&to),
                         length);
}

void receive_datagrams(const Settings &settings, double rate, std::atomic<std::uint64_t> &received) {
    const int server = socket(settings.server.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage to = at_port(settings, kUdpPort);
    // The address that a packet from the server finds this end by.
    if (connect(server, reinterpret_cast<const sockaddr *>(&to), settings.server_length) != 0)
        fail("connecting");
    socklen_t length = sizeof to;
    getsockname(server, reinterpret_cast<sockaddr *>(&to), &length);
    close(server);
    const int fd = socket(settings.server.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on);
    port_of(to) = 0;
    if (bind(fd, reinterpret_cast<const sockaddr *>(&to), length) != 0)
        fail("binding");
    getsockname(fd, reinterpret_cast<sockaddr *>(&to), &length);
    std::thread([&settings, rate, to, length] { flood(settings, rate, to, length); }).detach();
    for (std::vector<char> buffer(kChunk);;)
        if (const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0); got > 0)
            received += static_cast<std::uint64_t>(got);
}

int open_connection(const Settings &settings, const Kind &kind) {
    const bool mptcp = kind.mptcp != 0;
    const int fd = socket(settings.server.ss_family, SOCK_STREAM | SOCK_CLOEXEC, mptcp ? kMptcp : 0);
    const sockaddr_storage to = at_port(settings, mptcp ? kMptcpPort : kPort);
    if (connect(fd, reinterpret_cast<const sockaddr *>(&to), settings.server_length) != 0)
        fail("connecting");
    return fd;
}

// One flow of the client, until the program ends.
void run_flow(const Settings &settings, const Kind &kind, Group &group, std::atomic<std::uint64_t> &received) {
    enter(settings.client_netns);
    if (kind.udp > 0)
        return receive_datagrams(settings, kind.udp, received);
    std::mt19937_64 random{std::random_device{}()};
    std::exponential_distribution<double> pause(kind.think > 0 ? 1 / kind.think : 1);
    std::vector<char> buffer(kChunk);
    Ask ask{kind.fetch, kind.rate, kind.on, kind.off, kind.pacing, {}};
    kind.congestion.copy(ask.congestion.data(), ask.congestion.size() - 1);
    for (int fd = -1;;) {
        sleep_s(kind.think > 0 ? pause(random) : 0);
        const double since = now_s();
        if (fd < 0)
            fd = open_connection(settings, kind);
        if (send(fd, &ask, sizeof ask, MSG_NOSIGNAL) < 0)
            fail("asking");
        for (double left = kind.fetch; kind.fetch == 0 || left > 0;) {
            const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
            if (got <= 0)
                fail("receiving");
            left -= static_cast<double>(got);
            received += static_cast<std::uint64_t>(got);
        }
        if (g_measuring) {
            const std::scoped_lock held(group.lock);
            group.times.push_back((now_s() - since) * 1e3);
        }
        if (kind.is_new != 0) {
            close(fd);
            fd = -1;
        }
    }
}

void print(Group &group, const std::vector<std::uint64_t> &before, double seconds, bool is_last) {
    const std::scoped_lock held(group.lock);
    std::sort(group.times.begin(), group.times.end());
    const auto at = [&](double share) {
        const auto place = static_cast<std::size_t>(share * static_cast<double>(group.times.size()));
        return group.times.empty() ? 0.0 : group.times[std::min(group.times.size() - 1, place)];
    };
    double all = 0, least = 1e18;
    for (std::size_t i = 0; i < before.size(); ++i) {
        const double one = static_cast<double>(group.received[i] - before[i]) * 8 / seconds / 1e6;
        all += one;
        least = std::min(least, one);
    }
    std::printf("{\"mbit\": %.3f, \"least\": %.3f, \"fetches\": %zu, \"p50\": %.3f, \"p99\": %.3f}%s", all, least,
                group.times.size(), at(0.5), at(0.99), is_last ? "" : ", ");
}

int measure(const Settings &settings) {
    std::atomic<int> ready{0};
    std::thread([&] { serve(settings, kPort, 0, ready); }).detach();
    std::thread([&] { serve(settings, kMptcpPort, kMptcp, ready); }).detach();
    while (ready < 2)
        sleep_s(0.001);
    std::deque<Group> groups(settings.kinds.size());
    for (std::size_t i = 0; i < groups.size(); ++i)
        for (unsigned n = 0; n < static_cast<unsigned>(settings.kinds[i].count); ++n) {
            auto &received = groups[i].received.emplace_back(0);
            std::thread([&, i] { run_flow(settings, settings.kinds[i], groups[i], received); }).detach();
        }
    sleep_s(settings.warm);
    std::vector<std::vector<std::uint64_t>> before;
    before.reserve(groups.size());
    for (const Group &group : groups)
        before.emplace_back(group.received.begin(), group.received.end());
    g_measuring = true;
    const double start = now_s();
    sleep_s(settings.seconds);
    const double seconds = now_s() - start;
    std::printf("[");
    for (std::size_t i = 0; i < groups.size(); ++i)
        print(groups[i], before[i], seconds, i + 1 == groups.size());
    std::printf("]\n");
    std::fflush(stdout);
    std::_Exit(0); // the threads end with the program
}

int run(int argc, char **argv) {
    Settings settings;
    std::vector<Option> options = options_of(settings);
    options.insert(options.end(), {{"flow", [&](const char *value) { return read_kind(value, settings); }},
                                   {"warm", into(settings.warm)},
                                   {"seconds", into(settings.seconds, 1e-3)}});
    if (const auto code = read_options(argc, argv, kHelp, options))
        return *code;
    if (!settings.are_complete() || settings.kinds.empty()) {
        std::fputs(kHelp, stderr);
        return 2;
    }
    return measure(settings);
}

} // namespace
} // namespace podlane::bench

int main(int argc, char **argv) { return podlane::bench::run(argc, argv); }
