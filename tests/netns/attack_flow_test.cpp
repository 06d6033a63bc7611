// SPDX-License-Identifier: MIT
// A hostile pod and a hostile host on the uplink beside two victim pods: neither changes which path the victims'
// connections take, nor reaches what the host's rules close. With "firstPacket": "direct" the latter holds for the
// host.
#include "tests/harness/bpf.hpp"
#include "tests/harness/frame.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/service_test.hpp"

#include <linux/if_packet.h>
#include <net/if.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 53;
constexpr int kQueries = 20;

class AttackFlow : public ServiceTest {
  protected:
    explicit AttackFlow(const Json &keys = Json::object()) : ServiceTest(kPort, kPort, keys) {}
    [[nodiscard]] Mac uplink_mac() { return Wire(lab_->node().ns(), "up0").mac(); }
    // Packets that have arrived by the uplink, as its program counts them, whatever for.
    [[nodiscard]] std::uint64_t seen_on_uplink() {
        const std::uint32_t up0 = Json::parse(lab_->node().run("ip -j link show up0")).at(0).at("ifindex");
        const counters all = require(sum_of(require(open_counters(lab_->node().bpffs(), Access::read_only)), up0));
        std::uint64_t packets = 0;
        for (std::size_t why = 0; why < kReasons.size(); ++why)
            if (why != REASON_UPLINK_SENT && why != REASON_UPLINK_SENT_HOST)
                packets += all.by_reason[why].packets;
        return packets;
    }
    void expect_seen_on_uplink(std::uint64_t since, std::uint64_t sent) {
        EXPECT_TRUE(wait_until([&] { return seen_on_uplink() >= since + sent; }))
            << seen_on_uplink() - since << " of " << sent << " forged frames reach the programs";
    }
    [[nodiscard]] std::uint64_t fast() const { return lab_->count(client_, REASON_SENT_DIRECT); }
    void forge_replies_of_the_service();
    void knock_at_a_closed_forward_chain();
    void speak_for_a_peer_on_another_uplink(const Json &keys);
    using Attack = std::function<void(const std::atomic<bool> &stop)>;
    void withstand(bool evicts, const Attack &attack);
    [[nodiscard]] bool are_all_cached(const std::vector<Fd> &sockets);
    void expect_fast(const Fd &socket) const {
        EXPECT_TRUE(wait_until([&] {
            const std::uint64_t before = fast();
            return !answered(socket) || fast() > before;
        }));
    }
};

// Datagrams and SYNs in the name of the service, for the ports from which the pod will ask.
void AttackFlow::forge_replies_of_the_service() {
    const EchoServer server = serve_echo();
    lab_->node().run("sysctl -qw net.ipv4.conf.all.rp_filter=1");
    rule("-A FORWARD -i up0 -m conntrack --ctstate NEW -j DROP");
    const Wire wire(lab_->outside(), "eth0");
    const Mac gateway = uplink_mac();
    const std::uint64_t before = seen_on_uplink();
    std::uint64_t sent = 0;
    for (int round = 0; round < 3; ++round)
        for (std::uint16_t port = 20000; port < 20000 + kQueries; ++port) {
            const Ends forged{service_.cluster_ip, addr(client_), kPort, port};
            for (const Packet &one : {udp(forged), tcp(forged, tcp_syn), tcp(forged, tcp_syn | tcp_ack)}) {
                wire.send(frame(gateway, wire.mac(), one));
                ++sent;
            }
        }
    expect_seen_on_uplink(before, sent);
    int answers = 0;
    for (std::uint16_t port = 20000; port < 20000 + kQueries; ++port)
        for (const Transport transport : {Transport::udp, Transport::tcp})
            answers += ask(client_.ns(), transport, cluster_ip(), "who", {{}, port}) == 0 ? 1 : 0;
    EXPECT_EQ(answers, 2 * kQueries);
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(addr(client_)));
}

