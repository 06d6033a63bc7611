// SPDX-License-Identifier: MIT
// Limited connections whose path is slower than their limit: what congestion control has learned of it stays.
#include "tests/netns/limits.hpp"

#include <netinet/tcp.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 8;
constexpr std::uint64_t kPath = 50000000; // bits per second

class LimitPath : public LimitTest {
  protected:
    void SetUp() override {
        if (slow())
            GTEST_SKIP() << "an emulated kernel does not reach the rate";
        // Its queue makes round trips longer than those for which windows are clamped, and is soon full.
        lab_.node().run("tc qdisc add dev up0 root tbf rate " + std::to_string(kPath) + " burst 16k latency 12ms");
    }
    // Segments sent again by a connection of cubic from the pod to the outside, of a hundred.
    [[nodiscard]] double retransmitted(const Pod &pod) {
        const Endpoint at{ip(Lab::kOutside4), kPort};
        const Fd listener = open_socket(lab_.outside(), Transport::tcp, true, at);
        EXPECT_EQ(::listen(listener.get(), 1), 0);
        const Fd sender = open_socket(pod.ns(), Transport::tcp, true);
        EXPECT_EQ(setsockopt(sender.get(), IPPROTO_TCP, TCP_CONGESTION, "cubic", 5), 0);
        EXPECT_EQ(connect_to(sender, at), 0);
        const Fd receiver = accepted(listener);
        std::atomic<std::uint64_t> received = 0;
        const Repeat sending([&, buffer = std::vector<char>(1U << 16U)] {
            if (::send(sender.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) < 0)
                usleep(100);
        });
        const Repeat receiving([&, buffer = std::vector<char>(1U << 16U)]() mutable {
            const ssize_t got = ::recv(receiver.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            received += got > 0 ? static_cast<std::uint64_t>(got) : (usleep(100), 0);
        });
        EXPECT_TRUE(wait_until([&] { return received > kPath / 8 * 4; }));
        tcp_info facts{};
        socklen_t size = sizeof facts;
        EXPECT_EQ(getsockopt(sender.get(), IPPROTO_TCP, TCP_INFO, &facts, &size), 0);
        return 100.0 * facts.tcpi_total_retrans / (static_cast<double>(received) / 1448);
    }
};

// The kernel sets the slow start threshold with a window's clamp.
TEST_F(LimitPath, ALimitAboveItLosesNoMorePackets) {
    Json keys = limits(0, 4 * kPath);
    keys["ipMasq"] = true;
    const Pod limited = lab_.add_pod(keys), free = lab_.add_pod(Json{{"ipMasq", true}});
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    bool is_no_more = false;
    for (int round = 0; round < 3 && !is_no_more; ++round) { // a machine may be busy with other things in one
        const double usual = retransmitted(free), held = retransmitted(limited);
        std::cout << "retransmitted: " << usual << " % without a limit, " << held << " % with one" << std::endl;
        is_no_more = held < 2 * usual + 0.02;
    }
    EXPECT_TRUE(is_no_more);
}

} // namespace
} // namespace podlane::test
