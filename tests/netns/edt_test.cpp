// SPDX-License-Identifier: MIT
// Earliest departure times on real traffic, by `fq`, or `htb` where the kernel has none: what cannot be paced is held
// back instead of dropped.
#include "tests/harness/outcome.hpp"
#include "tests/harness/repeat.hpp"
#include "tests/netns/lab.hpp"

#include "loader/edt.hpp"

#include <linux/net_tstamp.h>

namespace podlane::test {
namespace {

constexpr double kRate = 8000000; // bits per second, which an emulated machine can send twice
constexpr std::uint64_t kAuto = 0x7fffffff;
constexpr int kAttempts = 3; // at a rate, beside other work
constexpr double kDatagram = 1000, kDatagramFrame = 1042;

Json limits(const char *limiter = "auto") {
    return {{"ingressRate", static_cast<std::uint64_t>(kRate)}, {"ingressBurst", kAuto}, {"limiter", limiter}};
}

class Edt : public testing::Test {
  protected:
    void SetUp() override {
        if (kind_.empty())
            GTEST_SKIP() << "this kernel has neither fq nor htb";
        lab_.emplace();
    }
    [[nodiscard]] std::string qdiscs(const Pod &pod) {
        return lab_->node().run("tc qdisc show dev " + pod.host_ifname);
    }
    [[nodiscard]] limit_state state(const Pod &pod) {
        return require(require(open_limit_states(lab_->node().bpffs(), Access::read_only))
                           .find({pod.ifindex, LIMIT_INGRESS}))
            .value();
    }
    Output ctl(const std::vector<std::string> &words) { return lab_->node().podlanectl(words); }
    // The rate of a connection to the pod on the wire, beside other work.
    void expect_rate(const Pod &receiver, const Fd &socket, double least) {
        double rate = 0;
        for (int attempt = 0; attempt < kAttempts && rate < least * kRate; ++attempt) {
            const std::uint64_t before = state(receiver).bytes;
            const auto start = std::chrono::steady_clock::now();
            ASSERT_EQ(transfer(socket, std::size_t{4} << 20U), 0);
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
            rate = static_cast<double>(state(receiver).bytes - before) * 8 / passed.count();
        }
        EXPECT_GT(rate, least * kRate);
        EXPECT_LT(rate, 1.1 * kRate);
    }
    // Mean round trip in ms.
    static double ping_ms(const net::Namespace &from, const ip_addr &to) {
        const std::string said =
            run(from, {"ping", "-n", "-q", "-c", "20", "-i", "0.05", "-W", "5", to_string(to)}).out;
        const auto at = said.find(" = ");
        return at == std::string::npos ? 1e9 : std::strtod(said.c_str() + said.find('/', at) + 1, nullptr);
    }

