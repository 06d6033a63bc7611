// SPDX-License-Identifier: MIT
// Treatment of a forwarded packet by the host, and the part that holds on the fast path: the table of
// docs/ROUTING.md, row by row.
#include "tests/netns/lab.hpp"

#include <netinet/tcp.h>

namespace podlane::test {
namespace {

constexpr std::size_t kBytes = 8 << 20; // some hundred packets

class HostRules : public PairTest {
  protected:
    void start(Json keys = Json::object()) {
        keys["firstPacket"] = "host";
        PairTest::start(keys);
    }
    void forward_rule(const std::string &rule) {
        lab_->node().run("nft -f -",
                         "table inet t { chain c { type filter hook forward priority 0; " + rule + "; }\n}\n");
    }
    [[nodiscard]] std::string ip_word() const { return ipv4() ? "ip" : "ip6"; }
    // Of the rule that has a counter.
    [[nodiscard]] std::uint64_t counted() {
        const std::string listing = lab_->node().run("nft list table inet t");
        const auto at = listing.find("counter packets ");
        return at == std::string::npos ? 0 : std::stoull(listing.substr(at + 16));
    }
    // An established connection whose packets take the fast path.
    Fd fast_connection() {
        Fd socket = call();
        for (int i = 0; i < 20 && fast() == 0; ++i)
            EXPECT_EQ(transfer(socket, kBytes / 8), 0);
        return socket;
    }
    // Packets that take the fast path while this many bytes are transferred.
    std::uint64_t fast_packets(const Fd &socket) {
        const std::uint64_t before = fast();
        EXPECT_EQ(transfer(socket, kBytes), 0);
        return fast() - before;
    }
    [[nodiscard]] std::uint64_t fast() const {
        return lab_->count(a_, REASON_SENT_DIRECT) + lab_->count(b_, REASON_SENT_DIRECT);
    }
    // Packets that qdiscs of a link on the node have sent.
    [[nodiscard]] std::uint64_t queued(const std::string &link) {
        const Json all = Json::parse(lab_->node().run("tc -s -j qdisc show dev " + link));
        std::uint64_t packets = 0;
        for (const Json &one : all)
            if (one.value("root", false))
                packets += one.at("packets").get<std::uint64_t>();
        return packets;
    }
};

TEST_P(HostRules, HeadersMarksAndCountersMeetFirstPacketsAloneUnlessTheFastPathIsOff) {
    for (const std::string &rule : {std::string(ipv4() ? "ip ttl set 33" : "ip6 hoplimit set 33"),
                                    ip_word() + " dscp set cs4", std::string(), std::string("meta mark set 0x77")}) {
        SCOPED_TRACE("rule: " + rule);
        start();
        forward_rule(rule + " counter");
        const Fd followed = fast_connection();
        const std::uint64_t first = counted();
        EXPECT_GE(first, 1U);
        EXPECT_GE(fast_packets(followed), 20U);
        EXPECT_LE(counted() - first, 5U);

        start({{"fastPath", "off"}});
        const Fd seen = call();
        const std::uint64_t before = counted();
        EXPECT_EQ(fast_packets(seen), 0U);
        EXPECT_GE(counted() - before, 20U);
        lab_->node().run("nft delete table inet t");
    }
}

TEST_P(HostRules, ARuleThatSetsTheSlowPathMarkKeepsEveryPacket) {
    start({{"slowPathMark", "0x10/0x10"}});
    forward_rule("ct mark set 0x10 counter");
    ASSERT_EQ(transfer(call(), kBytes), 0);
    EXPECT_EQ(fast(), 0U);
    EXPECT_GE(counted(), 20U);
}

TEST_P(HostRules, AQueueHoldsFirstPackets) {
    start();
    lab_->node().run(iptables() + " -A FORWARD -p tcp --dport 7 -j NFQUEUE --queue-num 9"); // nobody listens there
    const Fd socket = open_socket(a_.ns(), Transport::tcp, ipv4());
    EXPECT_EQ(connect_to(socket, server(), kRetransmitted), ETIMEDOUT);
    EXPECT_EQ(fast(), 0U);
}

TEST_P(HostRules, TcpMssIsClamped) {
    start();
    forward_rule("tcp flags syn tcp option maxseg size set 1000");
    const Fd socket = fast_connection();
    EXPECT_GE(fast_packets(socket), 20U);
    int mss = 0;
    socklen_t size = sizeof mss;
    ASSERT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_MAXSEG, &mss, &size), 0);
    EXPECT_LE(mss, 1000);
}

