// SPDX-License-Identifier: MIT
// For each reason there is: podlanectl explain says it of a packet, and it is what then happens to that packet.
#include "tests/netns/explain.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {
constexpr Mac kForeignMac{0x02, 0, 0, 0, 0, 0x66};

// The test below in which a reason is proven, or why no packet can bring it about.
enum class By { pod, uplink, host, limits, sources, nothing };
struct Proof {
    reason why;
    By by;
    const char *because = "";
};

constexpr std::array kProofs = {
    Proof{REASON_NONE, By::nothing, "it is the number of no reason: no program ends in it, and it is never counted"},
    Proof{REASON_SENT_DIRECT, By::pod},
    Proof{REASON_RECEIVED_DIRECT, By::pod},
    Proof{REASON_RECEIVED_HOST, By::host},
    Proof{REASON_GATEWAY_ARP, By::pod},
    Proof{REASON_GATEWAY_ND, By::pod},
    Proof{REASON_HOST_NOT_IP, By::pod},
    Proof{REASON_HOST_ARP, By::pod},
    Proof{REASON_HOST_ND, By::pod},
    Proof{REASON_HOST_L2, By::pod},
    Proof{REASON_HOST_VLAN, By::nothing, "the kernel has moved priority tags out of the frame: no question has one"},
    Proof{REASON_HOST_FRAGMENT, By::pod},
    Proof{REASON_HOST_OPTIONS, By::pod},
    Proof{REASON_HOST_LENGTH, By::pod},
    Proof{REASON_HOST_NO_FLOW, By::pod},
    Proof{REASON_HOST_NOT_LOCAL, By::uplink},
    Proof{REASON_HOST_SELF, By::pod},
    Proof{REASON_HOST_FAST_PATH_OFF, By::pod},
    Proof{REASON_HOST_TTL, By::pod},
    Proof{REASON_HOST_MTU, By::pod},
    Proof{REASON_HOST_PATH, By::nothing, "it ends a connection that conntrack has confirmed: flow_end_test has some"},
    Proof{REASON_HOST_UNKNOWN_PATH, By::nothing, "the flow cache of an egress route is full, or a header not writable"},
    Proof{REASON_HOST_UNKNOWN_ENDPOINT, By::nothing, "it is not counted any more"},
    Proof{REASON_DROP_SOURCE_MAC, By::pod},
    Proof{REASON_DROP_SOURCE_ADDRESS, By::pod},
    Proof{REASON_DROP_ARP_SPOOFED, By::pod},
    Proof{REASON_DROP_ND_SPOOFED, By::pod},
    Proof{REASON_DROP_MALFORMED, By::pod},
    Proof{REASON_HOST_SCOPE, By::pod},
    Proof{REASON_HOST_CHECKSUM, By::pod},
    Proof{REASON_SENT_UPLINK, By::pod},
    Proof{REASON_RECEIVED_UPLINK, By::uplink},
    Proof{REASON_UPLINK_DELIVERED, By::uplink},
    Proof{REASON_UPLINK_SENT, By::pod},
    Proof{REASON_UPLINK_SENT_HOST, By::host},
    Proof{REASON_HOST_NO_ROUTE, By::pod},
    Proof{REASON_HOST_NO_UPLINK, By::pod},
    Proof{REASON_HOST_SOURCE_LOCAL, By::uplink},
    Proof{REASON_HOST_NO_NEIGHBOUR, By::pod},
    Proof{REASON_SENT_SIBLING, By::sources},
    Proof{REASON_SENT_WAY, By::sources},
    Proof{REASON_UPLINK_ARP, By::sources},
    Proof{REASON_UPLINK_ND, By::sources},
    Proof{REASON_DROP_EGRESS_LIMIT, By::limits},
    Proof{REASON_DROP_INGRESS_LIMIT, By::limits},
    Proof{REASON_DROP_VLAN, By::pod},
    Proof{REASON_DROP_ETHER_TYPE, By::pod},
    Proof{REASON_DROP_UNKNOWN_ENDPOINT, By::pod},
    Proof{REASON_HOST_UNCONFIRMED, By::pod},
    Proof{REASON_DROP_ISOLATION, By::pod},
    Proof{REASON_DROP_FORGED_END, By::nothing, "conntrack has confirmed its connection: attack_reset_test has some"},
    Proof{REASON_DROP_HIDDEN_HEADER, By::uplink},
    Proof{REASON_HOST_IPSEC, By::nothing, "the node has policies of IPsec: ipsec_test has some"},
};

