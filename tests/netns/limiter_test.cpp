// SPDX-License-Identifier: MIT
// The tools that hold a limit, as chosen and named; senders that will not be slowed down, and the least and the
// greatest rate.
#include "tests/netns/limits.hpp"

#include "loader/edt.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace podlane::test {
namespace {

class Limiter : public LimitTest {
  protected:
    [[nodiscard]] Json logged(Json keys) {
        keys["log"] = {{"file", log_file()}, {"level", "info"}};
        return keys;
    }
    [[nodiscard]] std::string log_file() { return lab_.node().dir() + "/podlane.log"; }
    [[nodiscard]] std::string log_text() {
        std::ostringstream text;
        text << std::ifstream(log_file()).rdbuf();
        return text.str();
    }
    // A pod's sender that does `send` again and again gets no more than the rate, the rest is dropped.
    void expect_dropped(const Pod &pod, const std::function<void()> &send) {
        const std::uint64_t before = state(pod, LIMIT_EGRESS).dropped;
        expect_held(pod, send);
        EXPECT_GT(state(pod, LIMIT_EGRESS).dropped, before + 20);
        EXPECT_GT(lab_.count(pod, REASON_DROP_EGRESS_LIMIT), 20U);
    }
    void expect_held(const Pod &pod, const std::function<void()> &send) {
        const Repeat sender(send);
        const limit_state before = state(pod, LIMIT_EGRESS);
        const auto start = std::chrono::steady_clock::now();
        EXPECT_TRUE(wait_until([&] { return state(pod, LIMIT_EGRESS).bytes > before.bytes + kRate / 8; }));
        EXPECT_TRUE(wait_until([&] { return std::chrono::steady_clock::now() > start + kTime; }));
        const limit_state after = state(pod, LIMIT_EGRESS);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        EXPECT_LT(static_cast<double>(after.bytes - before.bytes) * 8,
                  static_cast<double>(kRate) * (seconds * 1.05 + 0.2));
    }
    void expect_pacing() {
        const Pod sender = lab_.add_pod(limits(0, kRate));
        const Pod receiver = lab_.add_pod();
        if (!is_paced())
            GTEST_SKIP() << "this kernel cannot pace";
        EXPECT_LT(goodput(sender.ns(), receiver.v4, receiver.ns(), 1), 1.1 * static_cast<double>(kRate));
        EXPECT_GT(state(sender, LIMIT_EGRESS).paced, 0U);
        EXPECT_GT(state(sender, LIMIT_EGRESS).pause_us, 0U);
    }
    [[nodiscard]] static bool is_shaped(const Pod &pod) {
        return run(pod.ns(), words("tc qdisc show dev eth0")).out.find("htb 504c:") != std::string::npos;
    }
    // Where a plugin finds its cgroups, for that call alone.
    void mount_for_podlane(const std::string &commands) {
        lab_.node().put_plugin("podlane", "#!/bin/sh\nexec unshare -m sh -ec 'umount -l /sys/fs/cgroup; " + commands +
                                              " exec \"$0\"' " + std::getenv("PODLANE_BIN") + "\n");
    }
};

TEST_F(Limiter, IsNamedByTheLogOfAddAndByStatus) {
    const Pod pod = lab_.add_pod(logged(limits(kRate, kRate)));
    const std::string pace = is_paced() ? "pace, " : "", edt = require(edt_qdisc()).empty() ? "" : "edt, ",
                      shape = is_shaped(pod) ? "shape, " : "";
    EXPECT_NE(log_text().find("bandwidth is held to the pod by " + pace + edt + "bucket, from the pod by " + pace +
                              shape + "bucket"),
              std::string::npos)
        << log_text();
    const Output status = ctl({"status", "--json"});
    EXPECT_EQ(Json::parse(status.out).at("limiters"), pace + edt + "bucket") << status.out;
    EXPECT_NE(ctl({"status"}).out.find("bandwidth by"), std::string::npos);
}

TEST_F(Limiter, IsTheOneThatIsForced) {
    const Pod free = lab_.add_pod();
    const Pod pod = lab_.add_pod([&] {
        Json keys = logged(limits(kRate, kRate));
        keys["limiter"] = "bucket";
        return keys;
    }());
    EXPECT_NE(log_text().find("to the pod by bucket, from the pod by bucket"), std::string::npos) << log_text();
    (void)goodput(pod.ns(), free.v4, free.ns(), 1);
    (void)goodput(free.ns(), pod.v4, pod.ns(), 1);
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        EXPECT_EQ(state(pod, direction).paced, 0U);
        EXPECT_GT(state(pod, direction).bytes, 0U);
    }
}

