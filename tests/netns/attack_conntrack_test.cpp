// SPDX-License-Identifier: MIT
// A pod without capabilities fills the node's table of connections: with Podlane the connections of others, established
// and new, lose nothing that they do not lose beside ptp.
#include "tests/netns/attacker.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/lab.hpp"

#include <atomic>
#include <thread>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr int kEach = 10; // connections of each kind

struct Outcomes {
    int lost = 0;    // exchanges on established connections
    int refused = 0; // new connections that were not answered
    std::uint64_t tracked = 0;
    std::uint64_t most = 0;
};

std::uint64_t number_in(const net::Namespace &where, const char *name) {
    return std::stoull(must_run(where, {"cat", std::string("/proc/sys/net/netfilter/nf_conntrack_") + name}));
}

Outcomes attack(bool beside_ptp) {
    Lab lab;
    const auto add = [&] {
        Json ptp = {{"type", "ptp"}, {"ipam", lab.node().ipam()}};
        ptp["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}};
        return beside_ptp ? lab.add_pod(std::vector<Json>{ptp}) : lab.add_pod();
    };
    const Pod client = add();
    const Pod server_pod = add();
    const Pod hostile = add();
    lab.node().run("iptables -w -A FORWARD -m conntrack --ctstate INVALID -j DROP"); // tracks with ptp, too
    lab.node().run("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600"); // the table fills, however slow this is
    (void)must_run(lab.outside(), words(std::string("ip route add ") + Lab::kPods4 + " via " + Lab::kNode4));
    (void)must_run(lab.outside(), words("iptables -w -A INPUT -p udp -j DROP")); // no errors: the entries stay
    const EchoServer server(server_pod.ns(), true, kPort);
    const Endpoint to{server_pod.v4, kPort};
    std::vector<Fd> established;
    for (int i = 0; i < kEach; ++i)
        for (const Transport transport : {Transport::tcp, Transport::udp})
            established.push_back(connected(client.ns(), transport, to));
    const auto exchange = [](const Fd &socket) {
        return send_text(socket, "hello") == 0 && receive(socket).text == "hello";
    };
    // conntrack counts a stream of datagrams as assured after two seconds.
    const auto settled = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
    while (std::chrono::steady_clock::now() < settled) {
        for (const Fd &socket : established)
            EXPECT_TRUE(exchange(socket));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    Outcomes out;
    out.most = number_in(lab.node().ns(), "max");
    std::atomic<bool> stop = false;
    std::thread filling([&] { flood(hostile.ns(), {ip(Lab::kOutside4)}, true, stop); });
    const bool is_full =
        wait_until([&] { return number_in(lab.node().ns(), "count") * 20 >= out.most * 19; }, std::chrono::minutes(2));
    EXPECT_TRUE(is_full) << number_in(lab.node().ns(), "count") << " of " << out.most;
    for (int round = 0; round < 3; ++round) {
        for (const Fd &socket : established)
            out.lost += exchange(socket) ? 0 : 1;
        for (int i = 0; i < kEach; ++i)
            for (const Transport transport : {Transport::tcp, Transport::udp})
                out.refused += ask(client.ns(), transport, to) == 0 ? 0 : 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(1100)); // conntrack is queried again
    }
    out.tracked = number_in(lab.node().ns(), "count");
    stop = true;
    filling.join();
    std::cout << (beside_ptp ? "ptp: " : "podlane: ") << out.lost << " of " << 6 * kEach << " exchanges lost, "
              << out.refused << " of " << 6 * kEach << " connections refused, " << out.tracked << " of " << out.most
              << " entries\n";
    return out;
}

TEST(AttackConntrack, AFullTableCostsOthersWhatItCostsBesidePtp) {
    if (slow())
        GTEST_SKIP() << "an emulated machine takes minutes to fill the table";
    const Outcomes with_ptp = attack(true);
    const Outcomes with_podlane = attack(false);
    EXPECT_EQ(with_ptp.lost, 0);
    EXPECT_EQ(with_podlane.lost, 0);
    EXPECT_LE(with_podlane.refused, with_ptp.refused + kEach / 2);
}

} // namespace
} // namespace podlane::test