void expect_all_of(By by, const Asker &asker) {
    for (const Proof &proof : kProofs)
        if (proof.by == by) {
            EXPECT_TRUE(asker.proven_.contains(std::string(kReasons[proof.why].name))) << kReasons[proof.why].name;
        }
}

TEST(ExplainReasons, EachIsProvenOrHasAJustification) {
    for (int i = 0; i < REASON_COUNT; ++i) {
        const auto proof = std::ranges::find(kProofs, static_cast<reason>(i), &Proof::why);
        ASSERT_NE(proof, kProofs.end()) << kReasons[i].name << " is compared with no packet";
        EXPECT_EQ(proof->by == By::nothing, proof->because != std::string()) << kReasons[i].name;
        if (proof->by == By::nothing)
            std::cout << kReasons[i].name << ": no packet, for " << proof->because << "\n";
    }
    EXPECT_EQ(kProofs.size(), std::size_t{REASON_COUNT});
}

// How a packet is known wherever it arrives, whole, in fragments or quoted by an ICMP error: by its ports.
Arrival with_ports_of(const Packet &packet, const Wire *at) {
    constexpr std::size_t kLength = 6; // and the datagram's length or a part of the sequence number
    const Bytes &whole = packet.payload;
    const Bytes needle(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(std::min(kLength, whole.size())));
    return {at, [needle](const Bytes &frame) { return contains(frame, needle); }};
}

class ExplainLab : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (const std::string why = why_not_by(GetParam()); !why.empty())
            GTEST_SKIP() << why;
        lab_.emplace();
        lab_->node().run("sysctl -qw net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0"); // errors are waited for
        asker_.emplace(lab_->node());
        a_ = add_pod({{"allowedEtherTypes", {"lldp"}}});
        b_ = add_pod({{"mtu", 1300}});
        a_wire_.emplace(a_.wire());
        b_wire_.emplace(b_.wire());
        outside_.emplace(lab_->outside(), "eth0");
        (void)must_run(lab_->outside(), words("ip route add 198.18.9.0/24 via 203.0.113.2"));
    }
    Pod add_pod(Json keys = Json::object()) {
        keys["attach"] = GetParam();
        keys["clusterCIDRs"] = {"198.18.0.0/16", "2001:db8:9::/48"};
        return lab_->add_pod(keys);
    }
    [[nodiscard]] std::vector<const Wire *> receivers() const { return {&*b_wire_, &*outside_}; }
    void expect_raw(const char *name, reason why, const Bytes &bytes, const Arrival &arrival) {
        asker_->compare(name, {a_.host_ifname, false, *a_wire_, bytes}, why, arrival, receivers());
    }
    // A packet of a_; `at` is where it arrives.
    void expect(const char *name, reason why, const Packet &packet, const Wire *at) {
        expect_raw(name, why, frame(a_.gateway_mac, a_.mac, packet), with_ports_of(packet, at));
    }
    static Packet changed(Packet packet, const std::function<void(Packet &)> &change) {
        change(packet);
        return packet;
    }

    std::optional<Lab> lab_;
    std::optional<Asker> asker_;
    Pod a_, b_;
    std::optional<Wire> a_wire_, b_wire_, outside_;
};

class ExplainPod : public ExplainLab {
  protected:
    [[nodiscard]] Ends to_b() { return {a_.v4, b_.v4, ++port_, 7}; }
    [[nodiscard]] Ends to(const std::string &addr) { return {a_.v4, ip(addr), ++port_, 7}; }
    void expect_paths();
    void expect_detours();
    void expect_refused();
    void expect_neighbours();
    void expect_routes();
    void expect_endpoints();
    std::uint16_t port_ = 40000;
};

