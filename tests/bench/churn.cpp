// SPDX-License-Identifier: MIT
// bench_churn: one download from a limited pod beside connections that come and go, as one line of JSON.
#include "tests/bench/options.hpp"

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace podlane::bench {
namespace {

constexpr char kHelp[] = R"(bench_churn: a download beside connections that come and go, printed as one line of JSON

usage: bench_churn --server-netns NS --client-netns NS --address ADDRESS [options]

  --server-netns NS    serves; a name below /run/netns
  --client-netns NS    downloads and fetches
  --address ADDRESS    the server's, IPv4 or IPv6
  --downloads N        connections that get as much as they can (1)
  --new N              connections a second that each fetch once (0)
  --fetch BYTES        size of what they fetch (100)
  --close-after S      they are closed after so many seconds; 0: they stay (0)
  --idle N             connections that fetched once before the measurement (0)
  --congestion NAME    of the server (cubic)
  --wait               before the download begins, say "ready", and wait for a line
  --warm S             not measured (1)
  --seconds S          (5)

"fetched_ms" are percentiles of the time from connect() to the last byte of a fetch. "samples" are what the downloads got
in each 0.1 s from their beginning on, in bytes, and "slowest_ms" the slowest fetch that ended in each.
)";

constexpr std::size_t kChunk = std::size_t{128} << 10U;
constexpr std::uint16_t kPort = 8080;
constexpr double kSample = 0.1; // seconds

struct Settings : Ends {
    std::string congestion = "cubic";
    unsigned downloads = 1, idle = 0, fetch = 100;
    double rate = 0, close_after = 0, warm = 1, seconds = 5;
    bool is_waiting = false;
};

void watch(int poller, int fd, std::uint32_t events, int how = EPOLL_CTL_ADD) {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (epoll_ctl(poller, how, fd, &event) != 0)
        fail("epoll");
}

// A request is one number of 4 bytes: how many to send; 0: without end.
class Server {
  public:
    explicit Server(const Settings &settings) : poller_(epoll_create1(EPOLL_CLOEXEC)), bulk_(kChunk, 'x') {
        enter(settings.server_netns);
        listener_ = socket(settings.server.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        const int on = 1;
        setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        set_congestion(listener_, settings.congestion);
        if (bind(listener_, reinterpret_cast<const sockaddr *>(&settings.server), settings.server_length) != 0 ||
            listen(listener_, 4096) != 0)
            fail("listening");
        watch(poller_, listener_, EPOLLIN);
    }

    [[noreturn]] void run() {
        std::array<epoll_event, 64> ready{};
        while (true) {
            const int count = epoll_wait(poller_, ready.data(), ready.size(), -1);
            for (int i = 0; i < count; ++i)
                handle(ready[static_cast<std::size_t>(i)]);
        }
    }

  private:
    void handle(const epoll_event &event) {
        const int fd = event.data.fd;
        if (fd == listener_) {
            for (int one = 0; (one = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
                watch(poller_, one, EPOLLIN);
            return;
        }
        if ((event.events & EPOLLOUT) != 0)
            return push(fd);
        std::uint32_t wanted = 0;
        const ssize_t got = recv(fd, &wanted, sizeof wanted, 0);
        if (got <= 0) {
            close(fd);
            left_.erase(fd);
            return;
        }
        left_[fd] = wanted == 0 ? UINT64_MAX : wanted;
        push(fd);
    }
    void push(int fd) {
        std::uint64_t &left = left_[fd];
        while (left > 0) {
            const ssize_t sent = send(fd, bulk_.data(), std::min<std::uint64_t>(left, kChunk), MSG_NOSIGNAL);
            if (sent < 0) {
                if (errno == EAGAIN)
                    return watch(poller_, fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
                close(fd);
                left_.erase(fd);
                return;
            }
            left -= left == UINT64_MAX ? 0 : static_cast<std::uint64_t>(sent);
        }
        watch(poller_, fd, EPOLLIN, EPOLL_CTL_MOD);
    }

    int poller_, listener_ = -1;
    std::vector<char> bulk_;
    std::unordered_map<int, std::uint64_t> left_;
};

class Client {
  public:
    explicit Client(const Settings &settings)
        : settings_(settings), poller_(epoll_create1(EPOLL_CLOEXEC)), buffer_(kChunk) {
        enter(settings.client_netns);
    }

    void run() {
        for (unsigned i = 0; i < settings_.idle; ++i) {
            begin(settings_.fetch);
            while (open_fetches_ > 64)
                poll(0.01);
        }
        while (open_fetches_ > 0)
            poll(0.01);
        fetched_.clear();
        if (settings_.is_waiting) {
            std::puts("ready");
            std::fflush(stdout);
            while (std::getchar() != '\n' && std::feof(stdin) == 0) {
            }
        }
        for (unsigned i = 0; i < settings_.downloads; ++i)
            begin(0);
        const double start = now_s(), end = start + settings_.warm + settings_.seconds;
        start_ = start;
        samples_.assign(static_cast<std::size_t>(std::lround((end - start) / kSample)), {});
        double due = start;
        std::uint64_t before = 0;
        bool is_warm = false;
        for (double now = start; now < end; now = now_s()) {
            for (; settings_.rate > 0 && due <= now; due += 1 / settings_.rate)
                begin(settings_.fetch);
            if (!is_warm && now - start >= settings_.warm) {
                is_warm = true;
                before = downloaded_;
                fetched_.clear();
                missed_ = 0;
            }
            expire(now);
            poll(settings_.rate > 0 ? std::min(0.01, std::max(0.0, due - now)) : 0.01);
        }
        print(static_cast<double>(downloaded_ - before) * 8 / settings_.seconds);
    }

  private:
    struct Fetch {
        std::uint32_t wanted;
        std::uint64_t got;
        double since;
    };
    struct Sample {
        std::uint64_t bytes = 0;
        double slowest_ms = 0;
    };
    Sample &sample(double now) {
        const auto index = static_cast<std::size_t>(std::max(0.0, now - start_) / kSample);
        return samples_[std::min(index, samples_.size() - 1)];
    }
    void begin(std::uint32_t bytes) {
        const int fd = socket(settings_.server.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            fail("socket");
        if (connect(fd, reinterpret_cast<const sockaddr *>(&settings_.server), settings_.server_length) != 0 &&
            errno != EINPROGRESS)
            fail("connecting");
        running_[fd] = {bytes, 0, now_s()};
        open_fetches_ += bytes != 0 ? 1 : 0;
        watch(poller_, fd, EPOLLOUT);
        if (bytes != 0 && settings_.close_after > 0)
            closing_.emplace_back(now_s() + settings_.close_after, fd);
    }
    void expire(double now) {
        for (; !closing_.empty() && closing_.front().first <= now; closing_.pop_front()) {
            const int fd = closing_.front().second;
            if (running_.erase(fd) != 0) {
                --open_fetches_;
                ++missed_;
            }
            close(fd);
        }
    }
    void poll(double seconds) {
        std::array<epoll_event, 64> ready{};
        const int count = epoll_wait(poller_, ready.data(), ready.size(), static_cast<int>(seconds * 1000));
        for (int i = 0; i < count; ++i)
            handle(ready[static_cast<std::size_t>(i)]);
    }
    void handle(const epoll_event &event) {
        const int fd = event.data.fd;
        const auto found = running_.find(fd);
        if (found == running_.end()) {
            epoll_ctl(poller_, EPOLL_CTL_DEL, fd, nullptr);
            return;
        }
        Fetch &fetch = found->second;
        if ((event.events & EPOLLOUT) != 0) {
            if (send(fd, &fetch.wanted, sizeof fetch.wanted, MSG_NOSIGNAL) < 0)
                fail("asking");
            watch(poller_, fd, EPOLLIN, EPOLL_CTL_MOD);
            return;
        }
        const ssize_t got = recv(fd, buffer_.data(), buffer_.size(), 0);
        if (got <= 0)
            fail("receiving");
        if (fetch.wanted == 0) {
            downloaded_ += static_cast<std::uint64_t>(got);
            sample(now_s()).bytes += static_cast<std::uint64_t>(got);
            return;
        }
        fetch.got += static_cast<std::uint64_t>(got);
        if (fetch.got < fetch.wanted)
            return;
        const double now = now_s(), took_ms = (now - fetch.since) * 1e3;
        fetched_.push_back(took_ms);
        if (!samples_.empty())
            sample(now).slowest_ms = std::max(sample(now).slowest_ms, took_ms);
        running_.erase(found);
        --open_fetches_;
    }
    void print(double rate) {
        std::sort(fetched_.begin(), fetched_.end());
        const auto at = [&](double share) {
            return fetched_.empty()
                       ? 0.0
                       : fetched_[std::min(fetched_.size() - 1,
                                           static_cast<std::size_t>(share * static_cast<double>(fetched_.size())))];
        };
        std::printf("{\"mbit\": %.2f, \"fetches\": %zu, \"missed\": %u, \"unfinished\": %u, \"fetched_ms\": "
                    "{\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}, ",
                    rate / 1e6, fetched_.size(), missed_, open_fetches_, at(0.5), at(0.99), at(1));
        const char *before = "\"samples\": [";
        for (const Sample &one : samples_)
            std::printf("%s%llu", std::exchange(before, ", "), static_cast<unsigned long long>(one.bytes));
        before = "], \"slowest_ms\": [";
        for (const Sample &one : samples_)
            std::printf("%s%.2f", std::exchange(before, ", "), one.slowest_ms);
        std::puts("]}");
    }

    const Settings &settings_;
    int poller_;
    std::vector<char> buffer_;
    std::unordered_map<int, Fetch> running_;
    std::deque<std::pair<double, int>> closing_;
    std::vector<double> fetched_;
    std::vector<Sample> samples_;
    double start_ = 0;
    std::uint64_t downloaded_ = 0;
    unsigned open_fetches_ = 0, missed_ = 0;
};

int run(int argc, char **argv) {
    Settings settings;
    std::vector<Option> options = options_of(settings);
    options.insert(options.end(), {{"downloads", into(settings.downloads)},
                                   {"new", into(settings.rate)},
                                   {"fetch", into(settings.fetch, 1)},
                                   {"close-after", into(settings.close_after)},
                                   {"idle", into(settings.idle)},
                                   {"congestion", into(settings.congestion)},
                                   {"wait", {}, &settings.is_waiting},
                                   {"warm", into(settings.warm)},
                                   {"seconds", into(settings.seconds, 1e-3)}});
    if (const auto code = read_options(argc, argv, kHelp, options))
        return *code;
    if (!settings.are_complete()) {
        std::fputs(kHelp, stderr);
        return 2;
    }
    port_of(settings.server) = htons(kPort);
    constexpr rlimit kFiles{200000, 200000};
    setrlimit(RLIMIT_NOFILE, &kFiles);
    std::array<int, 2> listening{};
    if (pipe(listening.data()) != 0)
        fail("pipe");
    const pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        Server one(settings);
        static_cast<void>(write(listening[1], "x", 1) == 1);
        one.run();
    }
    close(listening[1]);
    char byte = 0;
    if (read(listening[0], &byte, 1) != 1)
        return 1;
    Client(settings).run();
    kill(server, SIGKILL);
    waitpid(server, nullptr, 0);
    return 0;
}

} // namespace
} // namespace podlane::bench

int main(int argc, char **argv) { return podlane::bench::run(argc, argv); }
