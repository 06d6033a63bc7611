// SPDX-License-Identifier: MIT
// Pods with limits: what they get, and what the bucket of a limit has seen.
#pragma once

#include "tests/harness/outcome.hpp"
#include "tests/harness/repeat.hpp"
#include "tests/netns/lab.hpp"

#include "loader/pace.hpp"
#include "tools/podlanectl/cli/cli.hpp"

namespace podlane::test {

constexpr std::uint64_t kRate = 20000000; // bits per second
constexpr std::uint64_t kAutoBurst = 0x7fffffff;
constexpr double kPayload = 1448.0 / 1514; // of a full frame

inline Json limits(std::uint64_t ingress, std::uint64_t egress, std::uint64_t burst = kAutoBurst) {
    Json keys = Json::object();
    if (ingress != 0)
        keys.update({{"ingressRate", ingress}, {"ingressBurst", burst}});
    if (egress != 0)
        keys.update({{"egressRate", egress}, {"egressBurst", burst}});
    return keys;
}

// Datagrams, as fast as they can be sent. Nobody listens: they are refused now and then.
inline Repeat flood(const Pod &from, const ip_addr &to) {
    return Repeat([socket = connected(from.ns(), Transport::udp, {to, 9}), text = std::string(1400, 'u')] {
        (void)send_text(socket, text);
    });
}

class LimitTest : public testing::Test {
  protected:
    // The mean rate at which `flows` connections get bytes through, once they have begun.
    double goodput(const net::Namespace &from, const ip_addr &to, const net::Namespace &receiver, int flows) const {
        const EchoServer server(receiver, true, 7);
        std::atomic<std::uint64_t> bytes = 0;
        std::vector<std::thread> senders;
        const auto start = std::chrono::steady_clock::now();
        const auto end = start + kTime;
        for (int i = 0; i < flows; ++i)
            senders.emplace_back([&] {
                const Fd socket = open_socket(from, Transport::tcp, true);
                if (connect_to(socket, {to, 7}) != 0)
                    return;
                while (std::chrono::steady_clock::now() < end && transfer(socket, 16384) == 0)
                    bytes += 16384;
            });
        for (std::thread &sender : senders)
            sender.join();
        return static_cast<double>(bytes.load()) * 8 /
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    // SO_MAX_PACING_RATE, in bytes per second.
    [[nodiscard]] static unsigned pacing_rate_of(const Fd &socket) {
        unsigned rate = 0;
        socklen_t size = sizeof rate;
        EXPECT_EQ(getsockopt(socket.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size), 0);
        return rate;
    }
    [[nodiscard]] limit_state state(const Pod &pod, limit_direction direction) {
        return require(require(open_limit_states(lab_.node().bpffs(), Access::read_only))
                           .find({pod.ifindex, static_cast<std::uint32_t>(direction)}))
            .value();
    }
    Output ctl(const std::vector<std::string> &words) { return lab_.node().podlanectl(words); }
    static void expect_rate(double measured, std::uint64_t rate = kRate) {
        EXPECT_LT(measured, 1.1 * static_cast<double>(rate));
        if (!slow()) {
            EXPECT_GT(measured, 0.8 * kPayload * static_cast<double>(rate));
        }
    }
    [[nodiscard]] bool is_paced() { return require(is_pacing(lab_.node().bpffs())); }

    static constexpr std::chrono::seconds kTime{2};
    Lab lab_;
};

} // namespace podlane::test
