// SPDX-License-Identifier: MIT
// Isolated pods: who shares a group may connect, answers return, and whatever a hostile pod forges does not arrive.
#include "loader/object.hpp"
#include "tests/harness/frame.hpp"
#include "tests/netns/lab.hpp"

#include <gmock/gmock.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

class Isolated : public LabTest {
  protected:
    static Json in_group(const std::string &name, const std::string &isolation = "group") {
        return {{"groups", {"name:" + name}}, {"isolation", isolation}};
    }
    void SetUp() override {
        LabTest::SetUp();
        if (IsSkipped())
            return;
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        victim_ = add_pod(in_group("tenant-a"));
        friend_ = add_pod(in_group("tenant-a"));
        foreign_ = add_pod(in_group("tenant-b"));
        open_ = add_pod(); // neither isolated nor in a group
        server_.emplace(victim_.ns(), ipv4(), kPort);
        wire_.emplace(victim_.wire());
    }
    [[nodiscard]] Endpoint victim() const { return {addr(victim_), kPort}; }
    [[nodiscard]] std::uint64_t drops(const Pod &pod) const { return lab_->count(pod, REASON_DROP_ISOLATION); }

    // A SYN and a datagram: both are dropped, and counted at the victim or at the sender.
    void expect_refused(const net::Namespace &from, const Pod *sender = nullptr) {
        const auto dropped = [&] { return drops(victim_) + (sender != nullptr ? drops(*sender) : 0); };
        for (const Transport transport : {Transport::tcp, Transport::udp}) {
            const std::uint64_t before = dropped();
            const Fd socket = open_socket(from, transport, ipv4());
            if (transport == Transport::tcp)
                EXPECT_EQ(connect_to(socket, victim(), quiet()), ETIMEDOUT);
            else if (connect_to(socket, victim()) == 0)
                (void)send_text(socket, "forbidden");
            EXPECT_TRUE(wait_until([&] { return dropped() > before; })) << to_string(transport);
        }
    }
    // Frames that reached the victim from this address, but for the resolution of addresses.
    [[nodiscard]] std::vector<Bytes> arrived_from(const ip_addr &source) const {
        std::vector<Bytes> from = wire_->arrived();
        std::erase_if(from, [&](const Bytes &one) { return !is_from(one, source); });
        return from;
    }

    Pod victim_, friend_, foreign_, open_;
    std::optional<EchoServer> server_;
    std::optional<Wire> wire_;
};

TEST_P(Isolated, MembersConnectAndOthersDoNot) {
    for (const Transport transport : {Transport::tcp, Transport::udp})
        for (int i = 0; i < 3; ++i)
            EXPECT_EQ(ask(friend_.ns(), transport, victim()), 0) << to_string(transport);
    EXPECT_TRUE(ping(friend_.ns(), addr(victim_)));
    EXPECT_TRUE(ping(lab_->node().ns(), addr(victim_))) << "the node's probes";
    EXPECT_EQ(ask(lab_->node().ns(), Transport::tcp, victim()), 0);
    expect_refused(foreign_.ns(), &foreign_);
    expect_refused(open_.ns(), &open_);
    expect_refused(lab_->outside());
    EXPECT_EQ(arrived_from(addr(foreign_)), std::vector<Bytes>{});
    EXPECT_EQ(arrived_from(addr(open_)), std::vector<Bytes>{});
    EXPECT_EQ(arrived_from(outside_addr()), std::vector<Bytes>{});
}

// Out everywhere, and back: on the slow path and on the fast one.
TEST_P(Isolated, AnswersReturn) {
    const EchoServer open_server(open_.ns(), ipv4(), kPort);
    const EchoServer outside(lab_->outside(), ipv4(), kPort);
    const EchoServer node(lab_->node().ns(), ipv4(), kPort);
    for (const ip_addr &to : {addr(open_), outside_addr(), node_addr()})
        for (const Transport transport : {Transport::tcp, Transport::udp}) {
            EXPECT_EQ(ask(victim_.ns(), transport, {to, kPort}), 0) << to_string(to) << to_string(transport);
            EXPECT_EQ(ask(victim_.ns(), transport, {to, kPort + 1}), ECONNREFUSED) << to_string(to); // of UDP by ICMP
        }
    EXPECT_TRUE(ping(victim_.ns(), addr(open_)));
    EXPECT_TRUE(ping(victim_.ns(), outside_addr()));
    const std::uint64_t direct = lab_->count(victim_, REASON_RECEIVED_DIRECT);
    const Fd socket = connected(victim_.ns(), Transport::tcp, {addr(open_), kPort});
    EXPECT_EQ(transfer(socket, std::size_t{4} << 20U), 0);
    if (require(programs_query_conntrack(lab_->node().bpffs()))) {
        EXPECT_GT(lab_->count(victim_, REASON_RECEIVED_DIRECT), direct) << "answers on the fast path";
    }
}

