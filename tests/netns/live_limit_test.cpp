// SPDX-License-Identifier: MIT
// Limits that begin, or change, while connections send as fast as they can: nothing is lost by it.
#include "tests/netns/limits.hpp"

#include "loader/notify_sockets.hpp"

#include <netinet/tcp.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 9000;
constexpr std::uint64_t kLimit = 100000000;

// What Repeat does: `work` with each of the sockets that is ready for it.
template <typename Work> auto serving(const std::vector<Fd> &sockets, short events, Work work) {
    std::vector<pollfd> all;
    for (const Fd &socket : sockets)
        all.push_back({socket.get(), events, 0});
    return [all, work, data = std::vector<char>(131072, 'b')]() mutable {
        if (poll(all.data(), all.size(), 20) > 0)
            for (const pollfd &one : all)
                if (one.revents != 0)
                    work(one.fd, data);
    };
}

// Connections that send as fast as they can, and what comes of them.
class Stream {
  public:
    Stream(const net::Namespace &from, const Pod &to, const ip_addr &addr, int flows) {
        const Fd listener = open_socket(to.ns(), Transport::tcp, is_ipv4(addr), {{}, kPort});
        if (listen(listener.get(), flows) != 0)
            throw std::runtime_error("listen");
        for (int i = 0; i < flows; ++i) {
            const Fd &sender = senders_.emplace_back(open_socket(from, Transport::tcp, is_ipv4(addr)));
            EXPECT_EQ(setsockopt(sender.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5), 0);
            EXPECT_EQ(connect_to(sender, {addr, kPort}), 0);
            receivers_.push_back(accepted(listener));
        }
        sending_.emplace(serving(senders_, POLLOUT,
                                 [](int fd, auto &data) { (void)send(fd, data.data(), data.size(), MSG_NOSIGNAL); }));
        receiving_.emplace(serving(receivers_, POLLIN, [this](int fd, auto &data) {
            const ssize_t got = recv(fd, data.data(), data.size(), 0);
            bytes_ += got > 0 ? static_cast<std::uint64_t>(got) : 0;
        }));
    }

    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] std::uint64_t flows() const { return senders_.size(); }
    [[nodiscard]] std::uint64_t retransmitted() const {
        std::uint64_t segments = 0;
        for (const Fd &socket : senders_) {
            tcp_info facts{};
            socklen_t size = sizeof facts;
            EXPECT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &facts, &size), 0);
            segments += facts.tcpi_total_retrans;
        }
        return segments;
    }

  private:
    std::atomic<std::uint64_t> bytes_ = 0;
    std::vector<Fd> senders_, receivers_;
    std::optional<Repeat> sending_, receiving_;
};

class LiveLimit : public LimitTest {
  protected:
    void SetUp() override {
        pod_ = lab_.add_pod();
        other_ = lab_.add_pod();
        if (const auto notifier = SocketNotifier::load(lab_.node().bpffs()); !notifier)
            GTEST_SKIP() << "existing connections cannot be notified here: " << notifier.error().message << "\n"
                         << notifier.error().hint;
    }
    void set(limit_direction direction, const std::string &rate) {
        const Output set =
            ctl({"bandwidth", "set", pod_.host_ifname, direction == LIMIT_EGRESS ? "--egress" : "--ingress", rate});
        ASSERT_EQ(set.rc, 0) << set.err;
    }
    // The rate that is set holds, and nothing is dropped by it. From then on nothing is sent again either, but a
    // segment of each connection may be a probe, because an acknowledgement took its time. At full speed before there
    // is more.
    void expect_no_loss_by(const Stream &stream, limit_direction direction, std::uint64_t rate) {
        set(direction, std::to_string(rate));
        const std::uint64_t retransmitted = stream.retransmitted();
        const limit_state before = state(pod_, direction);
        const auto start = std::chrono::steady_clock::now();
        EXPECT_TRUE(wait_until([&] { return std::chrono::steady_clock::now() > start + kTime; }));
        const limit_state after = state(pod_, direction);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        const double bits = static_cast<double>(after.bytes - before.bytes) * 8;
        EXPECT_LT(bits, static_cast<double>(rate) * (seconds * 1.02 + 0.1));
        if (!slow()) {
            EXPECT_GT(bits, static_cast<double>(rate) * seconds * 0.8);
        }
        EXPECT_EQ(after.dropped, 0U);
        EXPECT_EQ(lab_.count(pod_, REASON_DROP_EGRESS_LIMIT) + lab_.count(pod_, REASON_DROP_INGRESS_LIMIT), 0U);
        EXPECT_LE(stream.retransmitted(), retransmitted + stream.flows());
    }
    void expect_no_loss(const net::Namespace &from, const Pod &to, limit_direction direction) {
        for (const int flows : {1, 8}) {
            const Stream stream(from, to, to.v4, flows);
            ASSERT_TRUE(wait_until([&] { return stream.bytes() > 4 * big(); }));
            expect_no_loss_by(stream, direction, kLimit);
            set(direction, "0");
        }
    }

