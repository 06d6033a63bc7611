// SPDX-License-Identifier: MIT
// The qdisc at a pod's own end: what is not TCP waits for its turn at the egress limit, and the bucket drops nothing.
#include "tests/netns/limits.hpp"

#include "loader/edt.hpp"

#include <netinet/udp.h>

namespace podlane::test {
namespace {

constexpr int kAttempts = 3; // at a rate, beside other work
constexpr double kTwice = 2.0 * kRate;

// Datagrams of a sender that waits for its socket, and what arrives of them. They carry their number.
class Flow {
  public:
    Flow(const Pod &from, const Pod &to, const ip_addr &addr, std::uint16_t port, double rate, std::size_t bytes = 1400)
        : sink_(open_socket(to.ns(), Transport::udp, is_ipv4(addr), {addr, port})),
          socket_(connected(from.ns(), Transport::udp, {addr, port})) {
        EXPECT_EQ(set_option(sink_, SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20), 0);
        receiving_.emplace([this] { receive_all(); });
        sending_.emplace([this, rate, text = std::string(bytes, 'u'), start = std::chrono::steady_clock::now()] {
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
            const auto due = static_cast<std::uint64_t>(passed.count() * rate / 8 / static_cast<double>(text.size()));
            if (sent_ >= due)
                usleep(1000);
            else if (::send(socket_.get(), text.data(), text.size(), 0) > 0)
                ++sent_;
        });
    }
    // Ends the sender, and waits for what is under way. How many are missing.
    std::uint64_t lost() {
        sending_.reset();
        (void)wait_until([&] { return arrived_ == sent_; });
        return sent_ - arrived_;
    }
    [[nodiscard]] std::uint64_t arrived() const { return arrived_; }
    [[nodiscard]] const Fd &socket() const { return socket_; }

  private:
    void receive_all() {
        pollfd one{sink_.get(), POLLIN, 0};
        std::array<char, 65536> buffer{};
        if (poll(&one, 1, 20) > 0)
            while (recv(sink_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) > 0)
                ++arrived_;
    }

    std::atomic<std::uint64_t> sent_ = 0, arrived_ = 0;
    Fd sink_, socket_;
    std::optional<Repeat> receiving_, sending_;
};

class Shaper : public LimitTest {
  protected:
    void SetUp() override {
        limited_ = lab_.add_pod(limits(0, kRate));
        other_ = lab_.add_pod();
        if (qdiscs(limited_).find(kQdisc) == std::string::npos && require(edt_qdisc()).empty())
            GTEST_SKIP() << "this kernel has no htb";
    }
    static std::string qdiscs(const Pod &pod) { return run(pod.ns(), words("tc qdisc show dev eth0")).out; }
    static std::string rate_of(const Pod &pod) {
        return run(pod.ns(), words("tc class show dev eth0 classid 504c:10")).out;
    }
    // Of the limit, in `time`.
    double rate(const Pod &pod, std::uint64_t limit, std::chrono::milliseconds time = kTime) {
        const auto start = std::chrono::steady_clock::now();
        const std::uint64_t before = state(pod, LIMIT_EGRESS).bytes;
        std::this_thread::sleep_for(time);
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        return static_cast<double>(state(pod, LIMIT_EGRESS).bytes - before) * 8 / passed.count() /
               static_cast<double>(limit);
    }
    void expect_whole_rate(const Pod &pod, std::uint64_t limit) {
        double measured = 0;
        for (int attempt = 0; attempt < kAttempts && (measured < 0.97 || measured > 1.01); ++attempt)
            measured = rate(pod, limit);
        EXPECT_LT(measured, 1.01);
        if (!slow()) {
            EXPECT_GT(measured, 0.97);
        }
    }
    // After the limit has long been reached.
    void await_backlog(const Pod &pod) {
        const std::uint64_t before = state(pod, LIMIT_EGRESS).bytes;
        ASSERT_TRUE(wait_until([&] { return state(pod, LIMIT_EGRESS).bytes > before + kRate / 8; }));
    }
    [[nodiscard]] std::uint64_t dropped(const Pod &pod) { return state(pod, LIMIT_EGRESS).dropped; }