    const std::string kind_ = require(edt_qdisc()), qdisc_ = "qdisc " + kind_ + " 504c:";
    std::optional<Lab> lab_;
};

// Twice the rate in datagrams, and what arrives of it, until it goes.
class Flood {
  public:
    Flood(const net::Namespace &from, const net::Namespace &receiver, const ip_addr &to, double rate)
        : sink_(open_socket(receiver, Transport::udp, true, {to, 9})),
          socket_(connected(from, Transport::udp, {to, 9})) {
        EXPECT_EQ(set_option(sink_, SOL_SOCKET, SO_RCVBUF, 1 << 20), 0);
        sending_.emplace([this, rate, start = std::chrono::steady_clock::now(), sent = 0.0,
                          text = std::string(static_cast<std::size_t>(kDatagram), 'u')]() mutable {
            const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
            for (; sent < passed.count() * rate / 8 / kDatagram; ++sent)
                (void)::send(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
            usleep(2000);
        });
        receiving_.emplace([this, buffer = std::array<char, 2048>{}]() mutable {
            received_ += recv(sink_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT) > 0 ? 1 : (usleep(500), 0);
        });
    }

    // Bits per second on the wire that arrive during `time`.
    [[nodiscard]] double measure(std::chrono::milliseconds time) const {
        const auto start = std::chrono::steady_clock::now();
        const std::uint64_t before = received_;
        std::this_thread::sleep_for(time);
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        return static_cast<double>(received_ - before) * kDatagramFrame * 8 / passed.count();
    }

  private:
    Fd sink_, socket_;
    std::atomic<std::uint64_t> received_ = 0;
    std::optional<Repeat> sending_, receiving_;
};

TEST_F(Edt, TheQdiscIsAttachedUnlessThereIsAnother) {
    const Pod limited = lab_->add_pod(limits());
    EXPECT_NE(qdiscs(limited).find(qdisc_), std::string::npos) << qdiscs(limited);
    const Pod paced = lab_->add_pod(limits("pace"));
    EXPECT_EQ(qdiscs(paced).find(qdisc_), std::string::npos);
    const Pod later = lab_->add_pod();
    EXPECT_EQ(qdiscs(later).find(qdisc_), std::string::npos);
    ASSERT_EQ(ctl({"bandwidth", "set", later.host_ifname, "--ingress", "8M"}).rc, 0);
    EXPECT_NE(qdiscs(later).find(qdisc_), std::string::npos);
    EXPECT_NE(ctl({"bandwidth", "show", later.host_ifname}).out.find("edt"), std::string::npos);

    const Pod foreign = lab_->add_pod();
    lab_->node().run("tc qdisc add dev " + foreign.host_ifname + " root tbf rate 1gbit burst 30000 limit 40000");
    ASSERT_EQ(ctl({"bandwidth", "set", foreign.host_ifname, "--ingress", "8M"}).rc, 0);
    EXPECT_NE(qdiscs(foreign).find("tbf"), std::string::npos);
    EXPECT_EQ(ctl({"bandwidth", "show", foreign.host_ifname}).out.find("edt"), std::string::npos);
    EXPECT_TRUE(ping(limited.ns(), to_string(later.v4), 3));
    EXPECT_TRUE(ping(later.ns(), to_string(foreign.v4), 3));
}

// A class of htb has the rate itself.
TEST_F(Edt, TheQdiscFollowsAChangedLimit) {
    if (kind_ != "htb")
        GTEST_SKIP() << "fq has the rate in each packet";
    const Pod pod = lab_->add_pod(limits());
    const auto rate = [&] { return lab_->node().run("tc class show dev " + pod.host_ifname); };
    EXPECT_NE(rate().find("rate 8Mbit ceil 8Mbit"), std::string::npos) << rate();
    for (const auto &[given, shown] : {std::pair("20M", "rate 20Mbit ceil 20Mbit"), std::pair("100G", "rate 100Gbit"),
                                       std::pair("1M", "rate 1Mbit ceil 1Mbit")}) {
        ASSERT_EQ(ctl({"bandwidth", "set", pod.host_ifname, "--ingress", given}).rc, 0);
        EXPECT_NE(rate().find(shown), std::string::npos) << rate();
    }
    lab_->node().run("tc qdisc del dev " + pod.host_ifname + " root");
    EXPECT_NE(ctl({"doctor"}).out.find("the qdisc of the limit is gone"), std::string::npos);
    ASSERT_EQ(ctl({"repair"}).rc, 0);
    EXPECT_NE(rate().find("rate 1Mbit ceil 1Mbit"), std::string::npos) << rate();
}

TEST_F(Edt, DelLeavesAnAdoptedInterfaceWithoutTheQdisc) {
    const Json ptp = {{"type", "ptp"}, {"ipam", lab_->node().ipam()}};
    Json keys = limits();
    keys["ipam"] = nullptr;
    const Pod pod = lab_->add_pod(std::vector<Json>{ptp, lab_->node().config(keys)});
    EXPECT_NE(qdiscs(pod).find(qdisc_), std::string::npos) << qdiscs(pod);
    Chain only_podlane(lab_->node(), {lab_->node().config(keys)});
    ASSERT_THAT(only_podlane.del(*pod.container), succeeds());
    EXPECT_EQ(qdiscs(pod).find(qdisc_), std::string::npos);
}

TEST_F(Edt, AFloodGetsItsRateAndAPingDoesNotWaitForIt) {
    const Pod receiver = lab_->add_pod(limits());
    const Pod sender = lab_->add_pod();
    const std::vector<std::pair<const net::Namespace *, reason>> all{{&sender.ns(), REASON_RECEIVED_DIRECT},
                                                                     {&lab_->node().ns(), REASON_RECEIVED_HOST}};
    for (const auto &[from, counted] : all) {
        const limit_state before = state(receiver);
        const std::uint64_t by_name = lab_->count(receiver, counted);
        const Flood flood(*from, receiver.ns(), receiver.v4, 2 * kRate);
        ASSERT_TRUE(wait_until([&] { return state(receiver).delayed > before.delayed + 100; }));
        double measured = 0;
        for (int attempt = 0; attempt < kAttempts && measured < 0.9 * kRate; ++attempt)
            measured = flood.measure(std::chrono::seconds(3));
        EXPECT_GT(measured, 0.9 * kRate);
        EXPECT_LT(measured, 1.1 * kRate);
        // The flood waits for up to 100 ms, and so would each ping; beside other work a single one is late.
        double fastest = ping_ms(*from, receiver.v4);
        for (int attempt = 1; attempt < kAttempts && fastest >= 30; ++attempt)
            fastest = std::min(fastest, ping_ms(*from, receiver.v4));
        EXPECT_LT(fastest, 30);
        EXPECT_GT(lab_->count(receiver, counted), by_name);
    }
}

// fq would hold a packet until the time that its sender has given it, and others behind it.
TEST_F(Edt, AnEarliestDepartureTimeOfASenderIsForgotten) {
    if (kind_ != "fq")
        GTEST_SKIP() << "htb knows no earliest departure times";
    const Json bandwidth = {{"ingressRate", static_cast<std::uint64_t>(kRate)},
                            {"ingressBurst", kAuto},
                            {"unshapedSubnets", {Lab::kPods4, Lab::kNode4 + std::string("/32")}}};
    const Pod receiver = lab_->add_pod(Json{{"bandwidth", bandwidth}}), sender = lab_->add_pod();
    for (const net::Namespace *from : {&sender.ns(), &lab_->node().ns()}) {
        const Fd sink = open_socket(receiver.ns(), Transport::udp, true, {receiver.v4, 9});
        const Fd socket = connected(*from, Transport::udp, {receiver.v4, 9});
        const sock_txtime clock{.clockid = CLOCK_MONOTONIC, .flags = 0};
        ASSERT_EQ(setsockopt(socket.get(), SOL_SOCKET, SO_TXTIME, &clock, sizeof clock), 0);
        char text = 'u';
        iovec data{&text, 1};
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint64_t))> control{};
        msghdr message{};
        message.msg_iov = &data;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_TXTIME;
        header->cmsg_len = CMSG_LEN(sizeof(std::uint64_t));
        const std::uint64_t at =
            static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) + 8000000000;
        std::memcpy(CMSG_DATA(header), &at, sizeof at);
        ASSERT_EQ(sendmsg(socket.get(), &message, 0), 1);
        pollfd arrival{sink.get(), POLLIN, 0};
        EXPECT_EQ(poll(&arrival, 1, 4000), 1);
    }
}

