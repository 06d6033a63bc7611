// SPDX-License-Identifier: MIT
// A hostile pod with CAP_NET_RAW sends ICMP errors that quote a connection on the fast path, or what nobody has sent:
// they are no tunnel to a host that FORWARD drops, and what arrives has the source that it has with the fast path off.
#include "tests/netns/forged.hpp"
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

using forged::Forged;
using forged::send_as;

constexpr std::size_t kPayload = 600;
constexpr std::uint16_t kInvented = 5001; // the port of a datagram that nobody has sent

// An ICMP error, port unreachable, about a datagram that was sent to `from`, by whomever.
Packet error(const ip_addr &from, const ip_addr &to, const ip_addr &quoted, std::uint16_t port) {
    Bytes body(4);
    frames::append(body, to_bytes(udp({quoted, from, kPort, port}, kPayload)));
    return icmp({from, to}, is_ipv4(to) ? 3 : 1, is_ipv4(to) ? 3 : 4, body);
}
bool is_error(const Bytes &frame) { return contains(frame, pattern(kPayload)); }

// Whose source it has, if it arrives.
enum class Outcome { nothing, own, node, another };
void PrintTo(Outcome of, std::ostream *out) {
    constexpr std::array kNames = {"nothing", "its own source", "the node's source", "another source"};
    *out << kNames.at(static_cast<std::size_t>(of));
}

// A pod, its interface, and the socket of its connection with the peer.
struct Sender {
    const net::Namespace *ns = nullptr;
    std::string ifname{};
    Mac mac{}, gateway_mac{};
    ip_addr own{};
    Fd socket{};

    [[nodiscard]] Outcome send(const Packet &packet, const Wire &to, const std::vector<ip_addr> &of_node) const {
        to.forget();
        send_as(Privilege::net_raw, *ns, ifname, {{"an ICMP error", frame(gateway_mac, mac, packet)}});
        Outcome outcome = Outcome::nothing;
        const auto is_last = [&](const Bytes &frame) {
            if (!is_error(frame))
                return false;
            const auto is_it = [&](const ip_addr &source) { return is_from(frame, source); };
            outcome = is_it(own)                            ? Outcome::own
                      : std::ranges::any_of(of_node, is_it) ? Outcome::node
                                                            : Outcome::another;
            return true;
        };
        (void)to.until(is_last, quiet());
        return outcome;
    }
    [[nodiscard]] bool answered() const { return send_text(socket, "x") == 0 && receive(socket).text == "x"; }
    [[nodiscard]] std::uint16_t port() const { return local_of(socket).port; }
};

class AttackError : public LabTest {
  protected:
    void start(const Json &keys) {
        // Nobody replies from it.
        for (const char *address : {"203.0.113.9/24", "2001:db8:cafe::9/64 nodad preferred_lft 0"})
            (void)must_run(lab_->outside(), words(std::string("ip addr add dev eth0 ") + address));
        (void)must_run(lab_->outside(), words("ip route add " + pod_range() + " via " + to_string(node_addr())));
        for (const ip_addr &known : {outside_addr(), closed()}) // the fast path sends to no other
            ASSERT_TRUE(wait_until([&] { return ping(lab_->node().ns(), known); }));
        server_.emplace(lab_->outside(), ipv4(), kPort);
        victim_ = add_pod(keys);
        fast_pod_ = add_pod(keys);
        fast_ = connect_from(fast_pod_);
        Json off = keys;
        off["fastPath"] = "off";
        slow_pod_ = add_pod(off);
    }
    [[nodiscard]] Sender connect_from(const Pod &pod) const {
        return {&pod.ns(),       "eth0",    pod.mac,
                pod.gateway_mac, addr(pod), connected(pod.ns(), Transport::udp, {outside_addr(), kPort})};
    }
    void rule(const std::string &words) { lab_->node().run(iptables() + " -w " + words); }
    // Of the connection with the peer.
    void wait_for_the_fast_path() {
        ASSERT_TRUE(wait_until([&] {
            const std::uint64_t before = lab_->count(fast_pod_, REASON_SENT_UPLINK);
            return fast_.answered() && lab_->count(fast_pod_, REASON_SENT_UPLINK) > before;
        }));
    }
    // A host beside the peer.
    [[nodiscard]] ip_addr closed() const { return ip(ipv4() ? "203.0.113.9" : "2001:db8:cafe::9"); }
    [[nodiscard]] std::vector<ip_addr> of_node() const { return {node_addr()}; }

    std::optional<EchoServer> server_;
    Pod victim_, fast_pod_, slow_pod_;
    Sender fast_;
};

