// SPDX-License-Identifier: MIT
// A direction that the host's rules drop stays dropped, whatever the flow cache holds of an earlier connection with the
// same addresses and ports, and whoever sends in the pod's name. conntrack counts packets that FORWARD drops: answers
// with IP options, which take the slow path, make an entry that it takes for established.
#include "tests/harness/frame.hpp"
#include "tests/netns/forged.hpp"
#include "tests/netns/reopened.hpp"

namespace podlane::test {
namespace {

constexpr const char *kLeak = "leak";

class AttackReopened : public Reopened {
  protected:
    // Both directions get entries in the flow cache.
    void warm(const Talkers &of, const Datagrams &sockets) {
        ASSERT_TRUE(wait_until([&] {
            sockets.send_both("answer");
            return is_cached(of, Transport::udp);
        }));
        EXPECT_GT(Datagrams::arrived(sockets.peer, "answer"), 0);
    }
    // The hostile one answers with options until conntrack takes the new entry for established, and then without.
    void expect_closed(const Talkers &of, const Datagrams &sockets) {
        ASSERT_TRUE(wait_until([&] { return has_expired(of, Transport::udp); }));
        (void)Datagrams::arrived(sockets.peer, "");
        set_options(sockets.hostile, ipv4());
        ASSERT_TRUE(wait_until([&] {
            sockets.send_both("options");
            return is_assured(of, Transport::udp);
        }));
        set_options(sockets.hostile, ipv4(), false);
        EXPECT_FALSE(wait_until(
            [&] {
                sockets.send_both(kLeak);
                return Datagrams::arrived(sockets.peer, kLeak) > 0;
            },
            2 * quiet()));
    }
    // Nothing but the rule is in the way.
    void expect_open(const Datagrams &sockets) {
        EXPECT_TRUE(wait_until([&] {
            sockets.send_both(kLeak);
            return Datagrams::arrived(sockets.peer, kLeak) > 0;
        }));
    }
    void drop_what_is_sent(const Talkers &of, const std::string &how = {}) {
        rule("-A FORWARD " + how + " -s " + to_string(of.hostile_addr) + " -j DROP");
    }
    void expect_closed_by_the_rule_alone(const Talkers &both, const Datagrams &sockets) {
        delete_entry(both, Transport::udp);
        ASSERT_NO_FATAL_FAILURE(expect_closed(both, sockets));
        EXPECT_GT(Datagrams::arrived(sockets.hostile, "question"), 0) << "the other direction is open";
        rule("-F FORWARD");
        expect_open(sockets);
    }
};

TEST_P(AttackReopened, ADeletedEntryLeavesNoWayByUdp) {
    const Pod hostile = add_pod(), peer = add_pod();
    const Talkers both = pods(hostile, peer);
    const Datagrams sockets(both, kOwnPort);
    ASSERT_NO_FATAL_FAILURE(warm(both, sockets));
    drop_what_is_sent(both);
    expect_closed_by_the_rule_alone(both, sockets);
}

TEST_P(AttackReopened, AnExpiredEntryLeavesNoWayByUdp) {
    const Pod hostile = add_pod(), peer = add_pod();
    const Talkers both = pods(hostile, peer);
    const Datagrams sockets(both, kOwnPort);
    set("udp_timeout", "2");
    set("udp_timeout_stream", "2");
    ASSERT_NO_FATAL_FAILURE(warm(both, sockets));
    ASSERT_TRUE(wait_until([&] { return !entry(both, Transport::udp); }));
    drop_what_is_sent(both);
    ASSERT_NO_FATAL_FAILURE(expect_closed(both, sockets));
}

TEST_P(AttackReopened, ADeletedEntryLeavesNoWayFromTheUplink) {
    const Pod peer = add_pod();
    route_pods_from_outside();
    const Talkers both{&lab_->outside(), &peer.ns(), outside_addr(), addr(peer)};
    const Datagrams sockets(both, kOwnPort);
    ASSERT_NO_FATAL_FAILURE(warm(both, sockets));
    drop_what_is_sent(both, "-i up0");
    expect_closed_by_the_rule_alone(both, sockets);
}

// The address's former owner talked to the outside; "egress": "cluster" and isolation of the new one drop both
// directions.
TEST_P(AttackReopened, ANewOwnerOfAnAddressHasNoWayOut) {
    route_pods_from_outside();
    Json keys = {{"clusterCIDRs", {Lab::kPods4, Lab::kPods6}}};
    keys["ipam"] = lab_->node().ipam();
    keys["ipam"]["ranges"] = {
        {{{"subnet", Lab::kPods4}, {"rangeStart", "198.18.9.7"}, {"rangeEnd", "198.18.9.7"}}},
        {{{"subnet", Lab::kPods6}, {"rangeStart", "2001:db8:9::7"}, {"rangeEnd", "2001:db8:9::7"}}}};
    const Pod former = add_pod(keys);
    {
        const Talkers both{&former.ns(), &lab_->outside(), addr(former), outside_addr()};
        const Datagrams sockets(both, kOwnPort);
        ASSERT_NO_FATAL_FAILURE(warm(both, sockets));
    }
    ASSERT_EQ(former.chain->del(*former.container).rc, 0);
    keys.update({{"egress", "cluster"}, {"isolation", "group"}, {"groups", {"name:x"}}});
    const Pod hostile = add_pod(keys);
    ASSERT_EQ(to_string(addr(hostile)), to_string(addr(former)));
    const Talkers both{&hostile.ns(), &lab_->outside(), addr(hostile), outside_addr()};
    const Datagrams sockets(both, kOwnPort);
    ASSERT_NO_FATAL_FAILURE(expect_closed(both, sockets));
    EXPECT_EQ(lab_->count(hostile, REASON_SENT_UPLINK), 0U);
}

// A host on the uplink sends the pod's packets through the node to itself. FORWARD drops those of the pod's own
// interface.
TEST_P(AttackReopened, ANeighbourDoesNotVouchForThePod) {
    route_pods_from_outside();
    lab_->node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up0.rp_filter=0 "
                     "net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.up0.send_redirects=0");
    const Pod hostile = add_pod();
    const Talkers both{&hostile.ns(), &lab_->outside(), addr(hostile), outside_addr()};
    const Datagrams sockets(both, kOwnPort);
    ASSERT_TRUE(ping(lab_->node().ns(), outside_addr()));
    const Wire wire(lab_->outside(), "eth0");
    const Bytes forged = frame(Wire(lab_->node().ns(), "up0").mac(), wire.mac(),
                               udp({addr(hostile), outside_addr(), kOwnPort, kOwnPort}, 24));
    rule("-A FORWARD -i " + hostile.host_ifname + " -j DROP");
    ASSERT_TRUE(wait_until([&] {
        wire.send(forged);
        sockets.send_both(kLeak);
        return is_assured(both, Transport::udp);
    }));
    EXPECT_FALSE(wait_until(
        [&] {
            wire.send(forged);
            sockets.send_both(kLeak);
            return Datagrams::arrived(sockets.peer, kLeak) > 0;
        },
        2 * quiet()));
    EXPECT_GT(Datagrams::arrived(sockets.hostile, "question"), 0) << "the other direction is open";
    EXPECT_GT(lab_->node().counted("up0", REASON_UPLINK_SENT_HOST).packets, 0U) << "the forged ones are forwarded";
    EXPECT_EQ(lab_->count(hostile, REASON_SENT_UPLINK), 0U);
}

// conntrack picks the connection up in its middle: by the stream of the peer, and by acknowledgments that FORWARD
// drops.
TEST_P(AttackReopened, ADeletedEntryLeavesNoWayByTcpToAServerThatStreams) {
    const Pod hostile = add_pod(), peer = add_pod();
    const Talkers both = pods(hostile, peer);
    const Fd listener = open_socket(peer.ns(), Transport::tcp, ipv4(), {addr(peer), kOwnPort});
    ASSERT_EQ(listen(listener.get(), 1), 0);
    const Fd client = connected(hostile.ns(), Transport::tcp, {addr(peer), kOwnPort}, {addr(hostile), kOwnPort});
    const Fd server = accepted(listener);
    ASSERT_TRUE(wait_until([&] {
        EXPECT_EQ(send_text(client, "hello"), 0);
        EXPECT_EQ(receive(server).text, "hello");
        EXPECT_EQ(send_text(server, "tick"), 0);
        EXPECT_EQ(receive(client).text, "tick");
        return is_cached(both, Transport::tcp);
    }));
    set_options(client, ipv4());
    drop_what_is_sent(both);
    delete_entry(both, Transport::tcp);
    ASSERT_TRUE(wait_until([&] { return has_expired(both, Transport::tcp); }));
    ASSERT_TRUE(wait_until([&] {
        EXPECT_EQ(send_text(server, "tick"), 0);
        return is_assured(both, Transport::tcp);
    }));
    set_options(client, ipv4(), false);
    ASSERT_EQ(send_text(client, kLeak), 0);
    EXPECT_EQ(receive(server, 8, 4 * quiet()).error, ETIMEDOUT);
    EXPECT_EQ(receive(client, 4).text, "tick") << "the other direction is open";
    rule("-F FORWARD");
    EXPECT_EQ(receive(server).text, kLeak);
}

// How the accomplice hides the flags of its SYN from the fast path.
enum class Hidden { by_options, in_fragments };

// Connections whose both ends are raw sockets; the kernels of the pods see none of their packets.
class AttackReopenedTcp : public AttackReopened {
  protected:
    struct End {
        Pod pod{};
        Wire wire;
        ip_addr to{};
    };
    void start(const Json &hostile_keys = Json::object()) {
        for (std::optional<End> *one : {&hostile_, &peer_}) {
            const Pod pod = add_pod(one == &hostile_ ? hostile_keys : Json::object());
            pod.container->run(iptables() + " -w -A INPUT -p tcp -j DROP");
            one->emplace(End{pod, pod.wire()});
        }
        both_ = pods(hostile_->pod, peer_->pod);
        hostile_->to = both_.peer_addr;
        peer_->to = both_.hostile_addr;
    }
    // Each SYN has the number `sequence_` - 1 and all else `sequence_`, so that none is out of the other's window.
    [[nodiscard]] Packet segment(const End &from, std::uint8_t flags, std::size_t data = 0) const {
        Packet packet = tcp({addr(from.pod), from.to, kOwnPort, kOwnPort}, flags, data);
        const auto put = [&](std::size_t at, std::uint32_t number) {
            for (std::size_t i = 0; i < 4; ++i)
                packet.payload.at(at + i) = static_cast<std::uint8_t>(number >> (24 - 8 * i));
        };
        put(4, (flags & tcp_syn) != 0 ? sequence_ - 1 : sequence_);
        put(8, (flags & tcp_ack) != 0 ? sequence_ : 0);
        set_checksum(packet, 16);
        return packet;
    }
    static void send(const End &from, const Packet &packet) {
        from.wire.send(frame(from.pod.gateway_mac, from.pod.mac, packet));
    }
    void send_data() const {
        for (const auto *one : {&hostile_, &peer_})
            send(**one, segment(**one, tcp_ack, 4));
    }
    void send_by_slow_path(const End &from, std::uint8_t flags, Hidden how = Hidden::by_options) const {
        Packet packet = segment(from, flags);
        if (how == Hidden::in_fragments) {
            for (const Packet &part : forged::split(packet, 8))
                send(from, part);
            return;
        }
        if (ipv4())
            packet.options = {1, 1, 1, 1};
        send(from, ipv4() ? packet : forged::behind(packet, {IPPROTO_DSTOPTS}));
    }
    [[nodiscard]] std::size_t arrived_at_peer() const { return frames_from(peer_->wire, peer_->to); }
    [[nodiscard]] bool is_in(const std::string &state) {
        const auto one = entry(both_, Transport::tcp);
        return one && one->state == state;
    }
    void open_first_connection(const End &client, const End &server) {
        send(client, segment(client, tcp_syn));
        ASSERT_TRUE(wait_until([&] { return is_in("SYN_SENT"); }));
        send(server, segment(server, tcp_syn | tcp_ack));
        ASSERT_TRUE(wait_until([&] { return is_in("SYN_RECV"); }));
        ASSERT_TRUE(wait_until([&] {
            send(client, segment(client, tcp_ack, 4));
            send_data();
            return cached(key(both_.hostile_addr, both_.peer_addr, Transport::tcp)).has_value();
        }));
    }
    void close_direction() {
        drop_what_is_sent(both_);
        delete_entry(both_, Transport::tcp);
    }
    // The accomplice opens a connection of the same ports.
    void expect_closed_when_reopened(Hidden how) {
        peer_->wire.forget();
        sequence_ += 0x100000;
        send_by_slow_path(*peer_, tcp_syn, how);
        ASSERT_TRUE(wait_until([&] { return is_in("SYN_SENT"); }));
        send_by_slow_path(*hostile_, tcp_syn | tcp_ack);
        ASSERT_TRUE(wait_until([&] { return is_in("SYN_RECV"); }));
        send_by_slow_path(*peer_, tcp_ack);
        ASSERT_TRUE(wait_until([&] { return is_assured(both_, Transport::tcp); }));
        expect_only_the_rule();
    }
    void expect_only_the_rule() {
        const auto is_reached = [&] {
            send_data();
            return arrived_at_peer() > 0;
        };
        EXPECT_FALSE(wait_until(is_reached, 2 * quiet()));
        rule("-F FORWARD");
        EXPECT_TRUE(wait_until(is_reached)) << "nothing but the rule was in the way";
    }
    void reopen(Hidden how) {
        start();
        ASSERT_NO_FATAL_FAILURE(open_first_connection(*peer_, *hostile_));
        close_direction();
        ASSERT_TRUE(wait_until([&] { return has_expired(both_, Transport::tcp); }));
        expect_closed_when_reopened(how);
    }