void ExplainPod::expect_paths() {
    const Wire *b = &*b_wire_;
    const Packet question = udp(to_b());
    expect("udp to a pod", REASON_SENT_DIRECT, question, b);
    expect("again", REASON_SENT_DIRECT, question, b);
    expect("udp6", REASON_SENT_DIRECT, udp({a_.v6, b_.v6, 40001, 7}), b);
    expect("syn", REASON_SENT_DIRECT, tcp(to_b(), tcp_syn), b);
    expect("echo", REASON_HOST_UNCONFIRMED, echo_request(to_b(), 7, 1), b);
    const Packet under_way = tcp(to_b(), tcp_ack);
    expect("under way", REASON_SENT_DIRECT, under_way, b);
    const Packet answer = tcp({b_.v4, a_.v4, 7, port_}, tcp_ack);
    asker_->compare("its answer", {b_.host_ifname, false, *b_wire_, frame(b_.gateway_mac, b_.mac, answer)},
                    REASON_SENT_DIRECT, with_ports_of(answer, &*a_wire_), {});
    expect("to itself", REASON_HOST_SELF, udp({a_.v4, a_.v4, ++port_, 7}), &*a_wire_);
    expect("to the outside", REASON_HOST_UNCONFIRMED, udp(to(Lab::kOutside4)), &*outside_);
    // A route that is not the default one's.
    lab_->node().run("ip route add 198.18.77.0/24 dev up0");
    lab_->node().run("ip neigh replace 198.18.77.7 lladdr " + to_string(outside_->mac()) + " dev up0");
    expect("in the cluster", REASON_SENT_UPLINK, udp(to("198.18.77.7")), &*outside_);
}

void ExplainPod::expect_detours() {
    const Wire *b = &*b_wire_;
    expect("too large", REASON_HOST_MTU, udp(to_b(), 1350), b);
    expect("hop limit", REASON_HOST_TTL, changed(udp(to_b()), [](Packet &p) { p.hop_limit = 1; }), &*a_wire_);
    expect("fragment", REASON_HOST_FRAGMENT, changed(udp(to_b()), [](Packet &p) { p.fragment = 0x2000; }), b);
    expect("options", REASON_HOST_OPTIONS, changed(udp(to_b()), [](Packet &p) { p.options = {1, 1, 1, 1}; }), b);
    expect("checksum", REASON_HOST_CHECKSUM, changed(udp(to_b()), [](Packet &p) { p.header_checksum = 1; }), nullptr);
    expect("length", REASON_HOST_LENGTH, changed(udp(to_b()), [](Packet &p) { p.length = 999; }), nullptr);
    expect("cut tcp", REASON_HOST_NO_FLOW, other(to_b(), IPPROTO_TCP, 6), b);
    expect("link-local source", REASON_HOST_SCOPE, udp({a_.link_local, b_.v6, ++port_, 7}), nullptr);
    const Packet tagged = udp(to_b());
    Bytes vlan = {0, 5, 8, 0};
    const Bytes inside = to_bytes(tagged);
    vlan.insert(vlan.end(), inside.begin(), inside.end());
    expect_raw("vlan", REASON_DROP_VLAN, frame(a_.gateway_mac, a_.mac, 0x8100, vlan), with_ports_of(tagged, nullptr));
}

void ExplainPod::expect_refused() {
    expect("version", REASON_DROP_MALFORMED, changed(udp(to_b()), [](Packet &p) { p.version_byte = 0x54; }), nullptr);
    expect("stolen source", REASON_DROP_SOURCE_ADDRESS, udp({b_.v4, ip(Lab::kOutside4), ++port_, 7}), nullptr);
    expect("stolen source 6", REASON_DROP_SOURCE_ADDRESS, udp({b_.v6, ip(Lab::kOutside6), ++port_, 7}), nullptr);
    const Pod alone = add_pod({{"groups", {"name:alone"}}, {"isolation", "group"}});
    expect("isolated", REASON_DROP_ISOLATION, tcp({a_.v4, alone.v4, ++port_, 7}, tcp_syn), nullptr);
    const Packet packet = udp(to_b());
    expect_raw("stolen MAC", REASON_DROP_SOURCE_MAC, frame(a_.gateway_mac, kForeignMac, packet),
               with_ports_of(packet, nullptr));
    expect_raw("to another MAC", REASON_HOST_L2, frame(kForeignMac, a_.mac, packet), with_ports_of(packet, nullptr));
    for (const auto &[type, why] : {std::pair(0x88cc, REASON_HOST_NOT_IP), std::pair(0x88b5, REASON_DROP_ETHER_TYPE)})
        expect_raw(kReasons[why].name.data(), why,
                   frame(a_.gateway_mac, a_.mac, static_cast<std::uint16_t>(type), pattern(46)),
                   {nullptr, [type = type](const Bytes &arrived) { return ethertype(arrived) == type; }});
}