TEST_P(AttackError, IsNoTunnelAndIsTranslatedAsWithoutTheFastPath) {
    start({{"firstPacket", "host"}});
    rule("-t nat -A POSTROUTING -o up0 -s " + pod_range() + " -j MASQUERADE");
    const Sender slow = connect_from(slow_pod_);
    for (int i = 0; i < 3; ++i)
        ASSERT_TRUE(slow.answered());
    fast_ = connect_from(fast_pod_); // translated
    wait_for_the_fast_path();
    const Wire outside(lab_->outside(), "eth0");
    const Wire victim = victim_.wire();
    for (const bool is_closed : {true, false})
        for (const ip_addr &to : {closed(), addr(victim_)}) {
            SCOPED_TRACE((is_closed ? "closed " : "open ") + to_string(to));
            const Wire &wire = to == closed() ? outside : victim;
            if (is_closed)
                rule("-A FORWARD -d " + to_string(to) + " -j DROP");
            for (const ip_addr &quoted : {outside_addr(), to}) {
                const Outcome got = fast_.send(error(fast_.own, to, quoted, fast_.port()), wire, of_node());
                EXPECT_EQ(got, slow.send(error(slow.own, to, quoted, slow.port()), wire, of_node()));
                EXPECT_EQ(got == Outcome::nothing, is_closed);
            }
            if (is_closed)
                rule("-D FORWARD -d " + to_string(to) + " -j DROP");
        }
    wait_for_the_fast_path();
    for (const Sender *from : std::array<const Sender *, 2>{&fast_, &slow})
        EXPECT_EQ(from->send(error(from->own, outside_addr(), outside_addr(), from->port()), outside, of_node()),
                  Outcome::node)
            << "about the connection, to its peer";
    EXPECT_TRUE(fast_.answered());
}

// The peer is a pod of another node; what is beside it is not.
TEST_P(AttackError, IsNoTunnelToWhatIsNotOfTheCluster) {
    const Json cluster = {to_string(outside_addr()) + (ipv4() ? "/32" : "/128"), Lab::kPods4, Lab::kPods6};
    // Not the next hop of the default route.
    lab_->node().run("ip route replace default via 203.0.113.99");
    lab_->node().run("ip -6 route replace default via 2001:db8:cafe::99");
    start({{"firstPacket", "direct"}, {"clusterCIDRs", cluster}});
    wait_for_the_fast_path();
    rule("-A FORWARD -d " + to_string(closed()) + " -j DROP");
    const Wire outside(lab_->outside(), "eth0");
    const auto outcome = [&](const ip_addr &to, const ip_addr &quoted) {
        return fast_.send(error(fast_.own, to, quoted, fast_.port()), outside, of_node());
    };
    for (const ip_addr &quoted : {outside_addr(), closed(), addr(victim_)})
        EXPECT_EQ(outcome(closed(), quoted), Outcome::nothing) << to_string(quoted);
    EXPECT_EQ(outcome(outside_addr(), outside_addr()), Outcome::own) << "about the connection, to its peer";
    rule("-F FORWARD");
    EXPECT_EQ(outcome(closed(), outside_addr()), Outcome::own) << "nothing but the rule was in the way";
}

// The cluster's ranges hold it, but no route of its own leads there: it may be a Service's, or anybody's.
TEST_P(AttackError, IsNoTunnelToWhatIsBehindTheDefaultRoute) {
    const ip_addr far = ip(ipv4() ? "198.51.100.9" : "2001:db8:77::9");
    (void)must_run(lab_->outside(),
                   words("ip addr add dev eth0 " + to_string(far) + (ipv4() ? "/32" : "/128 nodad preferred_lft 0")));
    start({{"firstPacket", "direct"},
           {"clusterCIDRs", {"198.51.100.0/24", "2001:db8:77::/64", Lab::kPods4, Lab::kPods6}}});
    rule("-A FORWARD -d " + to_string(far) + " -j DROP");
    const Wire outside(lab_->outside(), "eth0");
    const auto outcome = [&] { return fast_.send(error(fast_.own, far, far, kInvented), outside, of_node()); };
    EXPECT_EQ(outcome(), Outcome::nothing);
    rule("-F FORWARD");
    EXPECT_EQ(outcome(), Outcome::own) << "nothing but the rule was in the way";
}

