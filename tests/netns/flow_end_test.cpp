// SPDX-License-Identifier: MIT
// How established connections leave the fast path: entries of conntrack that go, change or expire, policies of IPsec,
// helpers, ends and reuse of ports.
#include "tests/netns/conntrack.hpp"
#include "tests/netns/service_test.hpp"

#include <netinet/tcp.h>

#include <sstream>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 80;
constexpr std::uint16_t kBackendPort = 8080;
// confirmIntervalMs, and the time that a test needs to notice.
constexpr std::chrono::milliseconds kConfirmed{1000};
std::chrono::milliseconds noticed() {
    return kConfirmed + (slow() ? std::chrono::seconds(5) : std::chrono::seconds(1));
}

class FlowEnd : public ServiceTest {
  protected:
    FlowEnd() : ServiceTest(kPort, kBackendPort, {{"slowPathMark", "0x10/0x10"}}) {}
    void set(const std::string &name, const std::string &value) {
        lab_->node().run("sysctl -qw net.netfilter.nf_conntrack_" + name + "=" + value);
    }
    [[nodiscard]] std::uint64_t fast() const {
        return lab_->count(client_, REASON_SENT_DIRECT) + lab_->count(client_, REASON_SENT_UPLINK);
    }
    // Whether the next exchange is answered, and takes the fast path there.
    [[nodiscard]] bool is_fast(const Fd &socket) const {
        const std::uint64_t before = fast();
        EXPECT_TRUE(answered(socket));
        return fast() > before;
    }
    // Whether `changed` comes true while a change of conntrack's need not have been noticed.
    static bool comes_true(const std::function<bool()> &changed) { return wait_until(changed, noticed()); }
    // Whether an answer comes soon; for what is lost on purpose.
    static bool answered_soon(const Fd &socket) {
        return send_text(socket, "hello") == 0 && receive(socket, 5, 4 * quiet()).text == "hello";
    }
    void expect_fast(const Fd &socket) const {
        EXPECT_TRUE(wait_until([&] { return is_fast(socket); }));
    }
    // Who sends several times a second stays there.
    void expect_fast_for(std::chrono::seconds time, const std::array<Fd, 2> &clients) const {
        for (int i = 0; i < 2; ++i) // the first one was silent while the second one began
            for (const Fd &client : clients)
                expect_fast(client);
        const auto end = std::chrono::steady_clock::now() + time;
        while (std::chrono::steady_clock::now() < end) {
            for (const Fd &client : clients)
                EXPECT_TRUE(is_fast(client));
            std::this_thread::sleep_for(std::chrono::milliseconds(300));
        }
    }
    // The conntrack entry of the caller's connection.
    [[nodiscard]] std::optional<Tracked> entry(const Fd &socket) {
        const std::uint16_t port = local_of(socket).port;
        for (const Tracked &one : tracked(lab_->node().ns()))
            if (one.source.port == port && to_string(one.source.addr) == to_string(addr(client_)))
                return one;
        return {};
    }
};

// As kube-proxy does it when an endpoint goes: new rules, and the entries of the old endpoint deleted.
TEST_P(FlowEnd, AUdpClientWithAFixedPortMovesToTheNextBackend) {
    const Pod next = add_pod();
    const EchoServer old_server(server_.ns(), ipv4(), kBackendPort);
    const EchoServer new_server(next.ns(), ipv4(), kBackendPort);
    serve(server_);
    const Fd client = connected(cluster_ip(), Transport::udp, 20053);
    expect_fast(client);
    ASSERT_TRUE(new_server.callers().empty());
    serve(next);
    ASSERT_EQ(delete_tracked(lab_->node().ns(), entry(client).value()), 0);
    EXPECT_TRUE(comes_true([&] {
        EXPECT_EQ(send_text(client, "moving"), 0); // a reply of the old backend may be lost, as on the slow path
        return !new_server.callers().empty();
    })) << "still at the backend that is gone";
    while (wait_until([&] { return recv(client.get(), nullptr, 0, MSG_DONTWAIT) >= 0; }, quiet())) {
        // Late replies.
    }
    const std::size_t left_behind = old_server.callers().size();
    for (int i = 0; i < 5; ++i)
        EXPECT_TRUE(answered(client));
    EXPECT_EQ(old_server.callers().size(), left_behind);
}

TEST_P(FlowEnd, ADeletedEntryLetsTheRulesDecideAgain) {
    const EchoServer server = serve_echo();
    const Fd client = connected(cluster_ip());
    expect_fast(client);
    rule("-I FORWARD -p tcp --dport " + std::to_string(kBackendPort) + " -j REJECT --reject-with tcp-reset");
    EXPECT_TRUE(is_fast(client)) << "rules decide about new connections";
    ASSERT_EQ(delete_tracked(lab_->node().ns(), entry(client).value()), 0);
    EXPECT_TRUE(comes_true([&] { return !answered(client); }));
}