// Packets that only CAP_NET_RAW can make: none arrives.
TEST_P(Isolated, NothingForgedArrives) {
    const EchoServer open_server(open_.ns(), ipv4(), kPort);
    const Fd known = connected(victim_.ns(), Transport::udp, {addr(open_), kPort}, {{}, 40000});
    ASSERT_EQ(send_text(known, "hello"), 0);
    ASSERT_EQ(receive(known).text, "hello");
    wire_->forget();
    const Wire wire = foreign_.wire();
    const auto send = [&](const Packet &one) { wire.send(frame(foreign_.gateway_mac, foreign_.mac, one)); };
    const Ends ends{addr(foreign_), addr(victim_), kPort, 40000};
    for (const int flags : {+tcp_syn, tcp_syn | tcp_ack, +tcp_ack, +tcp_rst, tcp_fin | tcp_ack, tcp_psh | tcp_ack, 0})
        send(tcp(ends, static_cast<std::uint8_t>(flags), 16));
    for (int i = 0; i < 3; ++i)
        send(udp(ends)); // as if it answered
    send(echo_request(ends, 7, 1));
    send(other(ends, IPPROTO_SCTP));
    send(other(ends, 47));
    // Errors about a connection with another pod, and about one that there is not.
    for (const ip_addr &peer : {addr(open_), addr(foreign_)}) {
        Bytes quoted = to_bytes(udp({addr(victim_), peer, 40000, kPort}));
        quoted.insert(quoted.begin(), 4, 0);
        send(icmp(ends, ipv4() ? 3 : 1, ipv4() ? 3 : 4, quoted));
    }
    Packet fragmented = udp(ends, 64);
    if (ipv4()) {
        fragmented.fragment = 0x2000; // the first, with more behind it
        send(fragmented);
        fragmented.fragment = 0x0004; // and the last one
        send(fragmented);
        Packet options = udp(ends);
        options.options = {1, 1, 1, 1};
        send(options);
    } else {
        for (const std::uint8_t kind : {0, 43, 60}) {
            Packet extended = udp(ends);
            extended.extension = kind;
            extended.options = {17, 0, 1, 4, 0, 0, 0, 0};
            send(extended);
        }
        fragmented.extension = 44;
        fragmented.options = {17, 0, 0, 1, 0, 0, 0, 9};
        send(fragmented);
        fragmented.options = {17, 0, 0, 0x48, 0, 0, 0, 9};
        send(fragmented);
        // The kernel has to fragment these itself, and forgets by which interface they came.
        const frames::Frame below =
            frames::Ethernet{foreign_.gateway_mac, foreign_.mac} / frames::Ipv6{addr(foreign_), addr(victim_)};
        wire.send(below / frames::Extension{IPPROTO_DSTOPTS, 25} / frames::Extension{IPPROTO_FRAGMENT, 1, 1} /
                  frames::Udp{kPort, 40000} / Bytes(64));
        wire.send(below / frames::Extension{IPPROTO_FRAGMENT, 1, 0x48, IPPROTO_UDP} / Bytes(64));
    }
    wire.send(frames::tagged(frame(foreign_.gateway_mac, foreign_.mac, udp(ends)), {frames::Tag{}}));
    send(udp(ends)); // the last of them; then a friend's
    const std::uint64_t before = drops(victim_);
    EXPECT_TRUE(wait_until([&] {
        send(udp(ends));
        return drops(victim_) > before + 3;
    }));
    ASSERT_EQ(ask(friend_.ns(), Transport::udp, victim()), 0);
    for (const Bytes &one : arrived_from(addr(foreign_)))
        ADD_FAILURE() << "arrived: " << hex(one);
    EXPECT_EQ(send_text(known, "again"), 0);
    EXPECT_EQ(receive(known).text, "again") << "the connection that was named goes on";
}