// Between two pods of the cluster, but from another source that the sender may use.
TEST_P(AttackError, IsNoTunnelForAnotherSource) {
    for (const char *where : {"all", "default"})
        lab_->node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
    const ip_addr other = ip(ipv4() ? "10.9.9.9" : "2001:db8:99::9");
    start({{"firstPacket", "direct"},
           {"clusterCIDRs", {Lab::kPods4, Lab::kPods6}},
           {"allowedSources", {to_string(other)}}});
    rule("-A FORWARD -s " + to_string(other) + " -j DROP");
    const Wire victim = victim_.wire();
    Packet packet = error(fast_.own, addr(victim_), addr(victim_), kInvented);
    packet.source = other;
    set_checksum(packet, 2);
    EXPECT_EQ(fast_.send(packet, victim, of_node()), Outcome::nothing);
    rule("-F FORWARD");
    EXPECT_EQ(fast_.send(packet, victim, of_node()), Outcome::another) << "nothing but the rule was in the way";
}

INSTANTIATE_TEST_SUITE_P(All, AttackError, lab_parameters(), lab_parameter_name);

class AttackErrorOnLan : public Lan {
  protected:
    [[nodiscard]] Sender connect_from(const Container &pod, const std::string &ifname, const ip_addr &peer) {
        const std::uint32_t veth = SourceLab::host_veth(pod, ifname);
        Sender sender{&pod.ns(), ifname, Wire(pod.ns(), ifname).mac(), {}, SourceLab::addr(pod, ifname, GetParam()),
                      {}};
        for (const Json &one : Json::parse(node().run("ip -j link")))
            if (one.at("ifindex") == veth)
                sender.gateway_mac = require(parse_mac(one.at("address").get<std::string>()));
        sender.socket = connected(pod.ns(), Transport::udp, {peer, kPort}, {sender.own, 0});
        return sender;
    }
    void rule(const std::string &words) {
        node().run(std::string(GetParam() ? "iptables" : "ip6tables") + " -w " + words);
    }
};

// The connection leaves by the network's own uplink, past FORWARD; a pod of another network is behind FORWARD. What
// FORWARD carries is masqueraded.
TEST_P(AttackErrorOnLan, IsNoTunnelToAPodOfAnotherNetwork) {
    const auto hostile = add_pod();
    const auto victim = node().container();
    lab_.add(victim, "eth0", 0);
    const ip_addr to = SourceLab::addr(*victim, "eth0", GetParam());
    const EchoServer host(host_->ns(), GetParam(), kPort);
    const EchoServer server(victim->ns(), GetParam(), kPort);
    rule("-t nat -A POSTROUTING -d " + to_string(to) + " -j MASQUERADE");
    const Sender by_uplink = connect_from(*hostile, "net1", host_addr());
    ASSERT_TRUE(wait_until([&] { return by_uplink.answered(); }));
    const std::uint32_t veth = SourceLab::host_veth(*hostile, "net1");
    EXPECT_GT(lab_.count(veth, REASON_SENT_WAY), 0U) << "the connection leaves by the uplink";
    const Sender by_host = connect_from(*hostile, "net1", to);
    ASSERT_TRUE(wait_until([&] { return by_host.answered(); }));
    const Wire wire(victim->ns(), "eth0");
    const Wire lan(host_->ns(), "eth0");
    std::vector<ip_addr> of_node; // whichever interface it leaves by
    for (const Json &link : Json::parse(node().run("ip -j addr show")))
        for (const Json &one : link.at("addr_info"))
            of_node.push_back(ip(one.at("local").get<std::string>()));
    const auto outcome = [&](const ip_addr &quoted, std::uint16_t port) {
        return by_uplink.send(error(by_uplink.own, to, quoted, port), wire, of_node);
    };
    rule("-A FORWARD -d " + to_string(to) + " -j DROP");
    EXPECT_EQ(outcome(host_addr(), by_uplink.port()), Outcome::nothing);
    EXPECT_EQ(outcome(to, by_host.port()), Outcome::nothing);
    EXPECT_EQ(outcome(to, by_uplink.port()), Outcome::nothing);
    rule("-D FORWARD -d " + to_string(to) + " -j DROP");
    EXPECT_NE(outcome(host_addr(), by_uplink.port()), Outcome::nothing) << "nothing but the rule was in the way";
    EXPECT_EQ(outcome(to, by_host.port()), Outcome::node) << "about the connection, to its peer";
    EXPECT_EQ(by_uplink.send(error(by_uplink.own, host_addr(), host_addr(), by_uplink.port()), lan, of_node),
              Outcome::own);
    EXPECT_TRUE(by_uplink.answered());
    EXPECT_TRUE(by_host.answered());
}

INSTANTIATE_TEST_SUITE_P(All, AttackErrorOnLan, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
