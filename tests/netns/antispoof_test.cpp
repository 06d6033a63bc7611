// SPDX-License-Identifier: MIT
// Packets that a pod sends in another's name reach nobody, change no neighbour table, and are counted by name. The
// gateway every pod sees is no interface's address: the programs answer for it, once a question.
#include "tests/harness/frame.hpp"
#include "tests/netns/lab.hpp"

#include <netinet/icmp6.h>

namespace podlane::test {
namespace {

using frames::Tag;
using frames::tagged;

constexpr Mac kForeignMac{0x02, 0x00, 0x5e, 0x00, 0x53, 0x01};
constexpr Mac kEveryone{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

class AntiSpoof : public LabTest {
  protected:
    // Sends the frame from `from`; expects it, or nothing of it, at `to`, and `why` to count one packet more.
    void expect(const Pod &from, const Pod &to, const Bytes &frame, reason why, bool arrives, const std::string &what) {
        const Wire wire = from.wire();
        const Wire receiver = to.wire();
        const std::uint64_t before = lab_->count(from, why);
        const Bytes needle = pattern(24);
        wire.send(frame);
        EXPECT_TRUE(wait_until([&] { return lab_->count(from, why) == before + 1; }))
            << what << " is not counted as " << kReasons.at(why).name;
        const auto is_it = [&](const Bytes &one) { return contains(one, needle); };
        // Packets counted as dropped are gone by then.
        const auto silence = kReasons.at(why).kind == REASON_KIND_DROP ? quiet() / 5 : quiet();
        EXPECT_EQ(receiver.until(is_it, arrives ? patience() : silence).has_value(), arrives) << what;
    }
    void expect_dropped(const Pod &from, const Pod &to, const Bytes &frame, reason why, const std::string &what) {
        expect(from, to, frame, why, false, what);
    }
    // The node's neighbours on the host-side veth of `pod`.
    std::string learnt(const Pod &pod) { return lab_->node().run("ip neigh show dev " + pod.host_ifname + " nud all"); }

    [[nodiscard]] Packet to_peer(const Pod &to, const ip_addr &source) const { return udp({source, addr(to)}); }
    [[nodiscard]] ip_addr foreign() const { return ip(ipv4() ? "198.51.100.9" : "2001:db8:77::9"); }
    [[nodiscard]] ip_addr gateway() const { return ip(ipv4() ? "169.254.1.1" : "fe80::ecee:eeff:feee:eeee"); }
};

TEST_P(AntiSpoof, ForeignSourceAddressesReachNobody) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const Pod c = add_pod();
    const std::vector<std::string> sources =
        ipv4() ? std::vector<std::string>{"127.0.0.1", "224.0.0.1", "0.0.0.0", "255.255.255.255"}
               : std::vector<std::string>{"::1", "ff02::1", "::", "fe80::1"};
    for (const std::string &source : sources)
        expect_dropped(a, b, frame(a.gateway_mac, a.mac, to_peer(b, ip(source))), REASON_DROP_SOURCE_ADDRESS, source);
    for (const ip_addr &source : {foreign(), addr(b), addr(c), node_addr(), gateway()})
        expect_dropped(a, b, frame(a.gateway_mac, a.mac, to_peer(b, source)), REASON_DROP_SOURCE_ADDRESS,
                       to_string(source));
    // To show that these frames can arrive at all.
    expect(a, b, frame(a.gateway_mac, a.mac, to_peer(b, addr(a))), REASON_SENT_DIRECT, true, "its own address");
}

TEST_P(AntiSpoof, ForeignMacsReachNobody) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    for (const Mac &mac : {kForeignMac, b.mac, a.gateway_mac})
        expect_dropped(a, b, frame(a.gateway_mac, mac, to_peer(b, addr(a))), REASON_DROP_SOURCE_MAC, to_string(mac));
}

TEST_P(AntiSpoof, AllowedSourcesPass) {
    const Pod a = add_pod({{"allowedSources", {"198.51.100.0/24", "2001:db8:77::/64"}}});
    const Pod b = add_pod();
    expect(a, b, frame(a.gateway_mac, a.mac, to_peer(b, foreign())), REASON_HOST_UNCONFIRMED, true,
           "an allowed source");
    const ip_addr outside = ip(ipv4() ? "198.51.101.9" : "2001:db8:78::9");
    expect_dropped(a, b, frame(a.gateway_mac, a.mac, to_peer(b, outside)), REASON_DROP_SOURCE_ADDRESS, "another");
    // They are this pod's alone.
    expect_dropped(b, a, frame(b.gateway_mac, b.mac, to_peer(a, foreign())), REASON_DROP_SOURCE_ADDRESS, "b's");
}

TEST_P(AntiSpoof, SwitchedOffEverySourceThatIsForwardedPasses) {
    const Pod a = add_pod({{"antiSpoof", false}});
    const Pod b = add_pod();
    expect(a, b, frame(a.gateway_mac, kForeignMac, to_peer(b, foreign())), REASON_HOST_UNCONFIRMED, true, "any source");
}

TEST_P(AntiSpoof, NeighbourMessagesInAnothersNameTeachTheNodeNothing) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const auto drops = [&](const Bytes &bytes, reason why, const std::string &what) {
        expect_dropped(a, b, bytes, why, what);
    };
    if (ipv4()) {
        const auto arp = [&](const Arp &one) { return frame(kEveryone, a.mac, 0x0806, to_bytes(one)); };
        const reason why = REASON_DROP_ARP_SPOOFED;
        drops(arp({1, a.mac, b.v4, {}, gateway()}), why, "request as another pod");
        drops(arp({2, a.mac, b.v4, a.gateway_mac, gateway()}), why, "reply as another pod");
        drops(arp({1, a.mac, gateway(), {}, gateway()}), why, "gratuitous, as the gateway");
        drops(arp({2, a.mac, node_addr(), a.gateway_mac, gateway()}), why, "reply as the node");
        drops(arp({1, kForeignMac, a.v4, {}, gateway()}), why, "its own address at another MAC");
    } else {
        const auto nd = [&](const Ends &ends, std::uint8_t type, const std::optional<ip_addr> &target, Mac mac) {
            const std::uint8_t option = type == ND_NEIGHBOR_SOLICIT || type == ND_ROUTER_ADVERT ? 1 : 2;
            return frame(a.gateway_mac, a.mac, neighbour(ends, type, 0x60000000, target, option, mac));
        };
        const Ends own{a.link_local, gateway()};
        const reason why = REASON_DROP_ND_SPOOFED;
        drops(nd(own, ND_NEIGHBOR_ADVERT, b.v6, a.mac), why, "advertisement of another pod");
        drops(nd(own, ND_NEIGHBOR_ADVERT, gateway(), a.mac), why, "advertisement of the gateway");
        drops(nd(own, ND_NEIGHBOR_ADVERT, a.v6, kForeignMac), why, "its own address at another MAC");
        drops(nd(own, ND_NEIGHBOR_SOLICIT, gateway(), kForeignMac), why, "solicitation from another MAC");
        drops(nd({ip("::"), ip("ff02::1:ff00:3")}, ND_NEIGHBOR_SOLICIT, b.v6, a.mac), why,
              "claim to another's address");
        drops(nd(own, ND_ROUTER_ADVERT, {}, a.mac), why, "router advertisement");
        drops(nd(own, ND_REDIRECT, b.v6, a.mac), why, "redirect");
        drops(nd({b.v6, gateway()}, ND_NEIGHBOR_SOLICIT, gateway(), a.mac), REASON_DROP_SOURCE_ADDRESS,
              "solicitation from another pod's address");
    }
    const std::string known = learnt(a);
    for (const std::string &foreign : {to_string(b.v4) + " ", to_string(b.v6) + " ", to_string(gateway()) + " ",
                                       to_string(node_addr()) + " ", to_string(kForeignMac)})
        EXPECT_EQ(known.find(foreign), std::string::npos) << foreign << "in:\n" << known;
    EXPECT_NE(known.find(to_string(addr(a)) + " lladdr " + to_string(a.mac) + " PERMANENT"), std::string::npos)
        << known;
    // Nobody is worse off.
    EXPECT_TRUE(ping(b.ns(), addr(a)));
    EXPECT_TRUE(ping(lab_->node().ns(), addr(b)));
}