    static constexpr const char *kQdisc = "qdisc htb 504c: root";
    Pod limited_, other_;
};

TEST_F(Shaper, DatagramsBeyondTheLimitWaitAndNoneIsLost) {
    for (const ip_addr &to : {other_.v4, other_.v6})
        for (const std::size_t bytes : {std::size_t{1400}, std::size_t{4000}}) { // the latter in fragments
            SCOPED_TRACE(to_string(to) + ", " + std::to_string(bytes) + " bytes");
            Flow flow(limited_, other_, to, 9, kTwice, bytes);
            await_backlog(limited_);
            expect_whole_rate(limited_, kRate);
            EXPECT_EQ(flow.lost(), 0U);
        }
    EXPECT_EQ(dropped(limited_), 0U);
    EXPECT_EQ(lab_.count(limited_, REASON_DROP_EGRESS_LIMIT), 0U);
}

TEST_F(Shaper, SegmentsOfOneSendAreChargedWithTheirHeaders) {
    Flow flow(limited_, other_, other_.v4, 9, 0);
    ASSERT_EQ(set_option(flow.socket(), SOL_UDP, UDP_SEGMENT, 200), 0);
    const std::string text(200 * 20, 'g');
    const Repeat sending([&] { (void)::send(flow.socket().get(), text.data(), text.size(), 0); });
    await_backlog(limited_);
    expect_whole_rate(limited_, kRate);
    EXPECT_EQ(dropped(limited_), 0U);
}

// A fifth of the rate, which needs no more than its part, and a ping.
TEST_F(Shaper, ACallBesideAFloodLosesNothing) {
    constexpr double kCall = kRate / 5.0;
    constexpr std::size_t kBytes = 500;
    Flow flood(limited_, other_, other_.v4, 9, kTwice);
    await_backlog(limited_);
    Flow call(limited_, other_, other_.v4, 11, kCall, kBytes);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(wait_until([&] { return call.arrived() >= 2 * kCall / 8 / kBytes; }));
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (!slow()) {
        EXPECT_LT(passed.count(), 2.2);
    }
    EXPECT_TRUE(test::ping(limited_.ns(), to_string(other_.v4), 3));
    EXPECT_EQ(call.lost(), 0U);
    EXPECT_EQ(flood.lost(), 0U);
    EXPECT_EQ(dropped(limited_), 0U);
}

// Half of the rate at least is for what is not TCP, and a connection finds the other half.
TEST_F(Shaper, TcpAndAFloodHaveTheirHalves) {
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    Flow flood(limited_, other_, other_.v4, 9, kTwice);
    await_backlog(limited_);
    double got = 0;
    for (int attempt = 0; attempt < kAttempts && got < 0.35; ++attempt) {
        const std::uint64_t before = flood.arrived();
        got = goodput(limited_.ns(), other_.v4, other_.ns(), 1) / static_cast<double>(kRate);
        const std::uint64_t datagrams = flood.arrived() - before;
        EXPECT_GT(static_cast<double>(datagrams) * 1442 * 8,
                  0.4 * kRate * std::chrono::duration<double>(kTime).count());
    }
    if (!slow()) {
        EXPECT_GT(got, 0.35);
    }
    EXPECT_EQ(flood.lost(), 0U);
}

TEST_F(Shaper, FollowsALimitThatChanges) {
    EXPECT_NE(rate_of(limited_).find("rate 19800Kbit"), std::string::npos) << rate_of(limited_);
    const auto set = [&](const Pod &pod, const std::string &to) {
        ASSERT_EQ(ctl({"bandwidth", "set", pod.host_ifname, "--egress", to}).rc, 0);
    };
    Flow flow(limited_, other_, other_.v4, 9, kTwice);
    await_backlog(limited_);
    for (const auto &[text, limit] : {std::pair("10M", kRate / 2), std::pair("20M", kRate)}) {
        set(limited_, text);
        expect_whole_rate(limited_, limit);
    }
    ASSERT_EQ(ctl({"bandwidth", "clear", limited_.host_ifname}).rc, 0);
    const std::uint64_t before = flow.arrived();
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(wait_until([&] { return flow.arrived() > before + kRate / 8 / 1442; })); // a second at the limit
    if (!slow()) {
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(900));
    }
    EXPECT_EQ(flow.lost(), 0U);
    EXPECT_EQ(dropped(limited_), 0U);