// About a connection of the victim with another one, an error of a pod that may answer for itself.
TEST_P(Isolated, APodSendsErrorsForItselfOnly) {
    const EchoServer outside(lab_->outside(), ipv4(), kPort);
    const Fd known = connected(victim_.ns(), Transport::udp, {outside_addr(), kPort}, {{}, 40000});
    ASSERT_EQ(send_text(known, "hello"), 0);
    ASSERT_EQ(receive(known).text, "hello");
    wire_->forget();
    const Wire wire = open_.wire();
    Bytes quoted = to_bytes(udp({addr(victim_), outside_addr(), 40000, kPort}));
    quoted.insert(quoted.begin(), 4, 0);
    const Packet error = icmp({addr(open_), addr(victim_)}, ipv4() ? 3 : 1, ipv4() ? 3 : 4, quoted);
    const std::uint64_t before = drops(victim_);
    EXPECT_TRUE(wait_until([&] {
        wire.send(frame(open_.gateway_mac, open_.mac, error));
        return drops(victim_) > before + 2;
    }));
    for (const Bytes &one : arrived_from(addr(open_)))
        ADD_FAILURE() << "arrived: " << hex(one);
    EXPECT_EQ(send_text(known, "again"), 0);
    EXPECT_EQ(receive(known).text, "again");
}

// A host on the uplink opens a connection in the victim's name with a pod that it is in league with: what that one
// sends would be the answer. For IPv6 no reverse path filter stops it.
TEST_P(Isolated, NobodyOnTheUplinkSpeaksForIt) {
    lab_->node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up0.rp_filter=0");
    const Wire outside(lab_->outside(), "eth0");
    const Mac gateway = Wire(lab_->node().ns(), "up0").mac();
    const Wire wire = open_.wire();
    const std::uint64_t before = drops(victim_);
    std::uint16_t port = 40000;
    EXPECT_TRUE(wait_until([&] {
        ++port; // the first packet says who has opened it
        outside.send(frame(gateway, outside.mac(), udp({addr(victim_), addr(open_), port, kPort})));
        wire.send(frame(open_.gateway_mac, open_.mac, udp({addr(open_), addr(victim_), kPort, port})));
        return drops(victim_) > before + 20;
    }));
    for (const Bytes &one : arrived_from(addr(open_)))
        ADD_FAILURE() << "arrived: " << hex(one);
}

// conntrack has seen what is dropped: the pod's own connection from that port would be taken for a reply.
TEST_P(Isolated, ARefusedPacketTakesNoPortFromThePod) {
    if (!require(programs_query_conntrack(lab_->node().bpffs())))
        GTEST_SKIP() << "this kernel has no bpf_skb_ct_lookup";
    const EchoServer outside(lab_->outside(), ipv4(), kPort), open_server(open_.ns(), ipv4(), kPort);
    const Wire uplink(lab_->outside(), "eth0"), pod = open_.wire();
    const Mac gateway = Wire(lab_->node().ns(), "up0").mac();
    std::uint16_t port = 41000;
    for (const auto &[peer, wire, to] :
         {std::tuple{outside_addr(), &uplink, gateway}, {addr(open_), &pod, open_.gateway_mac}})
        for (const Transport transport : {Transport::tcp, Transport::udp})
            for (const bool is_long : {false, true}) { // with options, or extension headers
                const Ends ends{peer, addr(victim_), kPort, ++port};
                Packet refused = transport == Transport::tcp ? tcp(ends, tcp_syn) : udp(ends);
                if (is_long) {
                    refused.extension = ipv4() ? 0 : 60;
                    refused.options = ipv4() ? Bytes{1, 1, 1, 1} : Bytes{refused.protocol, 0, 1, 4, 0, 0, 0, 0};
                }
                const std::uint64_t before = drops(victim_) + drops(open_);
                wire->send(frame(to, wire->mac(), refused));
                EXPECT_TRUE(wait_until([&] { return drops(victim_) + drops(open_) > before; }));
                EXPECT_EQ(ask(victim_.ns(), transport, {peer, kPort}, "hello", {addr(victim_), port}), 0)
                    << to_string(peer) << to_string(transport) << is_long;
            }
}

