// SPDX-License-Identifier: MIT
// A hostile host on the uplink ends connections in the name of their peer, without knowing a sequence number: beside
// ptp, with Podlane, and with Podlane and "conntrackLiberal": false.
#include "loader/net/link.hpp"
#include "tests/harness/frame.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/segments.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

using frames::Tag;
using frames::tagged;

constexpr std::uint16_t kPort = 7000;
constexpr std::uint16_t kOwnPort = 40123;
// The time-out of an established connection after a reset that conntrack believes, in seconds (before: 5 days).
constexpr std::uint64_t kBelieved = 10;

enum class Network { ptp, podlane, strict, local };

struct ResetParameter {
    Network network;
    bool ipv4;
};

class AttackReset : public testing::TestWithParam<ResetParameter> {
  protected:
    AttackReset() {
        rule("-A FORWARD -m conntrack --ctstate INVALID -j DROP");
        route(Lab::kPods4, Lab::kPods6);
        if (GetParam().network == Network::ptp) {
            Json ptp = {{"type", "ptp"}, {"ipam", lab_.node().ipam()}};
            ptp["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
            victim_ = lab_.add_pod(std::vector<Json>{ptp});
        } else {
            const Json keys = {{"conntrackLiberal", GetParam().network != Network::strict},
                               {"fastPath", GetParam().network == Network::local ? "local" : "on"}};
            victim_ = lab_.add_pod(keys);
        }
        // Small windows, which no number meets by chance.
        for (const net::Namespace *end : {&victim_.ns(), &lab_.outside(), &lab_.node().ns()})
            (void)must_run(*end, {"sysctl", "-qw", "net.ipv4.tcp_rmem=4096 32768 32768"});
    }
    void rule(const std::string &what) { lab_.node().run((ipv4() ? "iptables -w " : "ip6tables -w ") + what); }
    void route(const char *v4, const char *v6) {
        (void)must_run(lab_.outside(),
                       words("ip route add " + std::string(ipv4() ? v4 : v6) + " via " + to_string(node_addr())));
    }
    [[nodiscard]] bool ipv4() const { return GetParam().ipv4; }
    [[nodiscard]] ip_addr victim() const { return victim_.addr(ipv4()); }
    [[nodiscard]] ip_addr peer() const { return ip(ipv4() ? Lab::kOutside4 : Lab::kOutside6); }
    [[nodiscard]] ip_addr node_addr() const { return ip(ipv4() ? Lab::kNode4 : Lab::kNode6); }
    [[nodiscard]] Tracked entry() {
        for (const Tracked &one : tracked(lab_.node().ns()))
            if (one.source.port == kOwnPort || one.destination.port == kOwnPort)
                return one;
        return {};
    }
    // The frames that carry an end in every shape that the host stack reads alike.
    [[nodiscard]] std::vector<Bytes> shapes(const Ends &ends, std::uint8_t flags, std::uint32_t upper, const Mac &to,
                                            const Mac &from) const {
        Packet end = tcp(ends, flags);
        Packet with_data = tcp(ends, flags, 16);
        put_sequence(end, upper);
        put_sequence(with_data, upper);
        std::vector<Bytes> all = {frame(to, from, end), frame(to, from, with_data),
                                  tagged(frame(to, from, end), {Tag{}}), tagged(frame(to, from, end), {Tag{}, Tag{}})};
        Bytes padded = frame(to, from, end);
        padded.resize(padded.size() + 6);
        all.push_back(padded);
        Packet last_hop = end;
        last_hop.hop_limit = 1;
        all.push_back(frame(to, from, last_hop));
        std::uint16_t id = 1;
        for (const std::size_t first : {8U, 16U, 24U}) {
            with_data.id = ++id;
            for (const Packet &part : fragments(with_data, first, ipv4()))
                all.push_back(frame(to, from, part));
        }
        // An innocent first fragment, and one that overlaps its flags; in both orders.
        Packet innocent = with_data;
        innocent.payload[13] = tcp_ack;
        for (const bool first_is_first : {true, false}) {
            innocent.id = with_data.id = ++id;
            const Bytes first = frame(to, from, fragment_of(innocent, 0, 24, ipv4()));
            const Bytes second = frame(to, from, fragment_of(with_data, 8, 1000, ipv4()));
            all.push_back(first_is_first ? first : second);
            all.push_back(first_is_first ? second : first);
        }
        if (ipv4()) {
            Packet optional = end;
            optional.options = {1, 1, 1, 0};
            all.push_back(frame(to, from, optional));
            return all;
        }
        all.push_back(frame(to, from, behind(end, {kDestinationOptions})));
        all.push_back(frame(to, from, behind(end, {kDestinationOptions, kAuthentication})));
        all.push_back(frame(to, from, behind(end, std::vector<std::uint8_t>(5, kDestinationOptions))));
        all.push_back(frame(to, from, behind(end, std::vector<std::uint8_t>(9, kDestinationOptions))));
        all.push_back(frame(to, from, fragment_of(end, 0, 1000, false))); // atomic
        return all;
    }
    // In the name of both ends as they are on the link, with sequence numbers from all over their range.
    void forge(std::uint8_t flags, const Ends &in_peers_name, const Ends &in_pods_name) {
        const Wire wire(lab_.outside(), forger_);
        const Mac gateway = Wire(lab_.node().ns(), uplink_).mac();
        for (std::uint32_t part = 0; part < 4; ++part)
            for (const Ends &ends : {in_peers_name, in_pods_name})
                for (const Bytes &bytes : shapes(ends, flags, part << 14U, gateway, wire.mac()))
                    wire.send(bytes);
    }
    void forge(std::uint8_t flags) {
        forge(flags, {peer(), victim(), kPort, kOwnPort}, {victim(), peer(), kOwnPort, kPort});
    }
    // Also if the programs have forgotten everything: `forget` runs before each kind of end.
    void expect_unharmed(
        const Fd &socket, const std::function<void(std::uint8_t)> &attack,
        const std::function<void()> &forget = [] {}) {
        ASSERT_EQ(transfer(socket, 1 << 20), 0);
        for (const int flags : flags_) {
            forget();
            attack(static_cast<std::uint8_t>(flags));
            std::this_thread::sleep_for(quiet());
            EXPECT_EQ(entry().state, "ESTABLISHED") << flags;
            EXPECT_GT(entry().seconds, kBelieved) << flags;
            EXPECT_EQ(transfer(socket, 1 << 20), 0) << flags;
        }
    }
    void expect_unharmed() {
        const EchoServer server(lab_.outside(), ipv4(), kPort);
        const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
        expect_unharmed(socket, [&](std::uint8_t flags) { forge(flags); });
    }
    void expect_unharmed_if_forgotten() {
        const EchoServer server(lab_.outside(), ipv4(), kPort);
        const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
        const auto attack = [&](std::uint8_t flags) { forge(flags); };
        expect_unharmed(socket, attack, [&] { forget_flows(); });
        expect_unharmed(socket, attack, [&] { forget_all(); });
    }
    void expect_masqueraded_unharmed() {
        rule("-t nat -A POSTROUTING -o up0 -j MASQUERADE");
        const EchoServer server(lab_.outside(), ipv4(), kPort);
        const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
        expect_unharmed(socket, [&](std::uint8_t flags) {
            forge(flags, {peer(), node_addr(), kPort, kOwnPort}, {victim(), peer(), kOwnPort, kPort});
        });
    }
    void expect_unharmed_by_a_service() {
        route("198.19.0.0/16", "2001:db8:5e::/64");
        const ip_addr service = ip(ipv4() ? "198.19.0.1" : "2001:db8:5e::1");
        rule("-t nat -A PREROUTING -p tcp -d " + to_string(service) + " --dport 80 -j DNAT --to-destination " +
             (ipv4() ? to_string(victim()) : "[" + to_string(victim()) + "]") + ":" + std::to_string(kPort));
        const EchoServer server(victim_.ns(), ipv4(), kPort);
        const Fd socket = test::connected(lab_.outside(), Transport::tcp, {service, 80}, {{}, kOwnPort});
        expect_unharmed(socket, [&](std::uint8_t flags) {
            forge(flags, {peer(), service, kOwnPort, 80}, {victim(), peer(), kPort, kOwnPort});
        });
    }
    // Whatever the programs have forgotten: an end that the peer means arrives, and conntrack learns of it.
    void expect_ends_of_the_peer() {
        for (const auto &forget :
             std::vector<std::function<void()>>{[] {}, [&] { forget_flows(); }, [&] { forget_all(); }}) {
            std::optional<EchoServer> server(std::in_place, lab_.outside(), ipv4(), kPort);
            const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
            ASSERT_EQ(transfer(socket, 1 << 20), 0);
            forget();
            server.reset();
            EXPECT_TRUE(wait_until([&] { return recv(socket.get(), nullptr, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0; }));
            (void)shutdown(socket.get(), SHUT_WR);
            EXPECT_TRUE(wait_until([&] { return entry().state != "ESTABLISHED"; }));
            delete_tracked(lab_.node().ns(), entry());
        }
    }
    void forget_flows() {
        if (GetParam().network == Network::podlane)
            lab_.erase_paths();
    }
    void forget_all() {
        if (GetParam().network != Network::podlane)
            return;
        lab_.erase_paths();
        const auto notes = require(
            Map<flow_key, forwarded>::open(lab_.node().bpffs() + "/live/" + PODLANE_MAP_FORWARDED, Access::read_write));
        for (const auto &[key, note] : require(notes.entries()))
            (void)require(notes.remove(key));
    }

    Lab lab_;
    Pod victim_;
    std::string uplink_ = "up0", forger_ = "eth0"; // the link of who forges
    std::vector<int> flags_ = {tcp_rst, tcp_rst | tcp_ack, tcp_fin | tcp_ack, tcp_syn, tcp_syn | tcp_ack};
};

std::string name_of(const testing::TestParamInfo<ResetParameter> &info) {
    static const std::map<Network, std::string> kNames = {
        {Network::ptp, "Ptp"}, {Network::podlane, "Podlane"}, {Network::strict, "Strict"}, {Network::local, "Local"}};
    return kNames.at(info.param.network) + (info.param.ipv4 ? "V4" : "V6");
}

class ForgedEnds : public AttackReset {};
class ForgedEndsOnTheFastPath : public AttackReset {};

// By the uplink of another network alone.
class ForgedEndsByAForeignUplink : public AttackReset {
  protected:
    void SetUp() override {
        net::Netlink node = require(net::Netlink::open_in(lab_.node().ns()));
        const net::VethSpec link{"eth1", "up1", {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, 1500, lab_.outside()};
        (void)require(net::create_veth(node, link));
        for (const auto &[ns, end, host] :
             {std::tuple{&lab_.node().ns(), "up1", "2"}, {&lab_.outside(), "eth1", "1"}}) {
            (void)must_run(*ns, words(std::string("ip link set ") + end + " up"));
            (void)must_run(*ns, words(std::string("ip addr add 192.0.2.") + host + "/24 dev " + end));
            (void)must_run(*ns, words(std::string("ip addr add 2001:db8:f1::") + host + "/64 nodad dev " + end));
        }
        Json keys = {{"uplinks", {"up1"}}};
        keys["ipam"]["ranges"] = {{{{"subnet", "198.18.8.0/24"}}}, {{{"subnet", "2001:db8:8::/64"}}}};
        foreign_.emplace(lab_.node(), std::vector<Json>{lab_.node().config(keys)}, "1.0.0", "foreign");
        pod_ = lab_.node().container();
        const Reply made = foreign_->add(*pod_);
        ASSERT_EQ(made.rc, 0) << made;
        uplink_ = "up1";
        forger_ = "eth1";
    }
    void TearDown() override {
        if (foreign_ && pod_) {
            EXPECT_EQ(foreign_->del(*pod_).rc, 0);
        }
    }

  private:
    std::optional<Chain> foreign_;
    std::shared_ptr<Container> pod_;
};

// conntrack has not seen the bytes on the fast path, and is liberal: what is out of the windows is kept from it.
TEST_P(ForgedEnds, ChangeNoConnection) { expect_unharmed(); }

// conntrack counts no packet with such flags, nor with a wrong checksum. Where no rule drops those, they reach the pod.
TEST_P(ForgedEnds, ThatConntrackDoesNotCountChangeNoConnection) {
    rule("-R FORWARD 1 -m conntrack --ctstate INVALID -j ACCEPT");
    flags_ = {0x06, 0x07, 0x0e, 0x16, 0x17, 0x26, 0x37, 0x3e, 0x3f};
    const EchoServer server(lab_.outside(), ipv4(), kPort);
    const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
    expect_unharmed(socket, [&](std::uint8_t flags) { forge(flags); });
    const Wire wire(lab_.outside(), "eth0");
    wire.forget();
    ASSERT_EQ(transfer(socket, 100), 0);
    Packet reset = tcp({peer(), victim(), kPort, kOwnPort}, tcp_rst);
    put_numbers(reset, {last_numbers_from(wire, victim()).ack, 0});
    reset.payload.at(17) ^= 1U; // the checksum
    wire.send(frame(Wire(lab_.node().ns(), "up0").mac(), wire.mac(), reset));
    std::this_thread::sleep_for(quiet());
    EXPECT_EQ(entry().state, "ESTABLISHED");
    EXPECT_GT(entry().seconds, kBelieved);
}

// Podlane makes conntrack liberal for them as well: there the socket knows the windows.
TEST_P(ForgedEnds, ChangeNoConnectionOfTheNode) {
    const ip_addr service = ip(ipv4() ? "198.19.0.1" : "2001:db8:5e::1");
    rule("-t nat -A OUTPUT -p tcp -d " + to_string(service) + " --dport 80 -j DNAT --to-destination " +
         (ipv4() ? to_string(peer()) : "[" + to_string(peer()) + "]") + ":" + std::to_string(kPort));
    lab_.node().run("ip route add " + to_string(service) + " dev up0");
    for (const Endpoint &to : {Endpoint{peer(), kPort}, Endpoint{service, 80}}) {
        SCOPED_TRACE(to_string(to.addr));
        std::optional<EchoServer> server(std::in_place, lab_.outside(), ipv4(), kPort);
        const Fd socket = test::connected(lab_.node().ns(), Transport::tcp, to, {{}, kOwnPort});
        expect_unharmed(socket, [&](std::uint8_t flags) {
            forge(flags, {peer(), node_addr(), kPort, kOwnPort}, {node_addr(), to.addr, kOwnPort, to.port});
        });
        // The peer's own end arrives.
        server.reset();
        EXPECT_TRUE(wait_until([&] { return recv(socket.get(), nullptr, 0, MSG_DONTWAIT | MSG_TRUNC) >= 0; }));
        EXPECT_TRUE(wait_until([&] { return entry().state != "ESTABLISHED"; }));
        delete_tracked(lab_.node().ns(), entry());
    }
}

// Who knows one number lacks the other: of what the peer sends next, and of what the victim has sent.
TEST_P(ForgedEnds, NeedTheNumbersOfBothEnds) {
    const EchoServer server(lab_.outside(), ipv4(), kPort);
    const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
    const Wire wire(lab_.outside(), "eth0");
    const Mac gateway = Wire(lab_.node().ns(), "up0").mac();
    const Ends in_peers_name{peer(), victim(), kPort, kOwnPort}, in_pods_name{victim(), peer(), kOwnPort, kPort};
    const auto send = [&](const Ends &ends, std::uint8_t flags, const Numbers &numbers) {
        Packet packet = tcp(ends, flags);
        put_numbers(packet, numbers);
        wire.send(frame(gateway, wire.mac(), packet));
    };
    for (const std::uint32_t off : {1U << 30U, 1U << 31U, 3U << 30U}) {
        SCOPED_TRACE(off);
        ASSERT_EQ(transfer(socket, 1 << 20), 0);
        wire.forget();
        ASSERT_EQ(transfer(socket, 100), 0);
        const Numbers victims = last_numbers_from(wire, victim());
        // The peer's next number, and an acknowledgment of what the victim has not sent.
        send(in_peers_name, tcp_fin | tcp_ack, {victims.ack, victims.sequence + off});
        // A packet in the peer's name announces a window that the peer does not have.
        send(in_peers_name, tcp_ack, {victims.ack, victims.sequence + off});
        for (const std::uint8_t end : {tcp_fin, tcp_rst})
            send(in_pods_name, static_cast<std::uint8_t>(end | tcp_ack), {victims.sequence + off, victims.ack});
        std::this_thread::sleep_for(quiet());
        EXPECT_EQ(entry().state, "ESTABLISHED");
        EXPECT_GT(entry().seconds, kBelieved);
    }
    wire.forget();
    EXPECT_EQ(transfer(socket, 100), 0);
    // The test's own foundation: with both it is believed.
    const Numbers victims = last_numbers_from(wire, victim());
    send(in_peers_name, tcp_fin | tcp_ack, {victims.ack, victims.sequence});
    EXPECT_TRUE(wait_until([&] { return entry().state != "ESTABLISHED"; }));
}

// Closing connections are as they are beside ptp: conntrack believes every reset.
TEST_P(ForgedEnds, ResetClosingConnectionsAsBesidePtp) {
    const EchoServer server(lab_.outside(), ipv4(), kPort);
    const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    const Fd silent = open_socket(lab_.outside(), Transport::tcp, ipv4(), {{}, kPort + 1});
    ASSERT_EQ(listen(silent.get(), 1), 0);
    const Fd half = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort + 1}, {{}, kOwnPort + 1});
    ASSERT_EQ(shutdown(half.get(), SHUT_WR), 0);
    const auto state = [&] {
        for (const Tracked &one : tracked(lab_.node().ns()))
            if (one.source.port == kOwnPort + 1)
                return one.state;
        return std::string();
    };
    ASSERT_TRUE(wait_until([&] { return state() == "CLOSE_WAIT" || state() == "FIN_WAIT"; }));
    const Wire wire(lab_.outside(), "eth0");
    Packet reset = tcp({peer(), victim(), kPort + 1, kOwnPort + 1}, tcp_rst);
    put_sequence(reset, 0x8000);
    wire.send(frame(Wire(lab_.node().ns(), "up0").mac(), wire.mac(), reset));
    EXPECT_TRUE(wait_until([&] { return state() == "CLOSE"; })) << state();
}

TEST_P(ForgedEndsOnTheFastPath, ChangeNoConnectionWhoseEntriesAreEvicted) { expect_unharmed_if_forgotten(); }
TEST_P(ForgedEndsOnTheFastPath, ChangeNoMasqueradedConnection) { expect_masqueraded_unharmed(); }
TEST_P(ForgedEndsOnTheFastPath, ChangeNoConnectionToAService) { expect_unharmed_by_a_service(); }
TEST_P(ForgedEndsOnTheFastPath, DifferFromTheEndsOfThePeer) { expect_ends_of_the_peer(); }

TEST_P(ForgedEndsByAForeignUplink, ChangeNoConnection) { expect_unharmed(); }
TEST_P(ForgedEndsByAForeignUplink, ChangeNoConnectionWhoseEntriesAreEvicted) { expect_unharmed_if_forgotten(); }
TEST_P(ForgedEndsByAForeignUplink, ChangeNoMasqueradedConnection) { expect_masqueraded_unharmed(); }
TEST_P(ForgedEndsByAForeignUplink, ChangeNoConnectionToAService) { expect_unharmed_by_a_service(); }

// The peer sends by another link than it receives from.
TEST_P(ForgedEndsByAForeignUplink, DifferFromTheEndsOfThePeer) {
    lab_.node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up1.rp_filter=0");
    (void)must_run(lab_.outside(), words("ip route replace " + std::string(ipv4() ? Lab::kPods4 : Lab::kPods6) +
                                         " via " + (ipv4() ? "192.0.2.2" : "2001:db8:f1::2")));
    expect_ends_of_the_peer();
}

// The pod judges the ends that conntrack may not see, but only by the uplink of its connection.
TEST_P(ForgedEndsOnTheFastPath, ReachNoPodByAnotherUplink) {
    lab_.node().run("ip link add up1 type veth peer name host1");
    for (const std::string link : {"up1", "host1"})
        lab_.node().run("ip link set " + link + " up");
    const Json keys = {{"uplinks", {"up*"}}};
    const Pod pod = lab_.add_pod(keys);
    const EchoServer server(lab_.outside(), ipv4(), kPort);
    const Fd socket = test::connected(pod.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
    const Wire wire(lab_.node().ns(), "host1");
    const Mac gateway = Wire(lab_.node().ns(), "up1").mac();
    const auto counted = [&](reason why) { return lab_.node().counted("up1", why).packets; };
    Packet reset = tcp({peer(), pod.addr(ipv4()), kPort, kOwnPort}, tcp_rst);
    for (const bool is_evicted : {false, true}) {
        SCOPED_TRACE(is_evicted);
        ASSERT_EQ(transfer(socket, 1 << 20), 0);
        if (is_evicted)
            forget_flows();
        const std::uint64_t before = counted(REASON_DROP_FORGED_END);
        for (const std::uint32_t upper : {0x2000U, 0x6000U, 0xa000U, 0xe000U}) {
            put_sequence(reset, upper);
            wire.send(frame(gateway, wire.mac(), reset));
        }
        EXPECT_TRUE(wait_until([&] { return counted(REASON_DROP_FORGED_END) == before + 4; }));
    }
    EXPECT_EQ(counted(REASON_UPLINK_DELIVERED), 0U);
}

constexpr ResetParameter kPtp4{Network::ptp, true}, kPtp6{Network::ptp, false};
constexpr ResetParameter kStrict4{Network::strict, true}, kStrict6{Network::strict, false};
constexpr ResetParameter kPodlane4{Network::podlane, true}, kPodlane6{Network::podlane, false};
constexpr ResetParameter kLocal4{Network::local, true}, kLocal6{Network::local, false};
INSTANTIATE_TEST_SUITE_P(Of, ForgedEnds,
                         testing::Values(kPtp4, kPtp6, kStrict4, kStrict6, kPodlane4, kPodlane6, kLocal4, kLocal6),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Of, ForgedEndsOnTheFastPath, testing::Values(kPodlane4, kPodlane6), name_of);
INSTANTIATE_TEST_SUITE_P(Of, ForgedEndsByAForeignUplink, testing::Values(kPodlane4, kPodlane6), name_of);

} // namespace
} // namespace podlane::test