    EXPECT_EQ(qdiscs(other_).find(kQdisc), std::string::npos);
    set(other_, "8M");
    EXPECT_NE(qdiscs(other_).find(kQdisc), std::string::npos) << qdiscs(other_);
    EXPECT_NE(ctl({"bandwidth", "show", other_.host_ifname}).out.find("shape, bucket"), std::string::npos);
}

TEST_F(Shaper, IsAttachedIfOneRateHoldsForAllThatAPodSends) {
    const auto has = [&](Json keys) { return qdiscs(lab_.add_pod(keys)).find(kQdisc) != std::string::npos; };
    EXPECT_FALSE(has(limits(kRate, 0)));
    for (const char *limiter : {"pace", "bucket"}) {
        Json keys = limits(0, kRate);
        keys["limiter"] = limiter;
        EXPECT_FALSE(has(keys)) << limiter;
    }
    Json exempt = limits(0, kRate);
    exempt["unshapedSubnets"] = {"192.0.2.0/24"};
    EXPECT_FALSE(has(exempt));
    Json group = limits(0, kRate);
    group.update({{"limitGroup", "a"}, {"limitGroups", {{"a", {{"egressRate", 2 * kRate}}}}}});
    EXPECT_FALSE(has(group));
    Json keys = limits(0, kRate);
    keys["ipam"] = nullptr;
    const Json ptp = {{"type", "ptp"}, {"ipam", lab_.node().ipam()}};
    EXPECT_EQ(qdiscs(lab_.add_pod(std::vector<Json>{ptp, lab_.node().config(keys)})).find(kQdisc), std::string::npos)
        << "the interface is the other plugin's";
}

TEST_F(Shaper, AMissingOneIsRepairedAndAForeignOneStays) {
    (void)must_run(limited_.ns(), words("tc qdisc del dev eth0 root"));
    const Output found = ctl({"doctor"});
    EXPECT_NE(found.out.find("the qdisc of the limit is gone from interface eth0"), std::string::npos) << found.out;
    ASSERT_EQ(ctl({"repair"}).rc, 0);
    EXPECT_NE(qdiscs(limited_).find(kQdisc), std::string::npos) << qdiscs(limited_);
    EXPECT_NE(rate_of(limited_).find("rate 19800Kbit"), std::string::npos) << rate_of(limited_);

    (void)must_run(limited_.ns(), words("tc qdisc replace dev eth0 root handle 7: pfifo"));
    EXPECT_EQ(ctl({"doctor"}).rc, 0);
    ASSERT_EQ(ctl({"bandwidth", "set", limited_.host_ifname, "--egress", "10M"}).rc, 0);
    EXPECT_NE(qdiscs(limited_).find("qdisc pfifo 7: root"), std::string::npos) << qdiscs(limited_);
    EXPECT_EQ(ctl({"bandwidth", "show", limited_.host_ifname}).out.find("shape"), std::string::npos);
    const Flow flood(limited_, other_, other_.v4, 9, kTwice);
    EXPECT_TRUE(wait_until([&] { return dropped(limited_) > 100; })) << "the bucket holds the limit";
}

} // namespace
} // namespace podlane::test