TEST_F(Limiter, AttachesNoQdiscsButItsOwn) {
    const Pod pod = lab_.add_pod(limits(kRate, kRate));
    const std::string qdiscs = lab_.node().run("tc qdisc show dev " + pod.host_ifname);
    const std::string kind = require(edt_qdisc()),
                      root = kind.empty() ? "qdisc noqueue 0: root" : "qdisc " + kind + " 504c: root";
    EXPECT_NE(qdiscs.find(root), std::string::npos) << qdiscs;
    EXPECT_EQ(qdiscs.find("ingress ffff:"), std::string::npos) << qdiscs;
    EXPECT_EQ(lab_.node().run("ip -brief link show type ifb"), "");
    const std::string own = kind.empty() ? "qdisc noqueue 0: root" : "qdisc htb 504c: root";
    EXPECT_EQ(pod.container->run("tc qdisc show dev eth0").find(own), 0U);
}

TEST_F(Limiter, HoldsARawSocket) {
    const Pod sender = lab_.add_pod(limits(0, kRate));
    const Pod receiver = lab_.add_pod();
    const Fd raw = [&] {
        const auto inside = require(net::enter(sender.ns()));
        return Fd(::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP));
    }();
    ASSERT_TRUE(raw);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = receiver.v4.word[3];
    std::array<char, 1400> segment{};
    tcphdr header{};
    header.source = htons(4000);
    header.dest = htons(9);
    header.doff = 5;
    header.ack = 1;
    std::memcpy(segment.data(), &header, sizeof header);
    expect_dropped(sender, [&] {
        (void)sendto(raw.get(), segment.data(), segment.size(), 0, reinterpret_cast<const sockaddr *>(&to), sizeof to);
    });
}

TEST_F(Limiter, HoldsSocketsThatResetTheirPacing) {
    const Pod sender = lab_.add_pod(limits(0, kRate));
    const Pod receiver = lab_.add_pod();
    const EchoServer server(receiver.ns(), true, 7);
    std::vector<Fd> sockets;
    for (int i = 0; i < 4; ++i)
        sockets.push_back(connected(sender.ns(), Transport::tcp, {receiver.v4, 7}));
    std::vector<char> buffer(65536);
    expect_held(sender, [&] {
        for (const Fd &socket : sockets) {
            (void)set_option(socket, SOL_SOCKET, SO_MAX_PACING_RATE, -1);
            (void)::send(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            (void)set_option(socket, SOL_SOCKET, SO_MAX_PACING_RATE, -1);
            (void)::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        }
    });
}

// A bucket does not pace it: the rate that an application sets itself slows nothing down.
TEST_F(Limiter, LeavesRoomBesideARateOfTheApplication) {
    Json keys = limits(0, kRate);
    keys["limiter"] = "bucket";
    const Pod sender = lab_.add_pod(keys), receiver = lab_.add_pod();
    const EchoServer sink(receiver.ns(), true, 8);
    std::vector<Fd> greedy;
    for (int i = 0; i < 8; ++i) {
        greedy.push_back(open_socket(sender.ns(), Transport::tcp, true));
        (void)set_option(greedy.back(), SOL_SOCKET, SO_MAX_PACING_RATE, 1000000000);
        ASSERT_EQ(connect_to(greedy.back(), {receiver.v4, 8}), 0);
    }
    std::vector<char> buffer(65536);
    const Repeat sending([&] {
        for (const Fd &socket : greedy) {
            (void)::send(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            (void)::recv(socket.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        }
    });
    ASSERT_TRUE(wait_until([&] { return state(sender, LIMIT_EGRESS).bytes > kRate / 8; }));
    EXPECT_GT(goodput(sender.ns(), receiver.v4, receiver.ns(), 8), 0.025 * static_cast<double>(kRate));
}

TEST_F(Limiter, PacesIfCgroup2IsNotMounted) {
    mount_for_podlane("");
    expect_pacing();
}

TEST_F(Limiter, PacesIfCgroup2IsBesideV1) {
    mount_for_podlane("mount -t tmpfs none /sys/fs/cgroup; mkdir /sys/fs/cgroup/unified; "
                      "mount -t cgroup2 none /sys/fs/cgroup/unified;");
    expect_pacing();
}

// For the calling thread and what it starts, as if the kernel had been built without cgroup v2.
void take_cgroups_away() {
    constexpr auto kNumber = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
    std::array<sock_filter, 4> code{{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kNumber),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsopen, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENODEV),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    }};
    const sock_fprog program{code.size(), code.data()};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        throw std::runtime_error("seccomp");
}

TEST_F(Limiter, TheOthersCarryOnWithoutCgroup2) {
    std::optional<Pod> sender, receiver;
    Reply refused;
    std::thread([&] {
        take_cgroups_away();
        sender = lab_.add_pod(logged(limits(0, kRate)));
        receiver = lab_.add_pod(limits(kRate, 0));
        const auto container = lab_.node().container();
        Json keys = limits(0, kRate);
        keys["limiter"] = "pace";
        refused = lab_.node().cni("ADD", lab_.node().config(keys), *container);
    }).join();
    ASSERT_TRUE(sender && receiver);
    EXPECT_FALSE(is_paced());
    EXPECT_NE(log_text().find(is_shaped(*sender) ? "from the pod by shape, bucket" : "from the pod by bucket"),
              std::string::npos)
        << log_text();
    EXPECT_EQ(Json::parse(ctl({"status", "--json"}).out).at("limiters").get<std::string>().find("pace"),
              std::string::npos);
    EXPECT_NE(refused.rc, 0);
    EXPECT_EQ(refused.code(), 50) << refused;

    const Pod free = lab_.add_pod();
    const Fd socket = connected(sender->ns(), Transport::udp, {free.v4, 9});
    const std::string text(1400, 'u');
    expect_held(*sender, [&] { (void)send_text(socket, text); });
    EXPECT_LT(goodput(sender->ns(), receiver->v4, receiver->ns(), 2), 1.1 * static_cast<double>(kRate));
    EXPECT_EQ(state(*sender, LIMIT_EGRESS).paced, 0U);
}

TEST_F(Limiter, HoldsTheLeastRate) {
    constexpr double kLeast = 100000, kFirstSegments = 12 * 1514 * 8;
    const Pod sender = lab_.add_pod(limits(0, static_cast<std::uint64_t>(kLeast)));
    const Pod receiver = lab_.add_pod();
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, 7});
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(transfer(socket, 60000), 0);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double bits = static_cast<double>(state(sender, LIMIT_EGRESS).bytes) * 8;
    EXPECT_GT(bits, 60000 * 8);
    EXPECT_LT(bits, kLeast * seconds * 1.1 + kFirstSegments);
    if (!slow() && is_paced()) {
        EXPECT_GT(bits, kLeast * seconds * 0.8);
        tcp_info facts{};
        socklen_t size = sizeof facts;
        ASSERT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &facts, &size), 0);
        EXPECT_EQ(facts.tcpi_total_retrans, 0U);
    }
}