// Receivers strip priority tags (VLAN 0), however many: what they hide is checked, or dropped.
TEST_P(AntiSpoof, ATagHidesNothing) {
    const Pod a = add_pod({{"allowedEtherTypes", {"vlan", "any"}}});
    const Pod b = add_pod();
    const Bytes forged = frame(a.gateway_mac, a.mac, to_peer(b, foreign()));
    const Bytes direct = frame(b.mac, a.mac, to_peer(b, foreign()));
    for (const std::uint16_t type : {0x8100, 0x88a8}) {
        for (const Bytes &one : {forged, direct}) {
            expect_dropped(a, b, tagged(one, {{type, 0}}), REASON_DROP_SOURCE_ADDRESS, "a priority tag");
            for (const std::uint16_t inner : {0x8100, 0x88a8}) {
                expect_dropped(a, b, tagged(one, {{type, 0}, {inner, 0}}), REASON_DROP_VLAN, "two priority tags");
                expect_dropped(a, b, tagged(one, {{type, 0}, {inner, 7}}), REASON_DROP_VLAN, "a tag behind one");
            }
        }
        expect(a, b, tagged(frame(a.gateway_mac, a.mac, to_peer(b, addr(a))), {{type, 0}}), REASON_HOST_VLAN, true,
               "its own address behind a priority tag");
        expect(a, b, tagged(forged, {{type, 7}}), REASON_HOST_VLAN, false, "a VLAN that is allowed, and nobody's");
        expect_dropped(b, a, tagged(frame(b.gateway_mac, b.mac, to_peer(a, addr(b))), {{type, 7}}), REASON_DROP_VLAN,
                       "a VLAN that is not allowed");
    }
    const Bytes spoofed =
        ipv4() ? frame(kEveryone, a.mac, 0x0806, to_bytes(Arp{2, a.mac, b.v4, a.gateway_mac, gateway()}))
               : frame(a.gateway_mac, a.mac,
                       neighbour({a.link_local, gateway()}, ND_NEIGHBOR_ADVERT, 0x60000000, b.v6, 2, a.mac));
    expect_dropped(a, b, tagged(spoofed, {{0x8100, 0}}), ipv4() ? REASON_DROP_ARP_SPOOFED : REASON_DROP_ND_SPOOFED,
                   "neighbour messages behind a priority tag");
}