void ExplainPod::expect_neighbours() {
    const auto arp = [&](const char *name, reason why, const ip_addr &sender, const ip_addr &target, const Wire *at) {
        expect_raw(name, why, frame(a_.gateway_mac, a_.mac, 0x0806, to_bytes(Arp{1, a_.mac, sender, {}, target})),
                   {at, [](const Bytes &arrived) { return ethertype(arrived) == 0x0806; }});
    };
    arp("arp for the gateway", REASON_GATEWAY_ARP, a_.v4, ip("169.254.1.1"), &*a_wire_);
    arp("arp for another", REASON_HOST_ARP, a_.v4, b_.v4, nullptr);
    arp("arp in another's name", REASON_DROP_ARP_SPOOFED, b_.v4, a_.v4, nullptr);
    const ip_addr gateway = ip("fe80::ecee:eeff:feee:eeee");
    const auto nd = [&](const char *name, reason why, std::uint8_t type, const ip_addr &target, const Wire *at) {
        const std::uint8_t option = type == 135 ? 1 : 2;
        const Packet message = neighbour({a_.link_local, gateway}, type, 0, target, option, a_.mac);
        expect_raw(name, why, frame(a_.gateway_mac, a_.mac, message), {at, [](const Bytes &arrived) {
                                                                           const Bytes packet = layer3(arrived);
                                                                           return ethertype(arrived) == 0x86dd &&
                                                                                  packet.size() > kIpv6Bytes &&
                                                                                  packet.at(kIpv6Bytes) == 136;
                                                                       }});
    };
    nd("nd for the gateway", REASON_GATEWAY_ND, 135, gateway, &*a_wire_);
    nd("nd for another", REASON_HOST_ND, 135, b_.v6, nullptr);
    nd("nd in another's name", REASON_DROP_ND_SPOOFED, 136, b_.v6, nullptr);
}

void ExplainPod::expect_routes() {
    for (const char *command : {"ip route add blackhole 198.18.66.0/24", "ip link add dead0 type veth peer name dead1",
                                "ip link set dead0 up", "ip link set dead1 up", "ip route add 198.18.67.0/24 dev dead0",
                                "ip route add 198.18.68.0/24 via 203.0.113.77",
                                "ip neigh replace 198.18.67.1 lladdr 02:00:00:00:00:ee dev dead0"})
        lab_->node().run(command);
    expect("blackhole", REASON_HOST_NO_ROUTE, udp(to("198.18.66.1")), nullptr);
    expect("no uplink", REASON_HOST_NO_UPLINK, udp(to("198.18.67.1")), nullptr);
    expect("next hop that nobody is", REASON_HOST_NO_NEIGHBOUR, udp(to("198.18.68.1")), nullptr);
}

void ExplainPod::expect_endpoints() {
    const Pod off = add_pod({{"fastPath", "off"}});
    const Wire wire = off.wire();
    expect("to one without the fast path", REASON_HOST_FAST_PATH_OFF, udp({a_.v4, off.v4, ++port_, 7}), &wire);
    const Pod waits = add_pod({{"firstPacket", "host"}});
    const Wire its = waits.wire();
    expect("before conntrack knows", REASON_HOST_UNCONFIRMED, udp({a_.v4, waits.v4, ++port_, 7}), &its);
    const auto interfaces = require(open_interfaces(lab_->node().bpffs(), Access::read_write));
    const auto entry = *require(interfaces.find(off.ifindex));
    ASSERT_TRUE(require(interfaces.remove(off.ifindex)));
    const Packet packet = udp({off.v4, b_.v4, ++port_, 7});
    asker_->compare("of nobody", {off.host_ifname, false, wire, frame(off.gateway_mac, off.mac, packet)},
                    REASON_DROP_UNKNOWN_ENDPOINT, with_ports_of(packet, nullptr), {});
    require(interfaces.update(off.ifindex, entry));
}

TEST_P(ExplainPod, PredictsTheOutcomeOfWhatAPodSends) {
    expect_paths();
    expect_detours();
    expect_refused();
    expect_neighbours();
    expect_routes();
    expect_endpoints();
    expect_all_of(By::pod, *asker_);
    EXPECT_EQ(asker_->verdicts_, (std::set<std::string>{"dropped", "redirected", "host stack"}));
}