// TCP does not pace the first ten segments of a connection, and sends two at a time: they say nothing of the share.
TEST_F(Limiter, TwelveSegmentsOfAConnectionAreNotMeasured) {
    const Pod sender = lab_.add_pod(limits(0, 100000)); // so that no measurement ends meanwhile
    const Pod receiver = lab_.add_pod();
    if (!is_paced())
        GTEST_SKIP() << "this kernel cannot pace";
    (void)must_run(sender.ns(),
                   words("sysctl -qw net.ipv6.conf.eth0.disable_ipv6=1")); // reports of groups are measured
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, 7});
    for (int segment = 1; segment <= 12; ++segment)
        ASSERT_EQ(transfer(socket, 100), 0);
    EXPECT_EQ(state(sender, LIMIT_EGRESS).window_charged_ns, 0U);
    ASSERT_EQ(transfer(socket, 100), 0);
    EXPECT_GT(state(sender, LIMIT_EGRESS).window_charged_ns, 0U);
}

// Its first segments are a backlog of 0.7 s: the next two wait for that, and not for each usual frame of theirs.
TEST_F(Limiter, ALargeMtuDoesNotStopALowRate) {
    constexpr double kLow = 1000000;
    Json keys = limits(0, static_cast<std::uint64_t>(kLow));
    keys["mtu"] = 9000;
    const Pod sender = lab_.add_pod(keys);
    const Pod receiver = lab_.add_pod(Json{{"mtu", 9000}});
    if (slow() || !is_paced())
        GTEST_SKIP() << "this kernel cannot pace, or is emulated";
    const EchoServer server(receiver.ns(), true, 7);
    const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, 7});
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(transfer(socket, 300000), 0);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    EXPECT_GT(300000 * 8 / passed.count(), 0.6 * kLow);
}

TEST_F(Limiter, TakesTheGreatestRate) {
    constexpr std::uint64_t kGreatest = 400000000000;
    const Pod sender = lab_.add_pod(limits(kGreatest, kGreatest));
    const Pod receiver = lab_.add_pod();
    const Json shown = Json::parse(ctl({"bandwidth", "show", sender.host_ifname, "--json"}).out);
    ASSERT_EQ(shown.size(), 2U);
    for (const Json &one : shown) {
        EXPECT_THAT(one, has_members({{"rate_bits_per_s", kGreatest}, {"effective_burst_bits", kGreatest / 10}}));
    }
    EXPECT_GT(goodput(sender.ns(), receiver.v4, receiver.ns(), 4), slow() ? 1e6 : 1e8);
    EXPECT_GT(goodput(receiver.ns(), sender.v4, sender.ns(), 4), slow() ? 1e6 : 1e8);
    for (const limit_direction direction : {LIMIT_INGRESS, LIMIT_EGRESS}) {
        EXPECT_GT(state(sender, direction).bytes, 100000U);
        EXPECT_EQ(state(sender, direction).dropped, 0U);
    }
}

} // namespace
} // namespace podlane::test