TEST_P(AntiSpoof, OtherEtherTypesAreDroppedUnlessAllowed) {
    const Pod a = add_pod();
    const Pod b = add_pod({{"allowedEtherTypes", {"llc", "lldp"}}});
    for (const int type : {60, 0x88cc, 0x8847, 0x8864}) {
        const Bytes one = frame(kEveryone, a.mac, static_cast<std::uint16_t>(type), pattern(60));
        expect_dropped(a, b, one, REASON_DROP_ETHER_TYPE, std::to_string(type));
        const bool allowed = type == 60 || type == 0x88cc;
        expect(b, a, frame(kEveryone, b.mac, static_cast<std::uint16_t>(type), pattern(60)),
               allowed ? REASON_HOST_NOT_IP : REASON_DROP_ETHER_TYPE, false, std::to_string(type) + " of b");
    }
}

// In two fragments, of which the first ends before the last extension header. bridge-nf-call-ip6tables puts them
// together, and receivers see none.
std::vector<Packet> hidden_in_fragments(Packet claim) {
    claim.extension = IPPROTO_FRAGMENT;
    Packet first = claim;
    first.options = {IPPROTO_DSTOPTS, 0, 0, 1, 0, 0, 0, 7, IPPROTO_DSTOPTS, 0, 1, 4, 0, 0, 0, 0};
    first.payload.clear();
    claim.options = {IPPROTO_DSTOPTS, 0, 0, 8, 0, 0, 0, 7, IPPROTO_ICMPV6, 0, 1, 4, 0, 0, 0, 0};
    return {first, claim};
}

// Behind a bridge frames reach the other ports by MAC: there a tag let a pod take over another's address.
TEST_P(AntiSpoof, BehindABridgeATagPoisonsNobody) {
    const auto chain = [&](const Json &keys = Json::object()) {
        Json bridge = {{"type", "bridge"}, {"bridge", "cni0"}, {"isGateway", true}};
        bridge["ipam"] = lab_->node().config().at("ipam");
        Json after = with_attach(keys);
        after["type"] = "podlane";
        after["bpffs"] = lab_->node().bpffs();
        return std::vector<Json>{bridge, after};
    };
    const Pod a = lab_->add_pod(chain());
    const Pod b = lab_->add_pod(chain());
    const Pod victim = lab_->add_pod(chain());
    ASSERT_TRUE(ping(b.ns(), addr(victim)));
    const Wire wire = a.wire();
    const std::vector<std::vector<Tag>> stacks = {{}, {{0x8100, 0}}, {{0x88a8, 0}}, {{0x8100, 0}, {0x8100, 0}}};
    std::uint64_t sent = 0;
    for (const auto &tags : stacks) {
        const Bytes claim =
            ipv4() ? frame(b.mac, a.mac, 0x0806, to_bytes(Arp{2, a.mac, victim.v4, b.mac, b.v4}))
                   : frame(b.mac, a.mac,
                           neighbour({victim.v6, b.v6}, ND_NEIGHBOR_ADVERT, 0x60000000, victim.v6, 2, a.mac));
        wire.send(tagged(claim, tags));
        ++sent;
    }
    if (!ipv4()) {
        lab_->node().run("sysctl -qw net.bridge.bridge-nf-call-ip6tables=1");
        for (const Packet &part :
             hidden_in_fragments(neighbour({a.v6, b.v6}, ND_NEIGHBOR_ADVERT, 0x60000000, victim.v6, 2, a.mac)))
            wire.send(frame(b.mac, a.mac, part));
        ++sent; // the first
    }
    const auto dropped = [&] {
        std::uint64_t sum = 0;
        for (const reason why :
             {REASON_DROP_ARP_SPOOFED, REASON_DROP_ND_SPOOFED, REASON_DROP_SOURCE_ADDRESS, REASON_DROP_VLAN})
            sum += lab_->count(a, why);
        return sum;
    };
    EXPECT_TRUE(wait_until([&] { return dropped() >= sent; }));
    const std::string known = must_run(b.ns(), words("ip neigh show " + to_string(addr(victim))));
    EXPECT_NE(known.find(to_string(victim.mac)), std::string::npos) << known;
}

