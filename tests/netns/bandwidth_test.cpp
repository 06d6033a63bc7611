// SPDX-License-Identifier: MIT
// Limits on real traffic: TCP and UDP, in both directions and by each way, a ping beside them, and the end of a
// limit.
#include "tests/netns/limits.hpp"

#include "loader/object.hpp"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

namespace podlane::test {
namespace {

class Bandwidth : public LimitTest {};

// Of what is sent beyond the rate nothing waits.
Json unshaped() {
    Json keys = limits(0, kRate);
    keys["limiter"] = "bucket";
    return keys;
}

TEST_F(Bandwidth, TcpGetsItsRateInEachDirection) {
    const Pod sender = lab_.add_pod(limits(0, kRate));
    const Pod receiver = lab_.add_pod(limits(kRate, 0));
    const Pod free = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    for (const int flows : {1, 8}) {
        expect_rate(goodput(sender.ns(), free.v4, free.ns(), flows));
        expect_rate(goodput(free.ns(), receiver.v4, receiver.ns(), flows));
        expect_rate(goodput(lab_.node().ns(), receiver.v4, receiver.ns(), flows));
    }
    const std::uint64_t paced = state(receiver, LIMIT_INGRESS).paced;
    expect_rate(goodput(lab_.node().ns(), receiver.v4, receiver.ns(), 1));
    EXPECT_GT(state(receiver, LIMIT_INGRESS).paced, paced) << "the node's own connections";
    for (const auto &[pod, direction] : {std::pair(&sender, LIMIT_EGRESS), std::pair(&receiver, LIMIT_INGRESS)}) {
        const limit_state seen = state(*pod, direction);
        EXPECT_GT(seen.paced, 0U);
        EXPECT_LT(seen.dropped * 1000, seen.packets + 1000) << "more than 0.1 % dropped";
    }
}

TEST_F(Bandwidth, AFloodIsHeldAndAPingPasses) {
    const Pod sender = lab_.add_pod(unshaped());
    const Pod receiver = lab_.add_pod();
    const Repeat sending = flood(sender, receiver.v4);
    const auto before = state(sender, LIMIT_EGRESS);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(wait_until([&] { return state(sender, LIMIT_EGRESS).dropped > 100; }));
    EXPECT_TRUE(test::ping(sender.ns(), to_string(receiver.v4), 5));
    const auto after = state(sender, LIMIT_EGRESS);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(static_cast<double>(after.bytes - before.bytes) * 8, static_cast<double>(kRate) * (seconds * 1.05 + 0.2));
    EXPECT_GT(lab_.count(sender, REASON_DROP_EGRESS_LIMIT), 100U);
}

// A sixth of the rate, in datagrams that are not small. One call in 16 shares the flood's bucket for 4.3 s.
TEST_F(Bandwidth, ACallBesideAFloodLosesNothing) {
    constexpr std::size_t kCalls = 5, kDatagrams = 240, kBytes = 1000;
    constexpr std::chrono::microseconds kApart{2500};
    const Pod sender = lab_.add_pod(unshaped());
    const Pod receiver = lab_.add_pod();
    const Fd to = open_socket(receiver.ns(), Transport::udp, true, {receiver.v4, 7});
    const Repeat sending = flood(sender, receiver.v4);
    ASSERT_TRUE(wait_until([&] { return state(sender, LIMIT_EGRESS).dropped > 100; }));
    std::size_t whole = 0;
    for (std::size_t call = 0; call < kCalls; ++call) {
        const Fd from = connected(sender.ns(), Transport::udp, {receiver.v4, 7});
        std::size_t arrived = 0;
        auto due = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < kDatagrams; ++i) {
            ASSERT_EQ(send_text(from, std::string(kBytes, 'c')), 0);
            std::this_thread::sleep_until(due += kApart);
            while (receive(to, kBytes, std::chrono::milliseconds(0)).error == 0)
                ++arrived;
        }
        std::cout << arrived << " of " << kDatagrams << " arrived" << std::endl;
        whole += arrived >= kDatagrams * 98 / 100 ? 1 : 0;
    }
    EXPECT_GT(whole, kCalls / 2);
}

TEST_F(Bandwidth, ALimitIsSetAndClearedOnALivePod) {
    const Pod sender = lab_.add_pod();
    const Pod receiver = lab_.add_pod();
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, 7});
    ASSERT_EQ(transfer(socket, 1U << 20U), 0);

    ASSERT_THAT(ctl({"bandwidth", "set", sender.host_ifname, "--egress", "20M"}), prints(0));
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(transfer(socket, 2U << 20U), 0); // 0.84 s at the rate
    EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(600));
    const Json shown = Json::parse(ctl({"bandwidth", "show", sender.host_ifname, "--json"}).out);
    ASSERT_EQ(shown.size(), 2U);
    EXPECT_THAT(shown[1], has_members({{"rate_bits_per_s", kRate}, {"effective_burst_bits", kRate / 10}}));
    EXPECT_GE(shown[1]["bytes"].get<std::uint64_t>(), 2U << 20U);
    if (is_paced()) {
        EXPECT_GT(state(sender, LIMIT_EGRESS).paced, 0U) << "the connection has not heard of the limit";
    }

    ASSERT_EQ(ctl({"bandwidth", "clear", sender.host_ifname}).rc, 0);
    const std::uint64_t charged = state(sender, LIMIT_EGRESS).bytes;
    EXPECT_EQ(transfer(socket, 1U << 20U), 0);
    EXPECT_EQ(state(sender, LIMIT_EGRESS).bytes, charged);
}