TEST_P(FlowEnd, AMarkKeepsAConnectionOnTheSlowPath) {
    const EchoServer server = serve_echo();
    const Fd client = connected(cluster_ip());
    expect_fast(client);
    ASSERT_EQ(mark_tracked(lab_->node().ns(), entry(client).value(), 0x10), 0);
    EXPECT_TRUE(comes_true([&] { return !is_fast(client); }));
    for (int i = 0; i < 5; ++i)
        EXPECT_FALSE(is_fast(client));
}

// The strictest rules there are for a connection that is picked up in the middle.
TEST_P(FlowEnd, LostEntriesCostNoConnectionBesideStrictRules) {
    const EchoServer server = serve_echo();
    set("tcp_loose", "0");
    rule("-A FORWARD -p tcp ! --syn -m conntrack --ctstate NEW -j DROP");
    rule("-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT");
    rule("-A FORWARD -p tcp -m conntrack --ctstate NEW -d " + to_string(addr(server_)) + " -j ACCEPT");
    rule("-A FORWARD -p tcp -j DROP");
    const Fd client = connected(cluster_ip());
    const std::string flush =
        std::getenv("PODLANECTL_BIN") + std::string(" --bpffs ") + lab_->node().bpffs() + " path flush --all";
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(transfer(client, 2 << 20, [&] { lab_->node().run(flush); }), 0);
        expect_fast(client);
    }
}

TEST_P(FlowEnd, ConnectionsWithAHelperStayOnTheSlowPath) {
    const EchoServer server(server_.ns(), ipv4(), 2121);
    rule("-t raw -A PREROUTING -p tcp --dport 2121 -j CT --helper ftp");
    rule("-A FORWARD -m conntrack --ctstate INVALID -j DROP");
    const Fd client = connected({addr(server_), 2121});
    EXPECT_EQ(transfer(client, 1 << 20), 0);
    EXPECT_EQ(fast(), 0U);
}

// It may have inherited a helper of which conntrack does not say so. The server announces its port: 195 * 256 + 80.
TEST_P(FlowEnd, ConnectionsThatAHelperExpectsStayOnTheSlowPath) {
    const EchoServer control(server_.ns(), ipv4(), 2121), data(server_.ns(), ipv4(), 50000);
    rule("-t raw -A PREROUTING -p tcp --dport 2121 -j CT --helper ftp");
    std::string host = to_string(addr(server_));
    std::ranges::replace(host, '.', ',');
    const std::string says = ipv4() ? "227 Entering Passive Mode (" + host + ",195,80)\r\n"
                                    : "229 Entering Extended Passive Mode (|||50000|)\r\n";
    const Fd caller = connected({addr(server_), 2121});
    for (const std::string &line : {std::string("220 Ready.\r\n"), says}) { // the helper reads what follows a line
        ASSERT_EQ(send_text(caller, line), 0);
        ASSERT_EQ(receive(caller).text, line);
    }
    const Fd client = connected({addr(server_), 50000});
    EXPECT_EQ(transfer(client, 1 << 20), 0);
    EXPECT_EQ(fast(), 0U);
}

TEST_P(FlowEnd, ABusyConnectionNeverExpiresAndAnIdleOneDoes) {
    const EchoServer server = serve_echo();
    set("tcp_timeout_established", "4");
    set("udp_timeout_stream", "4");
    std::array<Fd, 2> clients = {connected(cluster_ip()), connected(cluster_ip(), Transport::udp)};
    expect_fast_for(std::chrono::seconds(6), clients);
    for (const Fd &client : clients) {
        ASSERT_TRUE(entry(client));
        EXPECT_LE(entry(client)->seconds, 5U);
    }
    for (const Fd &client : clients)
        EXPECT_TRUE(wait_until([&] { return !entry(client); }));
}

// The entry lives as long after the connection's last packet as it would with all packets on the slow path.
TEST_P(FlowEnd, ABusyConnectionHasTheWholeTimeOut) {
    const EchoServer server = serve_echo();
    set("tcp_timeout_established", "80");
    set("udp_timeout_stream", "80");
    const std::array<Fd, 2> clients = {connected(cluster_ip()), connected(cluster_ip(), Transport::udp)};
    expect_fast_for(std::chrono::seconds(4), clients);
    for (const Fd &client : clients) {
        ASSERT_TRUE(is_fast(client));
        ASSERT_TRUE(entry(client));
        EXPECT_GE(entry(client)->seconds, 79U);
        EXPECT_LE(entry(client)->seconds, 81U);
    }
}