// Nobody paces what comes from elsewhere: without earliest departure times a connection would get a part of the rate.
TEST_F(Edt, TcpFromOtherNodesGetsItsRate) {
    const Pod receiver = lab_->add_pod(limits());
    lab_->node().run("ip route replace " + std::string(Lab::kOutside4) + " dev up0");
    (void)must_run(lab_->outside(), words("ip route add " + std::string(Lab::kPods4) + " via " + Lab::kNode4));
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(lab_->outside(), Transport::tcp, {receiver.v4, 7});
    ASSERT_EQ(transfer(socket, std::size_t{1} << 18U), 0);
    expect_rate(receiver, socket, 0.8); // half of it where nothing is held back
    EXPECT_GT(state(receiver).delayed, 0U);
}

TEST_F(Edt, AForcedLimiterDelaysTheNodesOwnTcpToo) {
    const Pod receiver = lab_->add_pod(limits("edt"));
    const Pod sender = lab_->add_pod();
    const EchoServer server(receiver.ns(), true, 7);
    for (const net::Namespace *from : {&sender.ns(), &lab_->node().ns()}) {
        const std::uint64_t before = state(receiver).delayed;
        const Fd socket = connected(*from, Transport::tcp, {receiver.v4, 7});
        expect_rate(receiver, socket, 0.75);
        EXPECT_GT(state(receiver).delayed, before);
    }
    EXPECT_EQ(state(receiver).paced, 0U);
}

} // namespace
} // namespace podlane::test