// Over changes of the limit, and an upgrade.
TEST_F(Bandwidth, ASocketsOwnPacingRateIsRespectedAndRestored) {
    constexpr unsigned kOwn = 500000; // bytes per second, less than the limit
    const Pod sender = lab_.add_pod(limits(0, kRate));
    const Pod receiver = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, 7});
    ASSERT_EQ(transfer(socket, 100000), 0);
    EXPECT_NEAR(pacing_rate_of(socket), kRate / 8, kRate / 16) << "the limit's";
    ASSERT_EQ(setsockopt(socket.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &kOwn, sizeof kOwn), 0);
    ASSERT_EQ(transfer(socket, 100000), 0);
    EXPECT_EQ(pacing_rate_of(socket), kOwn);
    ASSERT_EQ(ctl({"upgrade", "--force"}).rc, 0);
    const std::uint64_t paced = state(sender, LIMIT_EGRESS).paced;
    ASSERT_EQ(transfer(socket, 100000), 0);
    EXPECT_EQ(pacing_rate_of(socket), kOwn);
    EXPECT_GT(state(sender, LIMIT_EGRESS).paced, paced) << "the new program works";
    EXPECT_EQ(ctl({"bandwidth", "set", sender.host_ifname, "--egress", "2M"}).rc, 0);
    ASSERT_EQ(transfer(socket, 50000), 0);
    EXPECT_LT(pacing_rate_of(socket), kOwn) << "the limit's again, which is the smaller one now";
    EXPECT_EQ(ctl({"bandwidth", "clear", sender.host_ifname}).rc, 0);
    ASSERT_EQ(transfer(socket, 100000), 0);
    EXPECT_EQ(pacing_rate_of(socket), kOwn);
}

// The kernel does not pace at this rate.
TEST_F(Bandwidth, ASocketsRateOfZeroIsNoneOfItsOwn) {
    constexpr unsigned kNone = 0;
    const Pod sender = lab_.add_pod(limits(0, kRate)), receiver = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, 7});
    ASSERT_EQ(transfer(socket, 100000), 0);
    ASSERT_EQ(setsockopt(socket.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &kNone, sizeof kNone), 0);
    ASSERT_EQ(transfer(socket, 100000), 0);
    EXPECT_NEAR(pacing_rate_of(socket), kRate / 8, kRate / 16) << "the limit's";
}