    std::optional<End> hostile_, peer_;
    Talkers both_;
    std::uint32_t sequence_ = 0x10000;
};

TEST_P(AttackReopenedTcp, ASynWithOptionsLeavesNoWay) { reopen(Hidden::by_options); }

// The host stack would put it together, and fragment it again: no program would see the SYN.
TEST_P(AttackReopenedTcp, ASynThatFragmentsHideIsDropped) {
    start();
    ASSERT_NO_FATAL_FAILURE(open_first_connection(*peer_, *hostile_));
    close_direction();
    ASSERT_TRUE(wait_until([&] { return has_expired(both_, Transport::tcp); }));
    send_by_slow_path(*peer_, tcp_syn, Hidden::in_fragments);
    const auto counters = require(open_counters(lab_->node().bpffs(), Access::read_only));
    EXPECT_TRUE(wait_until(
        [&] { return require(sum_of(counters, peer_->pod.ifindex)).by_reason[REASON_DROP_MALFORMED].packets > 0; }));
    EXPECT_FALSE(is_in("SYN_SENT"));
}

// It leaves no entry of conntrack, to which the hostile pod's SYN would be the reply.
TEST_P(AttackReopenedTcp, ASynThatIsolationDropsLeavesNoWay) {
    start({{"isolation", "group"}, {"groups", {"name:x"}}});
    ASSERT_NO_FATAL_FAILURE(open_first_connection(*hostile_, *peer_));
    close_direction();
    ASSERT_TRUE(wait_until([&] { return has_expired(both_, Transport::tcp); }));
    peer_->wire.forget();
    sequence_ += 0x100000;
    const auto counters = require(open_counters(lab_->node().bpffs(), Access::read_only));
    const auto dropped = [&] {
        return require(sum_of(counters, hostile_->pod.ifindex)).by_reason[REASON_DROP_ISOLATION].packets;
    };
    const std::uint64_t before = dropped();
    send_by_slow_path(*peer_, tcp_syn);
    ASSERT_TRUE(wait_until([&] { return dropped() > before; }));
    EXPECT_FALSE(is_in("SYN_SENT"));
    send_by_slow_path(*hostile_, tcp_syn | tcp_ack);
    send_by_slow_path(*peer_, tcp_ack);
    expect_only_the_rule();
}

// The hostile host is on the uplink, and leaves the node's ARP requests and neighbour solicitations unanswered.
TEST_P(AttackReopenedTcp, ASynToASilentNeighbourLeavesNoWay) {
    start();
    route_pods_from_outside();
    Wire wire(lab_->outside(), "eth0");
    Pod outside{.mac = wire.mac(), .gateway_mac = Wire(lab_->node().ns(), "up0").mac()};
    (ipv4() ? outside.v4 : outside.v6) = outside_addr();
    both_ = {&lab_->outside(), &peer_->pod.ns(), outside_addr(), addr(peer_->pod)};
    hostile_.emplace(End{outside, std::move(wire), both_.peer_addr});
    peer_->to = outside_addr();
    (void)must_run(lab_->outside(), words(iptables() + " -w -A INPUT -p tcp -j DROP"));
    ASSERT_NO_FATAL_FAILURE(open_first_connection(*peer_, *hostile_));
    close_direction();
    ASSERT_TRUE(wait_until([&] { return has_expired(both_, Transport::tcp); }));
    (void)must_run(lab_->outside(), words("ip link set dev eth0 arp off"));
    if (!ipv4())
        (void)must_run(lab_->outside(), words("ip6tables -w -A OUTPUT -p icmpv6 -j DROP"));
    lab_->node().run("ip neigh flush dev up0");
    expect_closed_when_reopened(Hidden::by_options);
}

// That the rules let its packets through is known by the Service's address, for a second.
TEST_P(AttackReopenedTcp, AServiceLeavesNoWayInTheSecondAfterTheRule) {
    start();
    peer_->to = ip(ipv4() ? "192.0.2.10" : "2001:db8:5::10");
    rule("-t nat -A PREROUTING -d " + to_string(peer_->to) + " -j DNAT --to-destination " +
         to_string(both_.hostile_addr));
    ASSERT_NO_FATAL_FAILURE(open_first_connection(*peer_, *hostile_));
    peer_->wire.forget();
    send_by_slow_path(*hostile_, tcp_ack);
    ASSERT_TRUE(wait_until([&] { return arrived_at_peer() > 0; }));
    close_direction();
    expect_closed_when_reopened(Hidden::by_options);
}

INSTANTIATE_TEST_SUITE_P(All, AttackReopened, lab_parameters(), lab_parameter_name);
INSTANTIATE_TEST_SUITE_P(All, AttackReopenedTcp, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