using ExplainUplink = ExplainLab;
TEST_P(ExplainUplink, PredictsTheOutcomeOfWhatArrives) {
    const Mac up0 = Wire(lab_->node().ns(), "up0").mac();
    const auto expect_in = [&](const char *name, reason why, const Packet &packet, const Wire *at) {
        asker_->compare(name, {"up0", false, *outside_, frame(up0, outside_->mac(), packet)}, why,
                        with_ports_of(packet, at), {&*a_wire_, &*b_wire_});
    };
    const ip_addr outside = ip(Lab::kOutside4);
    const ip_addr remote = ip("198.18.77.7");
    expect_in("udp from another node's pod", REASON_UPLINK_DELIVERED, udp({remote, a_.v4}), &*a_wire_);
    expect_in("under way", REASON_UPLINK_DELIVERED, tcp({remote, a_.v4}, tcp_ack), &*a_wire_);
    expect_in("from outside", REASON_HOST_UNCONFIRMED, udp({outside, a_.v4}), &*a_wire_);
    expect_in("to the node", REASON_HOST_NOT_LOCAL, udp({outside, ip(Lab::kNode4)}), nullptr);
    expect_in("too large", REASON_HOST_MTU, udp({outside, b_.v4}, 1350), &*b_wire_);
    Packet tiny = tcp({outside, a_.v4}, tcp_syn);
    tiny.payload.resize(8);
    tiny.fragment = 0x2000;
    expect_in("a header cut short", REASON_DROP_HIDDEN_HEADER, tiny, nullptr);
    expect_in("a pod's source", REASON_HOST_SOURCE_LOCAL, udp({b_.v4, a_.v4, 40002, 7}), &*a_wire_);
    expect_all_of(By::uplink, *asker_);
}

using ExplainHost = ExplainLab;
TEST_P(ExplainHost, PredictsTheOutcomeOfWhatTheHostStackSends) {
    const Wire host_veth(lab_->node().ns(), a_.host_ifname);
    const Packet in = udp({ip(Lab::kNode4), a_.v4});
    asker_->compare("to the pod", {a_.host_ifname, true, host_veth, frame(a_.mac, a_.gateway_mac, in)},
                    REASON_RECEIVED_HOST, with_ports_of(in, &*a_wire_), {});
    const Wire uplink(lab_->node().ns(), "up0");
    const Packet out = udp({ip(Lab::kNode4), ip(Lab::kOutside4)});
    asker_->compare("by the uplink", {"up0", true, uplink, frame(outside_->mac(), uplink.mac(), out)},
                    REASON_UPLINK_SENT_HOST, with_ports_of(out, &*outside_), {});
    expect_all_of(By::host, *asker_);
}

// Ten bits a second: a full frame takes longer than the whole comparison, also in an emulated machine that is busy.
using ExplainLimits = ExplainLab;
TEST_P(ExplainLimits, PredictsDropsBeyondThem) {
    constexpr std::size_t kFull = 1200;
    const auto limited = [&](const char *direction) {
        const std::string name(direction);
        return add_pod({{"limiter", name == "egress" ? "bucket" : "auto"},
                        {"runtimeConfig", {{"bandwidth", {{name + "Rate", 10}, {name + "Burst", 10}}}}}});
    };
    const auto expect_beyond = [&](const Pod &from, const Pod &to, const Wire &at, reason why) {
        const Wire wire = from.wire();
        const Packet packet = udp({from.v4, to.v4}, kFull);
        const Bytes bytes = frame(from.gateway_mac, from.mac, packet);
        asker_->compare("within", {from.host_ifname, false, wire, bytes}, REASON_SENT_DIRECT,
                        with_ports_of(packet, &at), {});
        const auto dropped = [&] { return lab_->count(from, why) + lab_->count(to, why); };
        ASSERT_TRUE(wait_until([&] {
            wire.send(bytes);
            return dropped() > 0;
        }));
        const Json answer = asker_->explain({from.host_ifname, false, wire, bytes});
        const bool is_delayed = answer.size() > 1; // and dropped where it would have got its earliest departure time
        asker_->compare("beyond", {from.host_ifname, false, wire, bytes}, is_delayed ? REASON_SENT_DIRECT : why,
                        with_ports_of(packet, nullptr), {&at});
        EXPECT_EQ(answer.back().at("reason"), std::string(kReasons[why].name)) << answer.dump(1);
    };
    const Pod sender = limited("egress");
    expect_beyond(sender, b_, *b_wire_, REASON_DROP_EGRESS_LIMIT);
    const Pod receiver = limited("ingress");
    expect_beyond(a_, receiver, receiver.wire(), REASON_DROP_INGRESS_LIMIT);
    expect_all_of(By::limits, *asker_);
}

