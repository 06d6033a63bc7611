// SPDX-License-Identifier: MIT
// bench_delay: a wire between two interfaces that takes its time, where the kernel has no netem.
#include "maps/fd.hpp"
#include "tests/bench/options.hpp"

#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace podlane::bench {
namespace {

constexpr char kHelp[] = R"(bench_delay: carries frames between two interfaces until it is killed

usage: bench_delay --from IFNAME --to IFNAME --ms MS

  --from IFNAME   what it receives leaves the other one later by MS
  --to IFNAME     what it receives leaves the first one at once
  --ms MS         milliseconds

It prints "ready" once it carries frames. Segments that are not split yet, and checksums that are not computed yet, are
carried as they are.
)";

constexpr std::int64_t kNsPerMs = 1000000, kNsPerSecond = 1000000000;
constexpr std::size_t kLargest = (std::size_t{1} << 16U) + 512; // a frame before it is split, and its header of virtio
constexpr int kBuffered = 64 << 20;
constexpr double kMostMs = 10000;

using Frame = std::vector<std::uint8_t>;

struct Late {
    std::int64_t due_ns;
    Frame frame;
};

std::int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

Fd open_wire(const std::string &ifname) {
    Fd wire(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL)));
    sockaddr_ll where{};
    where.sll_family = AF_PACKET;
    where.sll_protocol = htons(ETH_P_ALL);
    where.sll_ifindex = static_cast<int>(if_nametoindex(ifname.c_str()));
    const int on = 1;
    if (!wire || where.sll_ifindex == 0 || setsockopt(wire.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
        setsockopt(wire.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0 ||
        setsockopt(wire.get(), SOL_SOCKET, SO_RCVBUFFORCE, &kBuffered, sizeof kBuffered) != 0 ||
        setsockopt(wire.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kBuffered, sizeof kBuffered) != 0 ||
        bind(wire.get(), reinterpret_cast<const sockaddr *>(&where), sizeof where) != 0) {
        std::perror(("bench_delay: " + ifname).c_str());
        return {};
    }
    return wire;
}

// A queue is none of a wire's: what the other end refuses is lost.
void send_frame(const Fd &wire, const Frame &frame) {
    while (send(wire.get(), frame.data(), frame.size(), 0) < 0 && errno == EINTR) {
    }
}

template <typename Take> void receive_all(const Fd &wire, const Take &take) {
    static std::array<std::uint8_t, kLargest> buffer;
    for (ssize_t size; (size = recv(wire.get(), buffer.data(), buffer.size(), 0)) > 0;)
        take(Frame(buffer.begin(), buffer.begin() + size));
}

int carry(const Fd &from, const Fd &to, std::int64_t delay_ns) {
    std::deque<Late> late;
    std::array<pollfd, 2> both{{{from.get(), POLLIN, 0}, {to.get(), POLLIN, 0}}};
    for (;;) {
        timespec left{};
        if (!late.empty()) {
            const std::int64_t ns = std::max<std::int64_t>(late.front().due_ns - now_ns(), 0);
            left = {ns / kNsPerSecond, ns % kNsPerSecond};
        }
        if (ppoll(both.data(), both.size(), late.empty() ? nullptr : &left, nullptr) < 0 && errno != EINTR) {
            std::perror("bench_delay: ppoll");
            return 1;
        }
        receive_all(from, [&](Frame frame) { late.push_back({now_ns() + delay_ns, std::move(frame)}); });
        receive_all(to, [&](const Frame &frame) { send_frame(from, frame); });
        for (; !late.empty() && late.front().due_ns <= now_ns(); late.pop_front())
            send_frame(to, late.front().frame);
    }
}

int run(int argc, char **argv) {
    std::string from, to;
    double ms = 0;
    const std::vector<Option> options = {{"from", into(from)}, {"to", into(to)}, {"ms", into(ms, 0, kMostMs)}};
    if (const auto code = read_options(argc, argv, kHelp, options))
        return *code;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    const Fd first = open_wire(from), second = open_wire(to);
    if (!first || !second)
        return 1;
    if (std::puts("ready") < 0 || std::fflush(stdout) != 0)
        return 1;
    return carry(first, second, static_cast<std::int64_t>(ms * kNsPerMs));
}

} // namespace
} // namespace podlane::bench

int main(int argc, char **argv) { return podlane::bench::run(argc, argv); }
