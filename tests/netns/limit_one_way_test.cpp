// SPDX-License-Identifier: MIT
// Transfers one way, which nothing but acknowledgements answers: what they leave of a limit in that direction, and what
// a limited pod gets of one from another network of the node.
#include "tests/netns/kube_proxy.hpp"
#include "tests/netns/limits.hpp"

#include "loader/edt.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 8;
constexpr std::uint64_t kLow = 2000000; // a part of what the acknowledgements would take

// As fast as it can.
class OneWay {
  public:
    OneWay(const Pod &from, const Pod &to) : OneWay(from.ns(), to, {to.v4, kPort}) {}
    // `at`: where the sender finds it.
    OneWay(const net::Namespace &from, const Pod &to, const Endpoint &at)
        : listener_(open_socket(to.ns(), Transport::tcp, true, {to.v4, at.port})) {
        EXPECT_EQ(::listen(listener_.get(), 1), 0);
        sender_ = connected(from, Transport::tcp, at);
        receiver_ = accepted(listener_);
        sending_.emplace([this, buffer = std::vector<char>(1U << 16U)] {
            if (::send(sender_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) < 0)
                usleep(100);
        });
        receiving_.emplace([this, buffer = std::vector<char>(1U << 14U)]() mutable {
            const ssize_t got = ::recv(receiver_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            received_ += got > 0 ? static_cast<std::uint64_t>(got) : (usleep(100), 0);
        });
    }
    [[nodiscard]] std::uint64_t received() const { return received_; }
    // Bits per second that arrive during `time`.
    [[nodiscard]] double measure(std::chrono::milliseconds time) const {
        const auto start = std::chrono::steady_clock::now();
        const std::uint64_t before = received_;
        std::this_thread::sleep_for(time);
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        return static_cast<double>(received_ - before) * 8 / passed.count();
    }

  private:
    Fd listener_, sender_, receiver_;
    std::atomic<std::uint64_t> received_ = 0;
    std::optional<Repeat> sending_, receiving_;
};

class LimitOneWay : public LimitTest {
  protected:
    void SetUp() override {
        if (slow())
            GTEST_SKIP() << "an emulated kernel does not reach the rate";
    }
    // The best of some rounds: a machine may be busy with other things in one.
    static double best(double enough, const std::function<double()> &measure) {
        double most = 0;
        for (int round = 0; round < 5 && most < enough; ++round)
            most = std::max(most, measure());
        return most;
    }
    // Of a sender that finds the pod at `at`.
    static double rate_of(const net::Namespace &from, const Pod &to, const Endpoint &at, double enough) {
        const OneWay transfer(from, to, at);
        EXPECT_TRUE(wait_until([&] { return transfer.received() > std::uint64_t{1} << 20U; }));
        return best(enough, [&] { return transfer.measure(std::chrono::seconds(1)); });
    }
    // The node gives the pod as a backend to who calls the service.
    void serve(const Pod &pod) {
        const KubeProxy proxy({{"a", service_.addr, kPort, {pod.v4}, kPort}}, Lab::kPods4);
        lab_.node().run("nft -f -", proxy.nftables());
    }
    // From `from` to `to` a limit of kLow holds, the other way none does.
    void expect_room(const Pod &from, const Pod &to) {
        if (!is_paced())
            GTEST_SKIP() << "this kernel cannot pace";
        const OneWay fast(to, from);
        ASSERT_TRUE(wait_until([&] { return fast.received() > std::uint64_t{64} << 20U; }));
        constexpr double kEnough = 0.7 * kPayload * kLow;
        EXPECT_GT(best(kEnough, [&] { return goodput(from.ns(), to.v4, to.ns(), 1); }), kEnough);
        EXPECT_GT(fast.measure(std::chrono::seconds(1)), 50 * kLow);
        const std::string said =
            run(from.ns(), {"ping", "-n", "-q", "-c", "10", "-i", "0.05", "-W", "5", to_string(to.v4)}).out;
        EXPECT_NE(said.find(" 0% packet loss"), std::string::npos) << said;
    }