// Linux fragments such IPv6 packets itself, and forgets by which interface they came.
TEST_P(Isolated, ARefusedPacketInFragmentsTakesNoPortFromThePod) {
    if (!require(programs_query_conntrack(lab_->node().bpffs())))
        GTEST_SKIP() << "this kernel has no bpf_skb_ct_lookup";
    const EchoServer outside(lab_->outside(), ipv4(), kPort);
    const Wire uplink(lab_->outside(), "eth0");
    const Mac gateway = Wire(lab_->node().ns(), "up0").mac();
    const Ends ends{outside_addr(), addr(victim_), kPort, 41100};
    const std::uint64_t before = drops(victim_);
    if (ipv4()) {
        Packet fragmented = udp(ends, 64);
        fragmented.fragment = 0x2000;
        uplink.send(frame(gateway, uplink.mac(), fragmented));
        fragmented.fragment = 0x0009;
        uplink.send(frame(gateway, uplink.mac(), fragmented));
    } else {
        const frames::Frame below =
            frames::Ethernet{gateway, uplink.mac()} / frames::Ipv6{outside_addr(), addr(victim_)};
        uplink.send(below / frames::Extension{IPPROTO_DSTOPTS, 25} / frames::Extension{IPPROTO_FRAGMENT, 1, 1} /
                    frames::Udp{kPort, 41100} / Bytes(64));
        uplink.send(below / frames::Extension{IPPROTO_FRAGMENT, 1, 0x48, IPPROTO_UDP} / Bytes(64));
    }
    EXPECT_TRUE(wait_until([&] { return drops(victim_) > before; }));
    EXPECT_EQ(ask(victim_.ns(), Transport::udp, {outside_addr(), kPort}, "hello", {addr(victim_), 41100}), 0);
}

// Also if the node may not connect to the pod: it speaks for the peer that its rules reject.
TEST_P(Isolated, TheResetOfARuleArrives) {
    Json keys = in_group("tenant-a");
    keys["host"] = "deny";
    const Pod closed = add_pod(keys);
    (void)must_run(lab_->node().ns(), words(std::string(ipv4() ? "iptables" : "ip6tables") +
                                            " -w -I FORWARD -p tcp --dport 7 -j REJECT --reject-with tcp-reset"));
    EXPECT_EQ(ask(closed.ns(), Transport::tcp, {outside_addr(), kPort}), ECONNREFUSED);
    EXPECT_FALSE(ping(lab_->node().ns(), addr(closed)));
}

// As with WireGuard: both have the same port.
TEST_P(Isolated, APeerThatSpokeFirstMayAnswer) {
    if (!require(programs_query_conntrack(lab_->node().bpffs())))
        GTEST_SKIP() << "this kernel has no bpf_skb_ct_lookup";
    const Fd at_victim = open_socket(victim_.ns(), Transport::udp, ipv4(), {{}, 51820});
    const Fd at_peer = open_socket(open_.ns(), Transport::udp, ipv4(), {{}, 51820});
    const std::uint64_t before = drops(victim_);
    ASSERT_TRUE(send_datagram(at_peer, {addr(victim_), 51820}, "first"));
    ASSERT_TRUE(wait_until([&] { return drops(victim_) > before; }));
    ASSERT_TRUE(send_datagram(at_victim, {addr(open_), 51820}, "request"));
    EXPECT_EQ(receive(at_peer).text, "request");
    ASSERT_TRUE(send_datagram(at_peer, {addr(victim_), 51820}, "answer"));
    EXPECT_EQ(receive(at_victim).text, "answer");
}

TEST_P(Isolated, IsShownAndCounted) {
    expect_refused(foreign_.ns(), &foreign_);
    const Json counters = lab_->node().podlanectl_json("counter list");
    EXPECT_TRUE(std::ranges::any_of(counters, [](const Json &row) { return row.at("reason") == "drop-isolation"; }));
    const Json entries = lab_->node().podlanectl_json("map dump isolation");
    EXPECT_EQ(entries.size(), 3U) << entries;
    EXPECT_EQ(lab_->node().podlanectl("doctor").rc, 0) << lab_->node().podlanectl("doctor").out;
}

INSTANTIATE_TEST_SUITE_P(All, Isolated, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
