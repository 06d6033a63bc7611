// What a pod may not send in another's name: it reaches nobody, changes no neighbour table, and is counted by name.
#include "tests/netns/lab.hpp"

#include <netinet/icmp6.h>

namespace podlane::test {
namespace {

constexpr Mac kStranger{0x02, 0x00, 0x5e, 0x00, 0x53, 0x01};
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
        EXPECT_EQ(receiver.until(is_it, arrives ? patience() : quiet()).has_value(), arrives) << what;
    }
    void expect_dropped(const Pod &from, const Pod &to, const Bytes &frame, reason why, const std::string &what) {
        expect(from, to, frame, why, false, what);
    }
    // What the node learnt on the host end of `pod`.
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
    for (const Mac &mac : {kStranger, b.mac, a.gateway_mac})
        expect_dropped(a, b, frame(a.gateway_mac, mac, to_peer(b, addr(a))), REASON_DROP_SOURCE_MAC, to_string(mac));
}

TEST_P(AntiSpoof, AllowedSourcesPass) {
    const Pod a = add_pod({{"allowedSources", {"198.51.100.0/24", "2001:db8:77::/64"}}});
    const Pod b = add_pod();
    expect(a, b, frame(a.gateway_mac, a.mac, to_peer(b, foreign())), REASON_SENT_DIRECT, true, "an allowed source");
    const ip_addr outside = ip(ipv4() ? "198.51.101.9" : "2001:db8:78::9");
    expect_dropped(a, b, frame(a.gateway_mac, a.mac, to_peer(b, outside)), REASON_DROP_SOURCE_ADDRESS, "another");
    // They are this pod's alone.
    expect_dropped(b, a, frame(b.gateway_mac, b.mac, to_peer(a, foreign())), REASON_DROP_SOURCE_ADDRESS, "b's");
}

TEST_P(AntiSpoof, SwitchedOffEverySourceThatIsForwardedPasses) {
    const Pod a = add_pod({{"antiSpoof", false}});
    const Pod b = add_pod();
    expect(a, b, frame(a.gateway_mac, kStranger, to_peer(b, foreign())), REASON_SENT_DIRECT, true, "any source");
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
        drops(arp({1, kStranger, a.v4, {}, gateway()}), why, "its own address at another MAC");
    } else {
        const auto nd = [&](const Ends &ends, std::uint8_t type, const std::optional<ip_addr> &target, Mac mac) {
            const std::uint8_t option = type == ND_NEIGHBOR_SOLICIT || type == ND_ROUTER_ADVERT ? 1 : 2;
            return frame(a.gateway_mac, a.mac, neighbour(ends, type, 0x60000000, target, option, mac));
        };
        const Ends own{a.link_local, gateway()};
        const reason why = REASON_DROP_ND_SPOOFED;
        drops(nd(own, ND_NEIGHBOR_ADVERT, b.v6, a.mac), why, "advertisement of another pod");
        drops(nd(own, ND_NEIGHBOR_ADVERT, gateway(), a.mac), why, "advertisement of the gateway");
        drops(nd(own, ND_NEIGHBOR_ADVERT, a.v6, kStranger), why, "its own address at another MAC");
        drops(nd(own, ND_NEIGHBOR_SOLICIT, gateway(), kStranger), why, "solicitation from another MAC");
        drops(nd({ip("::"), ip("ff02::1:ff00:3")}, ND_NEIGHBOR_SOLICIT, b.v6, a.mac), why,
              "claim to another's address");
        drops(nd(own, ND_ROUTER_ADVERT, {}, a.mac), why, "router advertisement");
        drops(nd(own, ND_REDIRECT, b.v6, a.mac), why, "redirect");
        drops(nd({b.v6, gateway()}, ND_NEIGHBOR_SOLICIT, gateway(), a.mac), REASON_DROP_SOURCE_ADDRESS,
              "solicitation from another pod's address");
    }
    const std::string known = learnt(a);
    for (const std::string &foreign : {to_string(b.v4) + " ", to_string(b.v6) + " ", to_string(gateway()) + " ",
                                       to_string(node_addr()) + " ", to_string(kStranger)})
        EXPECT_EQ(known.find(foreign), std::string::npos) << foreign << "in:\n" << known;
    EXPECT_NE(known.find(to_string(addr(a)) + " lladdr " + to_string(a.mac) + " PERMANENT"), std::string::npos)
        << known;
    // Nobody is worse off.
    EXPECT_TRUE(ping(b.ns(), addr(a)));
    EXPECT_TRUE(ping(lab_->node().ns(), addr(b)));
}

INSTANTIATE_TEST_SUITE_P(All, AntiSpoof, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
