// SPDX-License-Identifier: MIT
// Two uplinks that lead to the same host, by equal routes between which the kernel chooses by the hash of a packet.
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

class EqualRoutes : public LabTest {
  protected:
    static constexpr std::uint16_t kPort = 7;
    static constexpr std::size_t kFlows = 16;

    void prepare() override {
        far_ = lab_->node().container("far");
        std::string routes = ip_command() + " route add " + to_string(server_addr());
        for (const char *number : {"1", "2"}) {
            const std::string link = std::string("up") + number;
            lab_->node().run("ip link add " + link + " type veth peer name eth" + number + " netns " + far_->path());
            set_up(lab_->node().ns(), link, addr_on(number, "2"));
            set_up(far_->ns(), std::string("eth") + number, addr_on(number, "1"));
            routes += " nexthop via " + addr_on(number, "1") + " dev " + link;
        }
        set_up(far_->ns(), "lo", to_string(server_addr()));
        lab_->node().run(routes);
        lab_->node().run("sysctl -qw net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1");
        far_->run(ip_command() + " route add " + pod_range() + " via " + addr_on("2", "2"));
        server_.emplace(far_->ns(), ipv4(), kPort);
        for (const char *number : {"1", "2"}) // the next hops are known
            ASSERT_TRUE(ping(lab_->node().ns(), ip(addr_on(number, "1"))));
        pod_ = add_pod({{"uplinks", {"up1", "up2"}}, {"firstPacket", "host"}});
    }
    [[nodiscard]] std::string ip_command() const { return ipv4() ? "ip" : "ip -6"; }
    [[nodiscard]] ip_addr server_addr() const { return ip(ipv4() ? "198.51.100.1" : "2001:db8:f7::1"); }
    [[nodiscard]] std::string addr_on(const std::string &link, const std::string &host) const {
        return (ipv4() ? "192.0." + link + "." : "2001:db8:f" + link + "::") + host;
    }
    void set_up(const net::Namespace &where, const std::string &link, const std::string &addr) const {
        const bool is_link = link != "lo";
        (void)must_run(where, words("ip addr add " + addr +
                                    (!is_link ? ""
                                     : ipv4() ? "/24"
                                              : "/64") +
                                    (ipv4() ? "" : " nodad") + " dev " + link));
        (void)must_run(where, words("ip link set " + link + " up"));
    }
    [[nodiscard]] Fd call() const { return connected(pod_.ns(), Transport::tcp, {server_addr(), kPort}); }
    [[nodiscard]] static bool answered(const Fd &socket) {
        return send_text(socket, "x") == 0 && receive(socket).text == "x";
    }
    [[nodiscard]] std::uint64_t sent_fast() const { return lab_->count(pod_, REASON_SENT_UPLINK); }
    // All that leaves by an uplink is lost, and neither its carrier nor its routes say so.
    void lose(const std::string &uplink) { lab_->node().run("tc qdisc replace dev " + uplink + " root pfifo limit 0"); }

    std::shared_ptr<Container> far_;
    std::optional<EchoServer> server_;
    Pod pod_;
};

// With each time-out a TCP tries another of the routes, half of the time the one that works.
TEST_P(EqualRoutes, ConnectionsLeaveARouteThatLosesPackets) {
    std::vector<Fd> sockets;
    for (std::size_t i = 0; i < kFlows; ++i) {
        sockets.push_back(call());
        ASSERT_TRUE(wait_until([&, before = sent_fast()] { return answered(sockets[i]) && sent_fast() > before; }));
    }
    lose("up1");
    for (const Fd &socket : sockets)
        (void)send_text(socket, "x");
    std::vector<bool> back(kFlows);
    const auto receive_all = [&] {
        for (std::size_t i = 0; i < kFlows; ++i)
            back[i] = back[i] || !receive(sockets[i], 100, std::chrono::milliseconds(0)).text.empty();
        return std::ranges::count(back, true) >= static_cast<std::ptrdiff_t>(kFlows) - 2;
    };
    EXPECT_TRUE(wait_until(receive_all, std::chrono::seconds(30)))
        << std::ranges::count(back, true) << " of " << kFlows << " connections go on";
}

TEST_P(EqualRoutes, ARetransmissionByAnOnlyRouteStaysOnTheFastPath) {
    lab_->node().run(ip_command() + " route replace " + to_string(server_addr()) + " via " + addr_on("2", "1") +
                     " dev up2");
    const Fd socket = call();
    ASSERT_TRUE(wait_until([&] { return answered(socket) && sent_fast() > 0; }));
    for (int i = 0; i < 3; ++i) {
        lose("up2");
        const auto before = sent_fast();
        ASSERT_EQ(send_text(socket, "x"), 0);
        ASSERT_TRUE(wait_until([&] { return sent_fast() > before + 1; })) << "not sent again";
        lab_->node().run("tc qdisc del dev up2 root");
        ASSERT_EQ(receive(socket, 100).text, "x");
    }
    const auto before = sent_fast();
    ASSERT_TRUE(answered(socket));
    EXPECT_GT(sent_fast(), before);
}

// By another uplink than without the mark, which a program's query does not know.
TEST_P(EqualRoutes, WhatAMarkSendsByAnotherUplinkStaysOnTheSlowPath) {
    lab_->node().run(ip_command() + " route replace " + to_string(server_addr()) + " via " + addr_on("1", "1") +
                     " dev up1");
    lab_->node().run(ip_command() + " route add " + to_string(server_addr()) + " via " + addr_on("2", "1") +
                     " dev up2 table 77");
    lab_->node().run(ip_command() + " rule add fwmark 7 lookup 77");
    lab_->node().run("sysctl -qw net.ipv4.conf.up2.rp_filter=0 net.ipv4.conf.all.rp_filter=0");
    lab_->node().run((ipv4() ? "iptables" : "ip6tables") + std::string(" -w -t mangle -A PREROUTING -p tcp --dport 8") +
                     " -j MARK --set-mark 7");
    const EchoServer marked(far_->ns(), ipv4(), 8);
    const Fd plain = call();
    ASSERT_TRUE(wait_until([&] { return answered(plain) && sent_fast() > 0; }));
    const auto before = sent_fast();
    const Fd socket = connected(pod_.ns(), Transport::tcp, {server_addr(), 8});
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(answered(socket));
        std::this_thread::sleep_for(std::chrono::milliseconds(30)); // until after the next query
    }
    EXPECT_EQ(sent_fast(), before);
    ASSERT_TRUE(answered(plain));
}

INSTANTIATE_TEST_SUITE_P(All, EqualRoutes, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