    Pod pod_, other_;
};

TEST_F(LiveLimit, AKilledChangeLeavesNoCongestionControl) {
    const pid_t child = fork();
    if (child == 0) {
        const auto notifier = SocketNotifier::load(lab_.node().bpffs());
        (void)raise(notifier ? SIGKILL : SIGABRT);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(WTERMSIG(status), SIGKILL);
    // Tests that run at the same time have it for a moment.
    const auto left = [] {
        const std::string all = read_file("/proc/sys/net/ipv4/tcp_available_congestion_control");
        return all.find("pl_cut") != std::string::npos;
    };
    EXPECT_TRUE(wait_until([&] { return !left(); }));
}

TEST_F(LiveLimit, OfWhatAPodSendsBeginsWithoutLoss) { expect_no_loss(pod_.ns(), other_, LIMIT_EGRESS); }

TEST_F(LiveLimit, OfWhatAPodGetsFromAnotherBeginsWithoutLoss) { expect_no_loss(other_.ns(), pod_, LIMIT_INGRESS); }

TEST_F(LiveLimit, OfWhatAPodGetsFromTheNodeBeginsWithoutLoss) { expect_no_loss(lab_.node().ns(), pod_, LIMIT_INGRESS); }

TEST_F(LiveLimit, ChangesWithoutLoss) {
    const Stream stream(pod_.ns(), other_, other_.v6, 4);
    ASSERT_TRUE(wait_until([&] { return stream.bytes() > big(); }));
    for (const std::uint64_t rate : {kLimit * 5, kLimit, kLimit / 5, kLimit * 4})
        expect_no_loss_by(stream, LIMIT_EGRESS, rate);
}

// The limit's own count beside the endpoint's, which no change touches.
TEST_F(LiveLimit, WhatPassesWhileItChangesIsCharged) {
    ASSERT_EQ(run(pod_.ns(), {"sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"}).rc, 0); // its own go another way
    constexpr std::uint64_t kMoreThanPasses = 20000000000;
    set(LIMIT_EGRESS, std::to_string(kMoreThanPasses));
    const auto uncharged = [&] { return lab_.count(pod_, REASON_SENT_DIRECT) - state(pod_, LIMIT_EGRESS).packets; };
    const std::uint64_t before = uncharged();
    const Fd receiver = open_socket(other_.ns(), Transport::udp, true, {{}, kPort});
    const Fd sender = connected(pod_.ns(), Transport::udp, {other_.v4, kPort});
    {
        const Repeat sending([&] { (void)send(sender.get(), "x", 1, 0); });
        for (std::uint64_t change = 0; change < 100; ++change)
            set(LIMIT_EGRESS, std::to_string(kMoreThanPasses + change % 2));
    }
    EXPECT_EQ(uncharged(), before);
}

} // namespace
} // namespace podlane::test