TEST_F(Bandwidth, ConnectionsWithinAContainerAreLeftAlone) {
    constexpr std::size_t kBytes = kRate / 8; // of one second
    const Pod pod = lab_.add_pod(limits(kRate, kRate));
    const EchoServer server(pod.ns(), true, 7);
    const Fd socket = connected(pod.ns(), Transport::tcp, {pod.v4, 7});
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(transfer(socket, 4 * kBytes), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST_F(Bandwidth, AConnectionWithoutALimitIsLeftAlone) {
    constexpr std::uint64_t kRoundTrips = 500;
    const Pod sender = lab_.add_pod();
    const Pod receiver = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, 7});
    const Fd counting(bpf_enable_stats(BPF_STATS_RUN_TIME));
    const auto calls = [&] {
        const Fd pace = require(open_program(lab_.node().bpffs(), PODLANE_PROGRAM_PACE));
        return require(program_facts(pace.get())).run_count;
    };

    // Other connections of this machine are counted as well: one round without many of them is enough.
    const auto is_left_alone = [&] {
        const std::uint64_t before = calls();
        for (std::uint64_t i = 0; i < kRoundTrips; ++i)
            EXPECT_EQ(transfer(socket, 1), 0);
        return calls() - before < kRoundTrips / 2;
    };
    EXPECT_TRUE(wait_until(is_left_alone, std::chrono::minutes(1)));
}

// Segmentation of large packets in the kernel, where a device leaves it to it.
void switch_offloads_off(const net::Namespace &where, const std::string &link) {
    const net::Entered inside = require(net::enter(where));
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    for (const std::uint32_t feature : {ETHTOOL_STSO, ETHTOOL_SGSO}) {
        ethtool_value value{feature, 0};
        ifreq request{};
        std::strncpy(request.ifr_name, link.c_str(), IFNAMSIZ - 1);
        request.ifr_data = reinterpret_cast<char *>(&value);
        ASSERT_EQ(ioctl(socket.get(), SIOCETHTOOL, &request), 0) << std::strerror(errno);
    }
}

TEST_F(Bandwidth, ChargesWhatACaptureSees) {
    constexpr std::size_t kBytes = std::size_t{2} << 20U;
    constexpr std::uint64_t kStray = 2000; // what a kernel says on its own
    Json keys = limits(0, 100000000);
    keys["fastPath"] = "off";
    const Pod sender = lab_.add_pod(keys);
    const Pod receiver = lab_.add_pod();
    switch_offloads_off(lab_.node().ns(), receiver.host_ifname);
    const EchoServer server(receiver.ns(), true, 7);
    const Wire wire = receiver.wire();
    const Fd socket = open_socket(sender.ns(), Transport::tcp, true);
    const limit_state before = state(sender, LIMIT_EGRESS);
    ASSERT_EQ(connect_to(socket, {receiver.v4, 7}), 0);
    EXPECT_EQ(transfer(socket, kBytes), 0);
    std::uint64_t seen = 0, frames = 0, longest = 0;
    for (const Bytes &frame : wire.arrived()) {
        if (frame.size() < 34 || std::memcmp(&frame[26], &sender.v4.word[3], 4) != 0)
            continue;
        ++frames;
        seen += frame.size();
        longest = std::max<std::uint64_t>(longest, frame.size());
    }
    const limit_state after = state(sender, LIMIT_EGRESS);
    EXPECT_GT(frames, kBytes / 1500);
    EXPECT_LE(longest, 1514U);
    EXPECT_LT((after.packets - before.packets) * 3, frames * 2) << "no packets of several segments to be charged";
    EXPECT_GE(after.bytes - before.bytes + kStray, seen);
    EXPECT_LE(after.bytes - before.bytes, seen + kStray);
}

TEST_F(Bandwidth, LimitsOfTheHostStackHoldToo) {
    Json keys = limits(0, kRate);
    keys["fastPath"] = "off";
    const Pod sender = lab_.add_pod(keys);
    const Pod receiver = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    expect_rate(goodput(sender.ns(), receiver.v4, receiver.ns(), 2));
    EXPECT_EQ(lab_.count(sender, REASON_SENT_DIRECT), 0U);
}