    static constexpr double kEnough = 0.8 * kPayload * kRate;
    const Endpoint service_{ip("198.18.255.1"), kPort};
};

TEST_F(LimitOneWay, ItsAcknowledgementsLeaveAnIngressLimitToBulkAndPings) {
    const Pod limited = lab_.add_pod(limits(kLow, 0));
    const Pod free = lab_.add_pod();
    expect_room(free, limited);
}

TEST_F(LimitOneWay, ItsAcknowledgementsLeaveAnEgressLimitToBulkAndPings) {
    const Pod limited = lab_.add_pod(limits(0, kLow));
    const Pod free = lab_.add_pod();
    expect_room(limited, free);
}

// Small frames within the burst take nothing from the part by which acknowledgements pass beside bulk.
TEST_F(LimitOneWay, ItsAcknowledgementsPassBesideBulkAndManySmallFrames) {
    const Pod limited = lab_.add_pod(limits(0, kRate));
    const Pod free = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    const OneWay bulk(limited, free);
    ASSERT_TRUE(wait_until([&] { return bulk.received() > std::uint64_t{2} << 20U; }));
    const OneWay fast(free, limited);
    ASSERT_TRUE(wait_until([&] { return fast.received() > std::uint64_t{64} << 20U; }));
    const double enough = 0.4 * fast.measure(std::chrono::seconds(1));
    const Fd socket = connected(limited.ns(), Transport::udp, {free.v4, 9});
    const Repeat small([&, datagram = std::vector<char>(150)] { // a tenth of the rate and more
        (void)::send(socket.get(), datagram.data(), datagram.size(), MSG_DONTWAIT);
        usleep(900);
    });
    EXPECT_GT(best(enough, [&] { return fast.measure(std::chrono::seconds(1)); }), enough);
}

// Its sender is paced by the share that is left to it: held at the qdisc besides, it would be announced half.
TEST_F(LimitOneWay, FromAnotherNetworkOfTheNodeItGetsTheRate) {
    const Pod limited = lab_.add_pod(limits(kRate, 0));
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    const Json ranges = {{{{"subnet", "198.18.10.0/24"}}}, {{{"subnet", "2001:db8:10::/64"}}}};
    Chain chain(lab_.node(), {lab_.node().config({{"ipam", {{"ranges", ranges}}}})}, "1.0.0", "other");
    const auto container = lab_.node().container();
    ASSERT_THAT(chain.add(*container), succeeds());
    const Pod other = observe(lab_.node(), container);
    const OneWay transfer(other, limited);
    ASSERT_TRUE(wait_until([&] { return transfer.received() > std::uint64_t{1} << 20U; }));
    EXPECT_GT(best(kEnough, [&] { return transfer.measure(std::chrono::seconds(1)); }), kEnough);
    lab_.node().run("nft -f -", "table ip nat { chain c { type nat hook postrouting priority 100;\n"
                                "ip saddr 198.18.10.0/24 masquerade\n}\n}\n");
    if (!require(edt_qdisc()).empty()) {
        EXPECT_GT(rate_of(other.ns(), limited, {limited.v4, kPort + 1}, kEnough), kEnough) << "masqueraded";
    }
    EXPECT_THAT(chain.del(*container), succeeds());
}

// pl_pace does not find the receiver by the address that the sender's socket has.
TEST_F(LimitOneWay, ByAServiceItGetsTheRate) {
    const Pod limited = lab_.add_pod(limits(kRate, 0));
    const Pod free = lab_.add_pod();
    if (require(edt_qdisc()).empty())
        GTEST_SKIP() << "this kernel cannot hold what is not paced";
    serve(limited);
    for (const net::Namespace *from : {&free.ns(), &lab_.node().ns()})
        EXPECT_GT(rate_of(*from, limited, service_, kEnough), kEnough) << (from == &free.ns() ? "pod" : "node");
}

// A sender that is paced for another limit is held to this one as any other.
TEST_F(LimitOneWay, ByAServiceThePaceOfAnotherLimitIsNotTaken) {
    for (const char *limiter : {"auto", "pace"}) {
        SCOPED_TRACE(limiter);
        Json keys = limits(kRate / 2, 0);
        keys["limiter"] = limiter;
        const Pod limited = lab_.add_pod(keys);
        const Pod sender = lab_.add_pod(limits(0, kRate));
        serve(limited);
        const OneWay transfer(sender.ns(), limited, service_);
        EXPECT_TRUE(wait_until([&] { return transfer.received() > 100000; }));
        EXPECT_LT(transfer.measure(std::chrono::milliseconds(1500)), 0.65 * kRate);
        lab_.node().run("nft delete table ip kube-proxy");
    }
}

// A queue that is as long as the burst would leave nothing to who is steered to a shorter one.
TEST_F(LimitOneWay, WhatComesFromElsewhereLeavesPacedSendersTheirPart) {
    const Pod limited = lab_.add_pod(limits(kRate, 0));
    const Pod free = lab_.add_pod();
    if (!is_paced() || require(edt_qdisc()).empty())
        GTEST_SKIP() << "this kernel cannot pace, or not hold what is not paced";
    lab_.node().run("ip route replace " + std::string(Lab::kOutside4) + " dev up0");
    (void)must_run(lab_.outside(), words("ip route add " + std::string(Lab::kPods4) + " via " + Lab::kNode4));
    const OneWay paced(free, limited);
    ASSERT_TRUE(wait_until([&] { return paced.received() > std::uint64_t{1} << 20U; }));
    constexpr double kHalf = 0.3 * kRate;
    {
        const OneWay other(lab_.outside(), limited, {limited.v4, kPort + 1});
        ASSERT_TRUE(wait_until([&] { return other.received() > std::uint64_t{1} << 18U; }));
        EXPECT_GT(best(kHalf, [&] { return paced.measure(std::chrono::seconds(2)); }), kHalf) << "beside TCP";
        constexpr double kLess = 0.15 * kRate;
        EXPECT_GT(best(kLess, [&] { return other.measure(std::chrono::seconds(2)); }), kLess) << "TCP";
    }
    const Fd socket = connected(lab_.outside(), Transport::udp, {limited.v4, 9});
    const Repeat flooding([&, text = std::string(1400, 'u')] {
        (void)send_text(socket, text);
        usleep(200);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(500)); // its queue fills
    EXPECT_GT(best(kHalf, [&] { return paced.measure(std::chrono::seconds(2)); }), kHalf) << "beside a flood";
}

} // namespace
} // namespace podlane::test
