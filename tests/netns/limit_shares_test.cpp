// SPDX-License-Identifier: MIT
// Many pods in one limit: what each of them gets, how soon what one leaves is used, and what a packet waits meanwhile.
// Beside HTB it is measured by tests/bench/run --only shares.
#include "tests/netns/limits.hpp"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <numeric>

namespace podlane::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kGroupRate = 100000000;
constexpr std::size_t kPods = 64;
constexpr std::size_t kChunk = 32 * 1024;

// A connection from each of the pods to one that throws away what it gets; all by one thread, so that a busy machine
// treats them alike.
class Bulk {
  public:
    Bulk(const std::vector<Pod> &from, const Pod &to) : listener_(open_socket(to.ns(), Transport::tcp, true, {{}, 9})) {
        if (listen(listener_.get(), static_cast<int>(from.size())) != 0)
            throw std::runtime_error("listen failed");
        for (const Pod &pod : from) {
            senders_.push_back(connected(pod.ns(), Transport::tcp, {to.v4, 9}));
            const linger reset{1, 0};
            setsockopt(senders_.back().get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
            setsockopt(senders_.back().get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
            receivers_.push_back(accepted(listener_));
        }
        thread_ = std::thread([this] { run(); });
    }
    ~Bulk() {
        done_ = true;
        thread_.join();
    }
    Bulk(const Bulk &) = delete;
    Bulk &operator=(const Bulk &) = delete;
    Bulk(Bulk &&) = delete;
    Bulk &operator=(Bulk &&) = delete;

    // The others' connections end at once, and what they have queued.
    void keep_first(std::size_t count) { sending_ = count; }

  private:
    void run() {
        const std::vector<char> data(kChunk);
        std::vector<char> received(kChunk);
        while (!done_) {
            while (senders_.size() > sending_)
                senders_.pop_back();
            std::vector<pollfd> sockets;
            for (const Fd &one : senders_)
                sockets.push_back({one.get(), POLLOUT, 0});
            for (const Fd &one : receivers_)
                sockets.push_back({one.get(), POLLIN, 0});
            poll(sockets.data(), sockets.size(), 20);
            for (const pollfd &one : sockets)
                if ((one.revents & POLLOUT) != 0)
                    (void)send(one.fd, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
                else if ((one.revents & POLLIN) != 0)
                    (void)recv(one.fd, received.data(), received.size(), MSG_DONTWAIT);
        }
    }

    Fd listener_;
    std::vector<Fd> senders_;
    std::vector<Fd> receivers_;
    std::atomic<std::size_t> sending_ = kPods;
    std::atomic<bool> done_ = false;
    std::thread thread_;
};

class LimitShares : public LimitTest {
  protected:
    void SetUp() override {
        if (slow())
            GTEST_SKIP() << "an emulated kernel does not reach the rate";
        Json keys = limits(0, kGroupRate / kPods);
        keys["limitGroup"] = "tenant-a";
        keys["limitGroups"] = {{"tenant-a", {{"egressRate", kGroupRate}}}};
        for (std::size_t i = 0; i < kPods; ++i)
            pods_.push_back(lab_.add_pod(keys));
        receiver_ = lab_.add_pod();
        if (!is_paced())
            GTEST_SKIP() << "this kernel cannot pace";
    }
    // The part of the group's rate that each has sent, in `time`.
    std::vector<double> shares(std::chrono::milliseconds time) {
        const auto all = [&] {
            std::vector<double> bytes;
            for (const Pod &pod : pods_)
                bytes.push_back(static_cast<double>(state(pod, LIMIT_EGRESS).bytes));
            return bytes;
        };
        const auto since = std::chrono::steady_clock::now();
        const std::vector<double> before = all();
        std::this_thread::sleep_for(time);
        std::vector<double> found = all();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
        for (std::size_t i = 0; i < found.size(); ++i)
            found[i] = (found[i] - before[i]) * 8 / seconds / static_cast<double>(kGroupRate);
        return found;
    }
    // Of its guarantee, so many times, for the first `count` pods. A window holds two hundred of the largest packets.
    bool each_gets(std::size_t count, double times) {
        const auto is_so = [&] {
            const std::vector<double> now = shares(16s);
            const auto [least, most] = std::ranges::minmax_element(now.begin(), now.begin() + static_cast<long>(count));
            range_ = std::to_string(*least * kPods) + " to " + std::to_string(*most * kPods) + " of the guarantee";
            return *least * kPods > 0.98 * times && *most * kPods < 1.02 * times;
        };
        return wait_until(is_so, 40s);
    }
    // Of a hundred datagrams, fifty a second.
    std::chrono::nanoseconds slowest_but_one(const Pod &from, const Pod &to) {
        const EchoServer server(to.ns(), true, 7);
        const Fd socket = connected(from.ns(), Transport::udp, {to.v4, 7});
        std::vector<std::chrono::nanoseconds> times;
        for (int i = 0; i < 100; ++i) {
            std::this_thread::sleep_for(20ms);
            const auto start = std::chrono::steady_clock::now();
            if (send_text(socket, "x") != 0 || receive(socket).error != 0)
                return patience();
            times.emplace_back(std::chrono::steady_clock::now() - start);
        }
        std::ranges::sort(times);
        return times[98];
    }

    std::vector<Pod> pods_;
    Pod receiver_;
    std::string range_;
};

TEST_F(LimitShares, OfSixtyFourPodsEachHasItsGuaranteeAndUsesWhatOthersLeave) {
    Bulk bulk(pods_, receiver_);
    EXPECT_TRUE(each_gets(kPods, 1)) << range_;

    std::chrono::nanoseconds slow_one{};
    EXPECT_TRUE(wait_until([&] { return (slow_one = slowest_but_one(pods_[0], receiver_)) < 1ms; }))
        << slow_one.count() << " ns for one in a hundred datagrams";

    bulk.keep_first(kPods / 2);
    const auto left = std::chrono::steady_clock::now();
    EXPECT_TRUE(wait_until([&] {
        const std::vector<double> now = shares(50ms);
        return std::accumulate(now.begin(), now.begin() + kPods / 2, 0.0) > 0.95;
    }));
    EXPECT_LT(std::chrono::steady_clock::now() - left, 500ms);
    EXPECT_TRUE(each_gets(kPods / 2, 2)) << range_;
}

} // namespace
} // namespace podlane::test