// Nor if the node gives it less time than there is between two queries.
TEST_P(FlowEnd, ABusyConnectionOutlivesAShortTimeOfTheNode) {
    const EchoServer server = serve_echo();
    set("tcp_timeout_established", "1");
    set("udp_timeout_stream", "1");
    expect_fast_for(std::chrono::seconds(4), {{connected(cluster_ip()), connected(cluster_ip(), Transport::udp)}});
}

// conntrack sees the first of two segments, and no acknowledgment but that of both. Whatever it sees later, it counts
// the first as not acknowledged, and must not take the peer of an idle connection for gone.
TEST_P(FlowEnd, KeepAlivesOfALostEntryKeepTheConnectionsTime) {
    const EchoServer server = serve_echo();
    set("tcp_timeout_unacknowledged", "3");
    const Fd client = connected(cluster_ip());
    const std::string deaf = " OUTPUT -p tcp --sport " + std::to_string(kBackendPort) + " -j DROP";
    ASSERT_EQ(set_option(client, IPPROTO_TCP, TCP_NODELAY, 1), 0);
    std::this_thread::sleep_for(kConfirmed + quiet());
    server_.container->run(iptables() + " -w -I" + deaf);
    ASSERT_EQ(send_text(client, "one"), 0);
    ASSERT_EQ(send_text(client, "two"), 0);
    std::this_thread::sleep_for(quiet());
    server_.container->run(iptables() + " -w -D" + deaf);
    std::string heard;
    EXPECT_TRUE(wait_until([&] { return (heard += receive(client).text) == "onetwo"; })) << heard;
    EXPECT_EQ(transfer(client, 4 << 20), 0);

    lab_->erase_paths();
    const std::uint64_t slow = lab_->count(server_, REASON_HOST_UNCONFIRMED);
    for (const auto &[level, name, value] : {std::tuple{SOL_SOCKET, SO_KEEPALIVE, 1}, {IPPROTO_TCP, TCP_KEEPIDLE, 2}})
        ASSERT_EQ(set_option(client, level, name, value), 0);
    EXPECT_TRUE(wait_until([&] { return lab_->count(server_, REASON_HOST_UNCONFIRMED) > slow; }));
    EXPECT_FALSE(wait_until([&] { return !entry(client) || entry(client)->seconds < 1000; }, quiet()));
    EXPECT_TRUE(answered(client));
}

// conntrack has not seen the sequence numbers of the bytes on the fast path, and so cannot believe a reset: the entry
// keeps its state, but the time-out of a closed connection.
TEST_P(FlowEnd, AResetConnectionsPortCanBeUsedAgain) {
    const EchoServer server = serve_echo();
    for (int round = 0; round < 4; ++round) {
        Fd client = connected(cluster_ip(), Transport::tcp, 20099);
        ASSERT_EQ(transfer(client, 1 << 20), 0) << "round " << round;
        const linger now{1, 0};
        setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        const Tracked before = entry(client).value();
        EXPECT_GT(before.seconds, 1000U);
        client.reset();
        std::string left;
        EXPECT_TRUE(wait_until([&] {
            left.clear();
            for (const Tracked &one : tracked(lab_->node().ns()))
                if (one.source.port == 20099 && one.seconds > 10)
                    left += one.state + ", " + std::to_string(one.seconds) + " s ";
            return left.empty();
        })) << left
            << lab_->node().podlanectl("path list").out << lab_->node().podlanectl("counter list").out;
    }
}

// Packets that no state can encrypt, or that arrive in clear text, are dropped by the kernel.
TEST_P(FlowEnd, PoliciesOfIpsecThatComeLaterHoldInBothDirections) {
    const std::string via = to_string(node_addr());
    (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + via));
    rule("-A FORWARD -m conntrack --ctstate INVALID -j DROP");
    const EchoServer server(lab_->outside(), ipv4(), kPort);
    const std::string pod = to_string(addr(client_));
    const std::string outside = to_string(outside_addr());
    const std::string out = "add src " + pod + " dst " + outside + " dir out tmpl src " + via + " dst " + outside;
    const std::string in = "add src " + outside + " dst " + pod + " dir fwd tmpl src " + outside + " dst " + via;
    const std::string esp = " proto esp mode tunnel";
    for (const std::string &policy : {out + esp, in + esp, std::string("setdefault fwd block")}) {
        const Fd client = connected({outside_addr(), kPort}, Transport::udp);
        expect_fast(client);
        lab_->node().run("ip xfrm policy " + policy);
        EXPECT_TRUE(comes_true([&] { return !answered_soon(client); })) << policy;
        const std::size_t arrived = server.callers().size();
        ASSERT_EQ(send_text(client, "in clear text"), 0);
        EXPECT_TRUE(wait_until([&] { return server.callers().size() > arrived; }, quiet()) == (policy == in + esp))
            << policy;
        lab_->node().run("ip xfrm policy flush");
        lab_->node().run("ip xfrm policy setdefault fwd accept");
        ASSERT_EQ(send_text(client, "again"), 0);
        EXPECT_FALSE(receive(client).text.empty()) << "without the policy";
    }
}