TEST_F(Bandwidth, WatchGoesOnUntilInterrupted) {
    const Pod pod = lab_.add_pod(limits(kRate, 0));
    const Output watched =
        run(lab_.node().ns(), {"timeout", slow() ? "20" : "4", std::getenv("PODLANECTL_BIN"), "bandwidth", "show",
                               pod.host_ifname, "--watch", "--bpffs", lab_.node().bpffs()});
    EXPECT_EQ(watched.rc, 124); // of timeout
    for (const char *counter : {"bytes", "packets", "paced", "delayed", "marked", "dropped", "fair rate", "flows"}) {
        const auto first = watched.out.find(counter);
        ASSERT_NE(first, std::string::npos) << counter;
        EXPECT_NE(watched.out.find(counter, watched.out.find("egress", first)), std::string::npos) << counter;
    }
}

TEST_F(Bandwidth, WrongValuesAreUsageErrors) {
    const Pod pod = lab_.add_pod();
    EXPECT_EQ(ctl({"bandwidth", "set", pod.host_ifname}).rc, 2);
    EXPECT_EQ(ctl({"bandwidth", "set", pod.host_ifname, "--egress", "fast"}).rc, 2);
    EXPECT_EQ(ctl({"bandwidth", "set", pod.host_ifname, "--egress", "0.5"}).rc, 2) << "0 is no limit";
    EXPECT_EQ(ctl({"bandwidth", "set", "--egress", "10M"}).rc, 2);
    EXPECT_EQ(ctl({"bandwidth", "list"}).rc, 0);
}

// As the configuration refuses them. Nothing changes, also not of the pods that are fine.
TEST_F(Bandwidth, ABurstWithoutARateIsAUsageError) {
    const Pod pod = lab_.add_pod();
    const Pod limited = lab_.add_pod(limits(kRate, 0));
    const auto refused = [&](std::vector<std::string> options, const std::string &says) {
        options.insert(options.begin(), {"bandwidth", "set"});
        const Output done = ctl(options);
        EXPECT_EQ(done.rc, 2) << done.out;
        EXPECT_THAT(done.err, testing::HasSubstr(says));
    };
    const std::string host = limited.host_ifname;
    refused({host, "--egress-burst", "1M"}, R"(--egress-burst "1M" is of a direction without a limit)");
    refused({host, "--egress-burst", "auto"}, "without a limit");
    refused({host, "--ingress", "0", "--ingress-burst", "1M"}, R"(--ingress-burst "1M" is of a direction)");
    refused({host, "--ingress-burst", "0"}, R"(--ingress-burst "0" would let nothing pass)");
    refused({host, "--egress", "8M", "--egress-burst", "0"}, "would let nothing pass");
    refused({"--network", "pods", "--ingress-burst", "1M"}, "without a limit");
    const Json shown = Json::parse(ctl({"bandwidth", "list", "--json"}).out);
    ASSERT_EQ(shown.size(), 1U);
    EXPECT_THAT(shown[0],
                has_members({{"host_interface", host}, {"rate_bits_per_s", kRate}, {"burst_bits", kAutoBurst}}));
    EXPECT_THAT(ctl({"bandwidth", "set", host, "--ingress", "0", "--ingress-burst", "0"}), prints(0));
    EXPECT_THAT(ctl({"bandwidth", "set", host, "--egress", "8M", "--egress-burst", "1M"}), prints(0));
}

// With the tools that hold it from now on.
TEST_F(Bandwidth, AChangeShowsWhatThereIsAfterIt) {
    const Pod pod = lab_.add_pod();
    const std::vector<std::string> show = {"bandwidth", "show", pod.host_ifname, "--json"};
    const auto facts = [](const Output &of) {
        Json all = Json::array();
        for (const Json &one : Json::parse(of.out))
            all.push_back({one["direction"], one["rate_bits_per_s"], one["limiter"], one["flags"]});
        return all;
    };
    const Json before = facts(ctl(show));
    const Json set = facts(ctl({"bandwidth", "set", pod.host_ifname, "--egress", "10M", "--ingress", "20M", "--json"}));
    EXPECT_EQ(set, facts(ctl(show)));
    EXPECT_NE(set, before);
    const Json cleared = facts(ctl({"bandwidth", "clear", pod.host_ifname, "--json"}));
    EXPECT_EQ(cleared, facts(ctl(show)));
    EXPECT_NE(cleared, set);
}

} // namespace
} // namespace podlane::test
