// SPDX-License-Identifier: MIT
// Connections that never leave their pod, as if to another one's address: they take nothing of that one's limit.
#include "tests/netns/attacker.hpp"
#include "tests/netns/limits.hpp"

#include "maps/abi/fair_share.h"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

// Connections that send all they can to an EchoServer.
class Bulk {
  public:
    explicit Bulk(std::vector<Fd> sockets)
        : sockets_(std::move(sockets)), sending_([this, buffer = std::vector<char>(1U << 16U)]() mutable {
              for (const Fd &socket : sockets_) {
                  (void)::send(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
                  const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
                  echoed_ += got > 0 ? static_cast<std::uint64_t>(got) : 0;
              }
              usleep(500);
          }) {}
    Bulk(const net::Namespace &from, const Endpoint &to) : Bulk(open(from, to, 1)) {}

    static std::vector<Fd> open(const net::Namespace &from, const Endpoint &to, int count, const Endpoint &local = {}) {
        std::vector<Fd> all;
        for (int i = 0; i < count; ++i)
            all.push_back(connected(from, Transport::tcp, to, local));
        return all;
    }
    [[nodiscard]] std::uint64_t echoed() const { return echoed_; }

  private:
    std::vector<Fd> sockets_;
    std::atomic<std::uint64_t> echoed_ = 0;
    Repeat sending_;
};

// By a socket of IPv6.
std::vector<Fd> open_mapped(const net::Namespace &from, const ip_addr &to) {
    const auto inside = require(net::enter(from));
    std::vector<Fd> all;
    all.emplace_back(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in6 there = to_sockaddr(to, kPort);
    EXPECT_EQ(::connect(all.front().get(), reinterpret_cast<const sockaddr *>(&there), sizeof there), 0); // NOLINT
    return all;
}

class AttackShare : public LimitTest {
  protected:
    // A limited pod to which `open` sends counts it among its flows.
    void expect_weight(const std::function<std::vector<Fd>(const Pod &)> &open, bool ipv4 = true) {
        const Pod limited = lab_.add_pod(limits(kRate, 0));
        const EchoServer server(limited.ns(), ipv4, kPort);
        const Bulk bulk(open(limited));
        EXPECT_TRUE(wait_until([&] { return state(limited, LIMIT_INGRESS).weight >= ONE / 2; }));
        EXPECT_TRUE(wait_until([&] { return bulk.echoed() > kRate / 8 / 2; }));
        EXPECT_TRUE(wait_until([&] { return state(limited, LIMIT_INGRESS).weight >= ONE / 2; }));
    }
};

TEST_F(AttackShare, ConnectionsWithinAPodTakeNothingOfAnothersLimit) {
    if (slow())
        GTEST_SKIP() << "an emulated kernel does not reach the rate";
    const Pod limited = lab_.add_pod(limits(kRate, 0)), free = lab_.add_pod(), hostile = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    const EchoServer server(limited.ns(), true, kPort);
    const Bulk of_pod(free.ns(), {limited.v4, kPort}), of_node(lab_.node().ns(), {limited.v4, kPort});
    const auto measure = [&] {
        const std::uint64_t before = of_pod.echoed() + of_node.echoed();
        std::this_thread::sleep_for(std::chrono::milliseconds(1500)); // the gain makes up for it later
        return of_pod.echoed() + of_node.echoed() - before;
    };
    ASSERT_TRUE(wait_until([&] { return of_pod.echoed() > 1U << 19U && of_node.echoed() > 1U << 19U; }));
    const std::uint64_t enough = measure() * 7 / 10;
    (void)hostile.container->run("ip addr add " + to_string(limited.v4) + "/32 dev lo");
    const EchoServer decoy(hostile.ns(), true, kPort);
    std::uint64_t most = 0;
    for (int round = 0; round < 3 && most < enough; ++round) { // the machine may be busy with other things in one
        const Bulk phantoms(Bulk::open(hostile.ns(), {limited.v4, kPort}, 256, {hostile.v4, 0}));
        most = std::max(most, measure());
        EXPECT_GT(phantoms.echoed(), 0U);
    }
    EXPECT_GT(most, enough);
}

TEST_F(AttackShare, WhatLeavesItsPodHasAPart) {
    const Pod free = lab_.add_pod(), slow_path = lab_.add_pod(Json{{"fastPath", "off"}});
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    for (const net::Namespace *from : {&free.ns(), &slow_path.ns(), &lab_.node().ns()}) {
        SCOPED_TRACE(from == &free.ns() ? "fast path" : from == &slow_path.ns() ? "slow path" : "node");
        expect_weight([&](const Pod &to) { return Bulk::open(*from, {to.v4, kPort}, 1); });
        expect_weight([&](const Pod &to) { return Bulk::open(*from, {to.v6, kPort}, 1); }, false);
        expect_weight([&](const Pod &to) { return open_mapped(*from, to.v4); });
    }
}

} // namespace
} // namespace podlane::test