void AttackFlow::knock_at_a_closed_forward_chain() {
    const EchoServer server(server_.ns(), ipv4(), kPort);
    (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
    rule("-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT");
    rule("-P FORWARD DROP");
    const Fd datagrams = open_socket(lab_->outside(), Transport::udp, ipv4());
    const Fd connection = open_socket(lab_->outside(), Transport::tcp, ipv4());
    ASSERT_EQ(connect_to(datagrams, {addr(server_), kPort}), 0);
    const Wire wire(lab_->outside(), "eth0");
    const Wire victim = server_.wire();
    const Mac gateway = uplink_mac();
    for (int i = 0; i < 5; ++i) {
        ASSERT_EQ(send_text(datagrams, "let me in"), 0);
        for (const std::uint8_t flags : {std::uint8_t{tcp_syn}, std::uint8_t{tcp_ack}})
            wire.send(frame(gateway, wire.mac(), tcp({outside_addr(), addr(server_), 40000, kPort}, flags)));
    }
    EXPECT_FALSE(wait_until([&] { return !server.callers().empty(); }, quiet()));
    Bytes attacker;
    frames::append(attacker, outside_addr());
    for (const Bytes &one : victim.arrived())
        EXPECT_FALSE(contains(one, attacker)) << hex(one);
    rule("-P FORWARD ACCEPT");
    ASSERT_EQ(send_text(datagrams, "let me in"), 0);
    EXPECT_EQ(receive(datagrams).text, "let me in") << "nothing but the rule was in the way";
}

TEST_P(AttackFlow, ForgedRepliesOfAServiceChangeNothing) { forge_replies_of_the_service(); }
TEST_P(AttackFlow, AClosedForwardChainIsClosedToTheUplink) { knock_at_a_closed_forward_chain(); }

class AttackDirect : public AttackFlow {
  protected:
    // The cluster's ranges hold the Service, as people write them.
    void prepare() override {
        const Json keys = {{"firstPacket", "direct"},
                           {"clusterCIDRs", {"198.18.0.0/16", "2001:db8:9::/48", "2001:db8:5e::/48"}}};
        client_ = add_pod(keys);
        server_ = add_pod(keys);
    }
};

TEST_P(AttackDirect, ForgedRepliesOfAServiceChangeNothing) { forge_replies_of_the_service(); }
TEST_P(AttackDirect, AClosedForwardChainIsClosedToForeignSources) { knock_at_a_closed_forward_chain(); }

// In the name of the pod's peer, whose connection takes the fast path from its first packet on. The host stack, as with
// ptp, discards them by its own rules.
TEST_P(AttackDirect, PacketsInTheNameOfAPeerChangeNothing) {
    const EchoServer server(server_.ns(), ipv4(), kPort);
    lab_->node().run("sysctl -qw net.ipv4.conf.all.rp_filter=1");
    rule("-A FORWARD -i up0 -m conntrack --ctstate NEW,INVALID -j DROP");
    const Wire wire(lab_->outside(), "eth0");
    const Mac gateway = uplink_mac();
    constexpr std::uint16_t kOwnPort = 20000;
    const std::uint64_t before = seen_on_uplink();
    std::uint64_t sent = 0;
    const auto send = [&](const Packet &one) {
        wire.send(frame(gateway, wire.mac(), one));
        ++sent;
    };
    const Fd tcp_socket = connected({addr(server_), kPort}, Transport::tcp, kOwnPort);
    const Fd udp_socket = connected({addr(server_), kPort}, Transport::udp, kOwnPort);
    for (int round = 0; round < 3; ++round) {
        for (const Ends &forged : {Ends{addr(server_), addr(client_), kPort, kOwnPort},
                                   Ends{addr(client_), addr(server_), kOwnPort, kPort}}) {
            send(udp(forged));
            for (const int flags : std::initializer_list<int>{tcp_syn, tcp_syn | tcp_ack, tcp_ack, tcp_rst})
                send(tcp(forged, static_cast<std::uint8_t>(flags)));
        }
        expect_seen_on_uplink(before, sent);
        for (const Fd *socket : {&tcp_socket, &udp_socket}) {
            EXPECT_TRUE(answered(*socket));
            expect_fast(*socket);
        }
    }
    EXPECT_EQ(lab_->count(client_, REASON_HOST_UNCONFIRMED), 0U);
}

// The same four numbers at the backend, once by its own address and once by the service's.
TEST_P(AttackFlow, DirectAndTranslatedConnectionsOfTheSamePortsLive) {
    const EchoServer server = serve_echo();
    for (const bool direct_first : {true, false}) {
        const std::uint16_t port = direct_first ? 23456 : 23457;
        std::vector<Fd> sockets;
        for (const bool direct : {direct_first, !direct_first}) {
            sockets.push_back(connected(direct ? Endpoint{addr(server_), kPort} : cluster_ip(), Transport::tcp, port));
            EXPECT_EQ(transfer(sockets.back(), 1 << 20), 0);
        }
        for (int i = 0; i < 3; ++i)
            for (const Fd &socket : sockets) {
                EXPECT_EQ(transfer(socket, 1 << 20), 0);
                expect_fast(socket);
            }
    }
}

// conntrack counts replies before FORWARD drops them: that it knows both directions is not enough.
TEST_P(AttackFlow, WhatForwardDropsInOneDirectionStaysDropped) {
    (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
    rule("-A FORWARD -s " + to_string(addr(client_)) + " -j DROP");
    struct Peer {
        const net::Namespace &where;
        ip_addr addr;
        std::uint16_t port;
        Fd peer{};
        Fd pod{};
    };
    std::array<Peer, 2> peers{{{lab_->outside(), outside_addr(), 5001}, {server_.ns(), addr(server_), 5002}}};
    for (Peer &one : peers) {
        one.peer = open_socket(one.where, Transport::udp, ipv4(), {one.addr, one.port});
        one.pod = open_socket(client_.ns(), Transport::udp, ipv4(), {addr(client_), one.port});
        ASSERT_EQ(connect_to(one.peer, {addr(client_), one.port}), 0);
        ASSERT_EQ(connect_to(one.pod, {one.addr, one.port}), 0);
    }
    // Longer than conntrack takes to count the connection as assured.
    for (int i = 0; i < 70; ++i) {
        for (const Peer &one : peers) {
            ASSERT_EQ(send_text(one.peer, "question"), 0);
            ASSERT_EQ(send_text(one.pod, "answer"), 0);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    for (const Peer &one : peers) {
        EXPECT_LT(recv(one.peer.get(), nullptr, 0, MSG_DONTWAIT), 0) << "at " << to_string(one.addr);
        EXPECT_EQ(receive(one.pod).text, "question") << "the other direction is open";
    }
    EXPECT_EQ(fast() + lab_->count(client_, REASON_SENT_UPLINK), 0U);
}

// A peer, spoken for on another uplink, where a strict reverse path filter drops it; and the node itself, on any.
void AttackFlow::speak_for_a_peer_on_another_uplink(const Json &keys) {
    if (!ipv4())
        GTEST_SKIP() << "the kernel has no reverse path filter for IPv6";
    const auto far = lab_->node().container("far");
    lab_->node().run("ip link add up1 type veth peer name eth0 netns " + far->path());
    for (const char *command :
         {"ip addr add 192.0.2.1/24 dev up1", "ip link set up1 up", "sysctl -qw net.ipv4.conf.all.rp_filter=1"})
        lab_->node().run(command);
    (void)must_run(far->ns(), words("ip link set eth0 up"));
    (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
    const Pod victim = add_pod(keys);
    const EchoServer outside(lab_->outside(), ipv4(), kPort);
    const EchoServer on_node(lab_->node().ns(), ipv4(), kPort);
    const Wire wire(far->ns(), "eth0");
    const Wire near(lab_->outside(), "eth0");
    const Mac far_gateway = Wire(lab_->node().ns(), "up1").mac();
    for (const auto &[peer, from, gateway] :
         {std::tuple{outside_addr(), &wire, far_gateway}, std::tuple{node_addr(), &near, uplink_mac()}}) {
        const Fd socket = test::connected(victim.ns(), Transport::udp, {peer, kPort}, {{}, 7000});
        for (int i = 0; i < 50; ++i) {
            ASSERT_TRUE(answered(socket));
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        const Bytes forged = frame(gateway, from->mac(), udp({peer, addr(victim), kPort, 7000}, 24));
        for (int i = 0; i < 20; ++i)
            from->send(forged);
        EXPECT_FALSE(wait_until([&] { return recv(socket.get(), nullptr, 0, MSG_DONTWAIT) >= 0; }, quiet()))
            << to_string(peer);
        EXPECT_TRUE(answered(socket));
    }
    EXPECT_GT(lab_->count(victim, REASON_SENT_UPLINK), 0U) << "the connection to the outside is followed";
}

TEST_P(AttackFlow, AnotherUplinkDoesNotSpeakForThePeer) {
    speak_for_a_peer_on_another_uplink({{"uplinks", {"up*"}}, {"firstPacket", "host"}});
}

// The peer is a pod of another node.
TEST_P(AttackDirect, AnotherUplinkDoesNotSpeakForThePeer) {
    if (!ipv4())
        GTEST_SKIP() << "the kernel has no reverse path filter for IPv6";
    ASSERT_TRUE(ping(lab_->node().ns(), outside_addr())) << "its MAC is known";
    lab_->node().run("ip route replace default via 203.0.113.99");
    speak_for_a_peer_on_another_uplink(
        {{"uplinks", {"up*"}}, {"firstPacket", "direct"}, {"clusterCIDRs", {to_string(outside_addr()) + "/32"}}});
}

bool AttackFlow::are_all_cached(const std::vector<Fd> &sockets) {
    const auto entries = require(require(open_flows(lab_->node().bpffs(), Access::read_only)).entries());
    return std::ranges::all_of(sockets, [&](const Fd &socket) {
        const std::uint16_t port = htons(local_of(socket).port);
        return std::ranges::any_of(entries, [&](const auto &entry) {
            const flow_key &key = entry.first;
            return (key.source == addr(client_) && key.source_port == port) ||
                   (key.destination == addr(client_) && key.destination_port == port);
        });
    });
}

// Victims with idle and with busy connections beside strict rules, during the attack and after it. `evicts`:
// entries of idle ones.
void AttackFlow::withstand(bool evicts, const Attack &attack) {
    const EchoServer server = serve_echo();
    lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0");
    rule("-A FORWARD -p tcp ! --syn -m conntrack --ctstate NEW -j DROP");
    rule("-A FORWARD -m conntrack --ctstate INVALID -j DROP");
    std::vector<Fd> idle;
    std::vector<Fd> busy;
    for (int i = 0; i < 4; ++i) {
        idle.push_back(connected(cluster_ip(), Transport::tcp));
        busy.push_back(connected(cluster_ip(), i == 0 ? Transport::tcp : Transport::udp));
        EXPECT_EQ(transfer(idle.back(), 1 << 18), 0);
    }
    for (const Fd &socket : busy)
        expect_fast(socket);
    const auto all_others = [&] { // nobody's packets make an entry
        return map_entries(lab_->node().bpffs(), {PODLANE_MAP_COUNTERS, PODLANE_MAP_PATHS, PODLANE_MAP_FLOWS,
                                                  PODLANE_MAP_FORWARDED, PODLANE_MAP_EVENTS, PODLANE_MAP_HISTORY});
    };
    const auto counted = [&] {
        return require(require(open_counters(lab_->node().bpffs(), Access::read_only)).keys()).size();
    };
    const auto others = all_others();
    const std::size_t counters = counted();
    const std::uint64_t before = fast();
    std::atomic<bool> stop = false;
    std::thread attacker([&] { attack(stop); });
    int lost = 0;
    const auto begin = std::chrono::steady_clock::now();
    const auto lasted = [&] { return std::chrono::steady_clock::now() - begin; };
    while (lasted() < std::chrono::seconds(4) || (evicts && are_all_cached(idle) && lasted() < patience())) {
        for (const Fd &socket : busy)
            lost += answered(socket) ? 0 : 1;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    stop = true;
    attacker.join();
    EXPECT_EQ(lost, 0);
    EXPECT_GT(fast(), before);
    EXPECT_EQ(all_others(), others);
    EXPECT_EQ(counted(), counters);
    EXPECT_EQ(are_all_cached(idle), !evicts);
    for (const Fd &socket : idle)
        EXPECT_EQ(transfer(socket, 1 << 18), 0);
    for (const Fd &socket : busy)
        expect_fast(socket);
}

TEST_P(AttackFlow, AFloodOfFlowsCostsOthersNothing) {
    const Pod hostile = add_pod();
    withstand(false, [&](const std::atomic<bool> &stop) {
        flood(hostile.ns(), {addr(client_), outside_addr()}, ipv4(), stop);
    });
}

// So few entries that a flood evicts those of the victims again and again, and so many that those by which it is known
// to be forwarded live until the next datagram.
class AttackSmallCache : public AttackFlow {
  protected:
    static constexpr std::uint64_t kPaths = 512;
    AttackSmallCache() : AttackFlow({{"maxPaths", kPaths}}) {}
};

// Accomplices answer, another pod and a host outside, so that conntrack confirms each flow and all get entries; and the
// host outside opens such connections itself.
TEST_P(AttackSmallCache, AFloodOfAnsweredFlowsCostsOthersNothing) {
    const Pod hostile = add_pod();
    const Pod accomplice = add_pod();
    (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
    const EchoServer within(accomplice.ns(), ipv4(), kPort);
    const EchoServer without(lab_->outside(), ipv4(), kPort);
    withstand(true, [&](const std::atomic<bool> &stop) {
        std::thread outside([&] { flood_answered(lab_->outside(), {{addr(accomplice), kPort}}, ipv4(), stop); });
        flood_answered(hostile.ns(), {{addr(accomplice), kPort}, {outside_addr(), kPort}}, ipv4(), stop);
        outside.join();
    });
    for (const auto &[pod, why] :
         {std::pair{hostile, REASON_SENT_DIRECT}, {hostile, REASON_SENT_UPLINK}, {accomplice, REASON_RECEIVED_UPLINK}})
        EXPECT_GT(lab_->count(pod, why), kPaths) << "its datagrams have entries: " << why;
}

// In the name of one victim to the other: what a process may send without capabilities, and with CAP_NET_RAW.
TEST_P(AttackFlow, NothingForgedReachesAVictim) {
    const Pod hostile = add_pod();
    const EchoServer server(server_.ns(), ipv4(), kPort);
    const Wire victim = server_.wire();
    const Ends forged{addr(client_), addr(server_), 40000, kPort};
    const Bytes secret = pattern(48);
    std::vector<Bytes> frames = {frame(hostile.gateway_mac, hostile.mac, udp(forged, 48)),
                                 frame(hostile.gateway_mac, client_.mac, udp(forged, 48)),
                                 frame(server_.mac, hostile.mac, udp(forged, 48))};
    for (const std::uint16_t type : {0x8100, 0x88a8})
        frames.push_back(frames::tagged(frames.front(), {{type, 0}}));
    int sent = 0;
    as_hostile(hostile.ns(), Privilege::net_raw, [&] {
        const Fd raw(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
        must_not_fail(raw ? 0 : -1, "a raw socket");
        sockaddr_ll to{};
        to.sll_family = AF_PACKET;
        to.sll_ifindex = static_cast<int>(if_nametoindex("eth0"));
        for (const Bytes &one : frames)
            sent += sendto(raw.get(), one.data(), one.size(), 0, reinterpret_cast<const sockaddr *>(&to), sizeof to) > 0
                        ? 1
                        : 0;
    });
    EXPECT_EQ(sent, static_cast<int>(frames.size()));
    EXPECT_TRUE(wait_until([&] {
        std::uint64_t dropped = 0;
        for (const reason why : {REASON_DROP_SOURCE_ADDRESS, REASON_DROP_SOURCE_MAC, REASON_DROP_VLAN})
            dropped += lab_->count(hostile, why);
        return dropped >= frames.size();
    }));
    as_hostile(hostile.ns(), Privilege::none, [&] {
        const Fd raw(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
        EXPECT_FALSE(raw) << "without capabilities";
    });
    for (const Bytes &one : victim.arrived())
        EXPECT_FALSE(contains(one, secret)) << hex(one);
    EXPECT_TRUE(server.callers().empty());
    EXPECT_EQ(ask(client_.ns(), Transport::udp, {addr(server_), kPort}), 0);
}

INSTANTIATE_TEST_SUITE_P(All, AttackFlow, lab_parameters(), lab_parameter_name);
INSTANTIATE_TEST_SUITE_P(All, AttackSmallCache, lab_parameters(), lab_parameter_name);
INSTANTIATE_TEST_SUITE_P(All, AttackDirect, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