TEST_P(HostRules, QdiscsOfAnUplinkMeetEveryPacket) {
    start();
    lab_->node().run(iptables() + " -t nat -A POSTROUTING -o up0 -j MASQUERADE");
    lab_->node().run("tc qdisc replace dev up0 root pfifo limit 1000");
    const EchoServer outside(lab_->outside(), ipv4(), 7);
    const Fd socket = connected(a_.ns(), Transport::tcp, {outside_addr(), 7});
    ASSERT_EQ(transfer(socket, kBytes), 0);
    EXPECT_GE(lab_->count(a_, REASON_SENT_UPLINK), 20U);
    EXPECT_GE(queued("up0"), lab_->count(a_, REASON_SENT_UPLINK));
}

// The address of the uplink before may be another provider's.
TEST_P(HostRules, AMasqueradedFlowGetsTheAddressOfTheUplinkThatItMovesTo) {
    const auto far = lab_->node().container("far");
    const std::string ip_command = ipv4() ? "ip " : "ip -6 ";
    const std::string bits = ipv4() ? "/24" : "/64 nodad";
    const auto addr_of = [&](int uplink, int host) {
        return (ipv4() ? "192.0.2" + std::string(uplink == 1 ? "." : "5.")
                       : "2001:db8:f" + std::to_string(uplink) + "::") +
               std::to_string(host);
    };
    const std::string server_text = ipv4() ? "198.51.100.7" : "2001:db8:f7::7";
    (void)far->run("ip link set lo up");
    (void)far->run("ip addr add " + server_text + (ipv4() ? "" : " nodad") + " dev lo");
    for (const int uplink : {1, 2}) {
        const std::string number = std::to_string(uplink);
        lab_->node().run("ip link add up" + number + " type veth peer name eth" + number + " netns " + far->path());
        lab_->node().run("ip addr add " + addr_of(uplink, 2) + bits + " dev up" + number);
        lab_->node().run("ip link set up" + number + " up");
        (void)far->run("ip addr add " + addr_of(uplink, 1) + bits + " dev eth" + number);
        (void)far->run("ip link set eth" + number + " up");
        (void)far->run(ip_command + "route add " + addr_of(uplink, 2) + " dev eth" + number + " src " + server_text);
    }
    const EchoServer far_server(far->ns(), ipv4(), 7);
    const auto route_by = [&](int uplink) {
        lab_->node().run(ip_command + "route replace " + server_text + " via " + addr_of(uplink, 1));
    };
    lab_->node().run(iptables() + " -t nat -A POSTROUTING -d " + server_text + " -j MASQUERADE");
    for (const std::string path : {"off", "on"}) {
        SCOPED_TRACE("fastPath " + path);
        start({{"fastPath", path}, {"uplinks", {"up*"}}});
        route_by(1);
        const Fd socket = connected(a_.ns(), Transport::udp, {ip(server_text), 7});
        const auto asked_by = [&](int uplink) {
            EXPECT_EQ(send_text(socket, "question"), 0);
            (void)receive(socket, 8, quiet());
            return to_string(far_server.callers().back()) == to_string(ip(addr_of(uplink, 2)));
        };
        EXPECT_TRUE(wait_until([&] {
            EXPECT_TRUE(asked_by(1));
            return path == "off" || lab_->count(a_, REASON_SENT_UPLINK) >= 20;
        }));
        route_by(2);
        EXPECT_TRUE(wait_until([&] { return asked_by(2); }));
        EXPECT_TRUE(asked_by(2));
    }
}