INSTANTIATE_TEST_SUITE_P(Netns, FlowEnd, lab_parameters(), lab_parameter_name);

// Whose next query is far.
class LostEntry : public FlowEnd {
  protected:
    void prepare() override {
        client_ = add_pod({{"confirmIntervalMs", 10000}});
        server_ = add_pod({{"confirmIntervalMs", 10000}});
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        rule("-A FORWARD -m conntrack --ctstate INVALID -j DROP");
    }
    // Established ones of the server.
    [[nodiscard]] bool has_connections() const { return !server_.container->run("ss -tnH state established").empty(); }
    // By a pod and by an uplink.
    [[nodiscard]] std::array<Fd, 2> fast_connections() {
        std::array<Fd, 2> both = {connected(cluster_ip()),
                                  test::connected(lab_->outside(), Transport::tcp, {addr(server_), kBackendPort})};
        for (const Fd &one : both) {
            EXPECT_EQ(transfer(one, 1 << 20), 0);
            EXPECT_TRUE(wait_until([&, before = lab_->count(server_, REASON_HOST_UNCONFIRMED)] {
                return answered(one) && lab_->count(server_, REASON_HOST_UNCONFIRMED) == before;
            }));
        }
        return both;
    }
    void lose_entries() {
        for (const Tracked &one : tracked(lab_->node().ns()))
            (void)delete_tracked(lab_->node().ns(), one);
    }
};

// conntrack makes no entry of an end, and calls it invalid.
TEST_P(LostEntry, AFinArrivesAndItsAnswerToo) {
    const EchoServer server = serve_echo();
    const std::array<Fd, 2> clients = fast_connections();
    lose_entries();
    for (const Fd &client : clients) {
        ASSERT_EQ(shutdown(client.get(), SHUT_WR), 0);
        EXPECT_TRUE(wait_until([&] { return recv(client.get(), nullptr, 0, MSG_DONTWAIT | MSG_TRUNC) == 0; }));
    }
    EXPECT_FALSE(has_connections());
}

TEST_P(LostEntry, AResetArrives) {
    const EchoServer server = serve_echo();
    std::array<Fd, 2> clients = fast_connections();
    ASSERT_TRUE(has_connections());
    lose_entries();
    for (Fd &client : clients) {
        const linger now{1, 0};
        setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        client.reset();
    }
    EXPECT_TRUE(wait_until([&] { return !has_connections(); }));
}

INSTANTIATE_TEST_SUITE_P(Netns, LostEntry, lab_parameters(), lab_parameter_name);

class SilentPeer : public FlowEnd {
  protected:
    void prepare() override {
        client_ = add_pod({{"confirmIntervalMs", 100}});
        server_ = add_pod({{"confirmIntervalMs", 100}});
    }
    void expect_seconds(const Fd &socket, std::uint64_t least, std::uint64_t most) {
        const auto is_within = [&] {
            const std::uint64_t seconds = entry(socket).value().seconds;
            return seconds >= least && seconds <= most;
        };
        EXPECT_TRUE(wait_until(is_within, kSentAgain)) << entry(socket).value().seconds;
    }

    // Otherwise the server sends again what nobody acknowledges, and is not silent.
    [[nodiscard]] bool has_server_nothing_to_send() const {
        std::istringstream sockets(server_.container->run("ss -tnH state established"));
        std::uint64_t received = 0, unacknowledged = 0;
        for (std::string rest; sockets >> received >> unacknowledged && std::getline(sockets, rest);)
            if (unacknowledged != 0)
                return false;
        return true;
    }

    static constexpr std::chrono::minutes kSentAgain{1}; // some times, each after twice as long as before
};

TEST_P(SilentPeer, LeavesAnEntryForMinutesUntilItIsHeardAgain) {
    const EchoServer server = serve_echo();
    const Fd client = connected(cluster_ip());
    ASSERT_EQ(transfer(client, 1 << 20), 0);
    expect_seconds(client, 1000, 432000);
    ASSERT_TRUE(wait_until([&] { return has_server_nothing_to_send(); }));
    server_.container->run(iptables() + " -w -A INPUT -p tcp -j DROP");
    ASSERT_EQ(send_text(client, "anybody?"), 0);
    expect_seconds(client, 0, 300);
    server_.container->run(iptables() + " -w -D INPUT -p tcp -j DROP");
    EXPECT_EQ(receive(client, 8, kSentAgain).text, "anybody?");
    expect_seconds(client, 1000, 432000);
}

INSTANTIATE_TEST_SUITE_P(Netns, SilentPeer, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