// A pod in two networks, each behind a provider of its own.
class ExplainSources : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (const std::string why = why_not_by(GetParam()); !why.empty())
            GTEST_SKIP() << why;
        pod_ = lab_.node().container();
        for (const int number : {0, 1})
            lab_.add(pod_, number == 0 ? "eth0" : "net1", number,
                     {{"attach", GetParam()},
                      {"uplink", "up" + std::to_string(number)},
                      {"gateway", {SourceLab::on_link(number, 1, true), SourceLab::on_link(number, 1, false)}}});
    }
    [[nodiscard]] std::string host_ifname(const std::string &ifname) const {
        const std::uint32_t ifindex = SourceLab::host_veth(*pod_, ifname);
        for (const Json &one : Json::parse(lab_.node().run("ip -j link")))
            if (one.at("ifindex") == ifindex)
                return one.at("ifname");
        throw std::runtime_error("no host-side veth");
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_;
};

TEST_P(ExplainSources, PredictsTheInterfaceItLeavesBy) {
    Asker asker(lab_.node());
    const Wire eth0(pod_->ns(), "eth0"), net1(pod_->ns(), "net1");
    const Wire provider0(lab_.provider(0).ns(), "eth0"), provider1(lab_.provider(1).ns(), "eth0");
    const Mac host = require(parse_mac("ee:ee:ee:ee:ee:ee"));
    for (const bool ipv4 : {true, false}) {
        const ip_addr first = SourceLab::addr(*pod_, "eth0", ipv4), second = SourceLab::addr(*pod_, "net1", ipv4);
        const ip_addr client = ip(SourceLab::client_addr(1, ipv4));
        const Packet own = udp({second, client});
        asker.compare("by its own", {host_ifname("net1"), false, net1, frame(host, net1.mac(), own)}, REASON_SENT_WAY,
                      with_ports_of(own, &provider1), {});
        const Packet other = udp({second, client, 40001});
        asker.compare("by another", {host_ifname("eth0"), false, eth0, frame(host, eth0.mac(), other)},
                      REASON_SENT_SIBLING, with_ports_of(other, &provider1), {});
        const Mac up0 = Wire(lab_.node().ns(), "up0").mac();
        const ip_addr asking = ip(SourceLab::on_link(0, 1, ipv4));
        if (ipv4) {
            const Bytes arp = to_bytes(Arp{1, provider0.mac(), asking, {}, first});
            asker.compare("arp", {"up0", false, provider0, frame(up0, provider0.mac(), 0x0806, arp)}, REASON_UPLINK_ARP,
                          {&provider0, [](const Bytes &arrived) { return ethertype(arrived) == 0x0806; }}, {});
        } else {
            const Packet nd = neighbour({asking, first, 0, 0}, 135, 0, first, 1, provider0.mac());
            asker.compare("nd", {"up0", false, provider0, frame(up0, provider0.mac(), nd)}, REASON_UPLINK_ND,
                          {&provider0,
                           [](const Bytes &arrived) {
                               return ethertype(arrived) == 0x86dd && layer3(arrived).at(kIpv6Bytes) == 136;
                           }},
                          {});
        }
    }
    expect_all_of(By::sources, asker);
}
INSTANTIATE_TEST_SUITE_P(Hooks, ExplainPod, both_ways_to_attach(), way_to_attach);
INSTANTIATE_TEST_SUITE_P(Hooks, ExplainUplink, both_ways_to_attach(), way_to_attach);
INSTANTIATE_TEST_SUITE_P(Hooks, ExplainHost, both_ways_to_attach(), way_to_attach);
INSTANTIATE_TEST_SUITE_P(Hooks, ExplainLimits, both_ways_to_attach(), way_to_attach);
INSTANTIATE_TEST_SUITE_P(Hooks, ExplainSources, both_ways_to_attach(), way_to_attach);

} // namespace
} // namespace podlane::test