INSTANTIATE_TEST_SUITE_P(All, AntiSpoof, lab_parameters(), lab_parameter_name);

constexpr Mac kGateway{0xee, 0xee, 0xee, 0xee, 0xee, 0xee};

class Gateway : public LabTest {
  protected:
    [[nodiscard]] ip_addr gateway() const { return ip(ipv4() ? "169.254.1.1" : "fe80::ecee:eeff:feee:eeee"); }
    [[nodiscard]] reason answered() const { return ipv4() ? REASON_GATEWAY_ARP : REASON_GATEWAY_ND; }
    // The query of a pod for the gateway's MAC; `target` in its place.
    [[nodiscard]] Bytes question(const Pod &pod, const ip_addr &target) const {
        if (ipv4())
            return frame(kEveryone, pod.mac, 0x0806, to_bytes(Arp{1, pod.mac, pod.v4, {}, target}));
        const Mac group{0x33, 0x33, 0xff, 0xee, 0xee, 0xee};
        return frame(group, pod.mac,
                     neighbour({pod.v6, ip("ff02::1:ffee:eeee")}, ND_NEIGHBOR_SOLICIT, 0, target, 1, pod.mac));
    }
    [[nodiscard]] bool is_answer(const Bytes &frame) const {
        if (ipv4())
            return ethertype(frame) == 0x0806 && frame.size() >= 42 && frame[21] == 2;
        return ethertype(frame) == 0x86dd && frame.size() >= 78 && frame[20] == IPPROTO_ICMPV6 &&
               frame[54] == ND_NEIGHBOR_ADVERT;
    }
};

TEST_P(Gateway, QuestionGetsExactlyOneAnswer) {
    const Pod a = add_pod();
    const Wire wire = a.wire();
    const auto before = lab_->count(a, answered());
    wire.send(question(a, gateway()));
    Bytes answer;
    const auto keep = [&](const Bytes &frame) {
        answer = frame;
        return is_answer(frame);
    };
    ASSERT_TRUE(wire.until(keep, patience()));
    const std::size_t mac_at = ipv4() ? 22 : 80; // sender's MAC; the link-layer address option
    ASSERT_GE(answer.size(), mac_at + 6);
    EXPECT_TRUE(std::equal(kGateway.begin(), kGateway.end(), answer.begin() + static_cast<std::ptrdiff_t>(mac_at)));
    EXPECT_TRUE(std::equal(a.mac.begin(), a.mac.end(), answer.begin()));
    EXPECT_FALSE(wire.until([this](const Bytes &frame) { return is_answer(frame); }, quiet())) << "a second answer";
    EXPECT_EQ(lab_->count(a, answered()), before + 1);
}

// The kernel itself has to take the answer for good.
TEST_P(Gateway, PodWithoutItsPermanentNeighbourStillGetsOut) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    (void)a.container->run("ip neigh del " + to_string(gateway()) + " dev eth0");
    ASSERT_EQ(a.container->run("ip neigh show " + to_string(gateway()) + " nud permanent"), "");
    EXPECT_TRUE(ping(a.ns(), addr(b)));
    EXPECT_TRUE(ping(a.ns(), node_addr()));
    EXPECT_GE(lab_->count(a, answered()), 1U);
    EXPECT_NE(a.container->run("ip neigh show " + to_string(gateway()) + " dev eth0").find("ee:ee:ee:ee:ee:ee"),
              std::string::npos);
}

TEST_P(Gateway, OthersAreNotAnsweredFor) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const Wire wire = a.wire();
    for (const ip_addr &target : {addr(b), outside_addr(), ip(ipv4() ? "169.254.1.2" : "fe80::1234")})
        wire.send(question(a, target));
    EXPECT_TRUE(wait_until([&] { return lab_->count(a, ipv4() ? REASON_HOST_ARP : REASON_HOST_ND) >= 3; }));
    EXPECT_FALSE(wire.until([this](const Bytes &frame) { return is_answer(frame); }, quiet()));
    EXPECT_EQ(lab_->count(a, answered()), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, Gateway, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