TEST_P(HostRules, QdiscsOfAHostSideVethMeetFirstPackets) {
    start();
    lab_->node().run("tc qdisc replace dev " + b_.host_ifname + " root pfifo limit 1000");
    const Fd socket = fast_connection();
    const std::uint64_t first = queued(b_.host_ifname);
    EXPECT_GE(fast_packets(socket), 20U);
    EXPECT_LE(queued(b_.host_ifname) - first, 5U);
}

// The kernel leaves out the hook egress for what a program redirects.
TEST_P(HostRules, ChainsOfADeviceMeetFirstPackets) {
    lab_->node().run(iptables() + " -t nat -A POSTROUTING -o up0 -j MASQUERADE");
    const EchoServer outside(lab_->outside(), ipv4(), kPort);
    for (const std::string hook : {"ingress", "egress"}) {
        SCOPED_TRACE(hook);
        start();
        if (run(lab_->node().ns(), words("nft -f -"),
                "table netdev n { chain c { type filter hook " + hook +
                    " device up0 priority 0; meta l4proto tcp counter; }\n}\n")
                .rc != 0)
            GTEST_SKIP() << "this kernel has no hook " << hook;
        const auto met = [&] {
            const std::string listing = lab_->node().run("nft list table netdev n");
            return std::stoull(listing.substr(listing.find("counter packets ") + 16));
        };
        const Fd socket = connected(a_.ns(), Transport::tcp, {outside_addr(), kPort});
        ASSERT_EQ(transfer(socket, kBytes / 8), 0);
        const std::uint64_t first = met();
        EXPECT_GE(first, 1U);
        ASSERT_EQ(transfer(socket, kBytes), 0);
        EXPECT_GE(lab_->count(a_, REASON_SENT_UPLINK), 20U);
        EXPECT_LE(met() - first, 5U);
        lab_->node().run("nft delete table netdev n");
    }
}

// Felix takes every interface with its prefix for one of Calico's.
TEST_P(HostRules, CalicosFelixDropsInterfacesOfItsPrefixThatItDoesNotKnow) {
    lab_->node().run(iptables() + " -N cali-from-wl-dispatch");
    lab_->node().run(iptables() + " -A FORWARD -i cali+ -g cali-from-wl-dispatch");
    lab_->node().run(iptables() + " -A cali-from-wl-dispatch -j DROP");
    start();
    const Fd dropped = open_socket(a_.ns(), Transport::tcp, ipv4());
    EXPECT_EQ(connect_to(dropped, server(), kRetransmitted), ETIMEDOUT);
    start({{"hostInterfacePrefix", "plan"}});
    const Fd passes = call();
}

TEST_P(HostRules, AVrfOfThePodsIsHonouredOnTheSlowPath) {
    start();
    if (run(lab_->node().ns(), words("ip link add blue type vrf table 77")).rc != 0)
        GTEST_SKIP() << "this kernel has no VRF";
    lab_->node().run("ip link set blue up");
    lab_->node().run("ip link set " + a_.host_ifname + " master blue");
    const Fd socket = open_socket(a_.ns(), Transport::tcp, ipv4());
    EXPECT_NE(connect_to(socket, server()), 0) << "b is not in the VRF of a";
}

TEST_P(HostRules, AFlowtableIsNotNeeded) {
    start();
    const std::string table = "table inet t { flowtable f { hook ingress priority 0; devices = { " + a_.host_ifname +
                              ", " + b_.host_ifname +
                              " }; }\n chain c { type filter hook forward priority 0; ct state "
                              "established flow add @f counter; }\n}\n";
    if (run(lab_->node().ns(), words("nft -f -"), table).rc != 0)
        GTEST_SKIP() << "this kernel has no flowtables";
    EXPECT_GE(fast_packets(fast_connection()), 20U);
}

INSTANTIATE_TEST_SUITE_P(All, HostRules, testing::Values(LabParameter{"auto", true}, LabParameter{"auto", false}),
                         lab_family_name);

} // namespace
} // namespace podlane::test
