// SPDX-License-Identifier: MIT
// The path to other nodes and back: each packet's reason, counters and mark, on routes of a real namespace.
#include "tests/packet/cases.hpp"

#include <net/if.h>

namespace podlane::packet {
namespace {

constexpr Mac kUplinkMac{0x02, 0, 0, 0, 0, 0x0e};
constexpr Mac kRouterMac{0x02, 0, 0, 0, 0, 0xee};
constexpr const char *kNetwork = "net-one";
constexpr const char *kSetUp =
    "set -e; echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding;"
    "ip link add up0 mtu 1450 address 02:00:00:00:00:0e type veth peer name pup0;"
    "ip link add dark0 type veth peer name pdark0;"
    "for i in up0 pup0 dark0 pdark0 caliA caliAp; do ip link set $i up; done;"
    "ip addr add 203.0.113.2/24 dev up0; ip addr add 2001:db8:cafe::2/64 dev up0 nodad;"
    "ip addr add 198.51.100.2/24 dev dark0;"
    "ip route add 198.18.2.0/24 via 203.0.113.1; ip -6 route add 2001:db8:2::/64 via 2001:db8:cafe::1;"
    "ip route add 198.18.3.0/24 via 198.51.100.1; ip route add blackhole 198.18.4.0/24;"
    "ip route add 198.18.5.0/24 via 203.0.113.1 mtu lock 1300; ip route add 198.51.99.0/24 via 203.0.113.1";

// A node with an uplink up0, an interface dark0 that is none, and other nodes' pods behind both.
class Uplink : public PacketTest {
  protected:
    void prepare() override {
        node().asks = true;
        shell(kSetUp);
        uplink_ = if_nametoindex("up0");
        require(node().tables().counters.update(uplink_, counter_shares{}));
        uplinks_.emplace(require(open_uplinks(node().root(), Access::read_write)));
        serve(network_id(kNetwork));
        for (const char *range : {"198.18.0.0/15", "2001:db8:2::/47"})
            require(node().tables().cluster_cidrs.update(
                make_cluster_cidr_key(network_id(kNetwork), *parse_prefix(range)), 1));
        for (Pod *pod : {&node().pod, &node().peer}) {
            pod->flags |= INTERFACE_FAST_UPLINK;
            node().put(*pod);
        }
    }

    void serve(std::uint32_t network) {
        uplink entry{};
        entry.networks[0] = network;
        require(uplinks_->update(uplink_, entry));
    }
    static void resolve_next_hops() {
        shell("ip neigh replace 203.0.113.1 lladdr 02:00:00:00:00:ee dev up0 nud reachable;"
              "ip neigh replace 198.51.100.1 lladdr 02:00:00:00:00:ee dev dark0 nud reachable;"
              "ip neigh replace 2001:db8:cafe::1 lladdr 02:00:00:00:00:ee dev up0 nud reachable");
    }
    How in() const { return {.program = PODLANE_PROGRAM_FROM_UPLINK, .ifindex = uplink_}; }
    How out(std::uint32_t mark = 0) const {
        return {.program = PODLANE_PROGRAM_TO_UPLINK, .ifindex = uplink_, .mark = mark};
    }

    Outcome expect(const Case &given) { return expect_case(node(), given, node().pod.ifindex); }
    // Once conntrack has confirmed the packet's flow.
    Outcome expect_confirmed(const Case &given) {
        node().confirm(given.frame, given.run.ifindex);
        const Outcome outcome = expect(given);
        node().forget_flows();
        return outcome;
    }

    std::uint32_t uplink_ = 0;
    std::optional<Uplinks> uplinks_;
};

Ethernet arriving() { return {kUplinkMac, kRouterMac}; }
Ethernet leaving() { return {kRouterMac, kUplinkMac}; }
const ip_addr kRemote = ip("198.18.2.9");

Frame established(const char *to) { return from_pod() / Ipv4{pod4(), ip(to)} / Tcp{.flags = kAck}; }

TEST_F(Uplink, PodsReachOtherNodesOnceConfirmed) {
    resolve_next_hops();
    for (const Case &given : std::vector<Case>{
             {"udp4", ip4("192.0.2.10", "198.18.2.9"), REASON_SENT_UPLINK},
             {"tcp4", established("198.18.2.9"), REASON_SENT_UPLINK},
             {"udp6", ip6("2001:db8::10", "2001:db8:2::9"), REASON_SENT_UPLINK},
             {"outside the cluster", established("198.51.99.1"), REASON_SENT_UPLINK},
             {"no uplink", established("198.18.3.9"), REASON_HOST_NO_UPLINK},
             {"blackhole", established("198.18.4.9"), REASON_HOST_NO_ROUTE},
             {"no route", ip6("2001:db8::10", "2001:db8:3::9"), REASON_HOST_NO_ROUTE},
         })
        expect_confirmed(given);
    expect(
        {"expiring", from_pod() / Ipv4{.source = pod4(), .destination = kRemote, .ttl = 1} / Udp{}, REASON_HOST_TTL});
}

TEST_F(Uplink, TheHopLimitIsDecremented) {
    resolve_next_hops();
    const Bytes sent4 = from_pod() / Ipv4{.source = pod4(), .destination = kRemote, .ttl = 9} / Udp{};
    const Bytes sent6 = from_pod() / Ipv6{pod6(), ip("2001:db8:2::9"), 9} / Udp{};
    EXPECT_EQ(expect_confirmed({"4", sent4, REASON_SENT_UPLINK}).frame.at(14 + 8), 8);
    EXPECT_EQ(expect_confirmed({"6", sent6, REASON_SENT_UPLINK}).frame.at(14 + 7), 8);
}

// As the kernel's forwarding does with IPv4 (ip_forward_update_priority).
TEST_F(Uplink, PriorityIsThatOfTheTos) {
    resolve_next_hops();
    for (const auto &[tos, priority] : std::initializer_list<std::pair<std::uint8_t, std::uint32_t>>{
             {0, 0}, {0x04, 0}, {0x08, 2}, {0x10, 6}, {0x18, 4}, {0xb8, 4}, {0x13, 6}}) {
        Ipv4 header{pod4(), kRemote};
        header.traffic_class = tos;
        const Case given{"tos", from_pod() / header / Tcp{.flags = kAck}, REASON_SENT_UPLINK};
        EXPECT_EQ(expect_confirmed(given).priority, priority) << unsigned{tos};
    }
    EXPECT_EQ(expect_confirmed({"udp6", ip6("2001:db8::10", "2001:db8:2::9"), REASON_SENT_UPLINK}).priority, 0U);
}

// firstPacket: direct. A default route leads to everything, so it says nothing: the host may translate the address.
TEST_F(Uplink, FirstPacketsAreDirectToPodsWithARouteOfTheirOwn) {
    resolve_next_hops();
    for (const Case &given : std::vector<Case>{
             {"udp4", ip4("192.0.2.10", "198.18.2.9"), REASON_SENT_UPLINK},
             {"tcp4", from_pod() / Ipv4{pod4(), kRemote} / Tcp{}, REASON_SENT_UPLINK},
             {"tcp4 under way", established("198.18.2.9"), REASON_SENT_UPLINK},
             {"udp6", ip6("2001:db8::10", "2001:db8:2::9"), REASON_SENT_UPLINK},
             {"echo", from_pod() / Ipv4{pod4(), kRemote} / Icmp{}, REASON_HOST_UNCONFIRMED},
             {"outside the cluster", established("198.51.99.1"), REASON_HOST_UNCONFIRMED},
         })
        expect(given);
    shell("ip route add default via 203.0.113.9;"
          "ip neigh replace 203.0.113.9 lladdr 02:00:00:00:00:ee dev up0 nud reachable");
    node().forget_flows();
    expect({"by the default route", ip4("192.0.2.10", "198.18.255.1"), REASON_HOST_UNCONFIRMED});
    EXPECT_EQ(require(node().flows().keys()).size(), 0U);
    expect({"by its own", ip4("192.0.2.10", "198.18.2.9"), REASON_SENT_UPLINK});
    // Of several, an address that nobody has is sent by any: one in 256 is missed.
    shell("ip route replace default nexthop via 203.0.113.9 nexthop via 203.0.113.10;"
          "ip neigh replace 203.0.113.10 lladdr 02:00:00:00:00:ef dev up0 nud reachable");
    int missed = 0;
    for (int i = 1; i <= 64; ++i) {
        node().forget_flows();
        const std::string to = "198.18.255." + std::to_string(i);
        Outcome outcome;
        missed += node().try_run(ip4("192.0.2.10", to.c_str()), {}, outcome) && outcome.verdict == kRedirected ? 1 : 0;
    }
    EXPECT_LT(missed, 6);
    shell("ip route replace default dev dark0");
    node().forget_flows();
    expect({"by its own, beside a default route of another interface", ip4("192.0.2.10", "198.18.2.9"),
            REASON_SENT_UPLINK});
}

TEST_F(Uplink, AnIpv6PrefixIsNoClusterOfIpv4) {
    resolve_next_hops();
    const auto &clusters = node().tables().cluster_cidrs;
    require(clusters.remove(make_cluster_cidr_key(network_id(kNetwork), *parse_prefix("198.18.0.0/15"))));
    const Prefix all = *parse_prefix("::/0");
    require(clusters.update(make_cluster_cidr_key(network_id(kNetwork), all), make_prefix_value(all)));
    expect({"udp4", ip4("192.0.2.10", "198.18.2.9"), REASON_HOST_UNCONFIRMED});
    expect({"udp6", ip6("2001:db8::10", "2001:db8:2::9"), REASON_SENT_UPLINK});
}

// Nobody answers for the router's address: the host stack resolves it, and sends ICMP unreachable if that fails.
TEST_F(Uplink, AnUnresolvedNextHopIsTheHosts) {
    expect_confirmed({"unresolved", established("198.18.2.9"), REASON_HOST_NO_NEIGHBOUR});
    expect({"unresolved, first", ip4("192.0.2.10", "198.18.2.9"), REASON_HOST_NO_NEIGHBOUR});
    expect({"unresolved, SYN", from_pod() / Ipv4{pod4(), kRemote} / Tcp{}, REASON_HOST_NO_NEIGHBOUR});
    EXPECT_EQ(require(node().flows().keys()).size(), 0U);
    expect({"unresolved, SYN ACK", from_pod() / Ipv4{pod4(), kRemote} / Tcp{.flags = kSyn | kAck}, REASON_SENT_UPLINK});
    expect({"unresolved, under way", established("198.18.2.9"), REASON_SENT_UPLINK});
    resolve_next_hops();
    expect_confirmed({"resolved", established("198.18.2.9"), REASON_SENT_UPLINK});
}

TEST_F(Uplink, SizesAreThoseOfRouteAndDevice) {
    resolve_next_hops();
    const auto sized = [](const char *to, std::size_t ip_bytes) {
        return from_pod() / Ipv4{pod4(), ip(to)} / Udp{} / bytes(ip_bytes - 28);
    };
    for (const Case &given : std::vector<Case>{
             {"device, fits", sized("198.18.2.9", 1450), REASON_SENT_UPLINK},
             {"device, too large", sized("198.18.2.9", 1451), REASON_HOST_MTU},
             {"route, fits", sized("198.18.5.9", 1300), REASON_SENT_UPLINK},
             {"route, too large", sized("198.18.5.9", 1301), REASON_HOST_MTU},
             {"segments fit",
              established("198.18.2.9") / bytes(2600),
              REASON_SENT_UPLINK,
              {.gso_size = 1300, .gso_segments = 2}},
         }) {
        node().confirm(given.frame);
        expect(given);
    }
}

TEST_F(Uplink, WhatIsSentIsMarkedAndUnmarked) {
    const Bytes frame = ip4("192.0.2.10", "198.18.2.9");
    resolve_next_hops();
    node().confirm(frame);

    const Outcome sent = expect({"sent", frame, REASON_SENT_UPLINK, {.mark = 0x4000}});
    EXPECT_EQ(sent.mark, PODLANE_MARK | 0x4000U);

    const Outcome left = expect({"left", frame, REASON_UPLINK_SENT, out(sent.mark)});
    EXPECT_EQ(left.mark, 0x4000U);
}

TEST_F(Uplink, DeliversWhatIsConfirmed) {
    const Ipv4 to_pod{kRemote, pod4()};
    for (const Case &given : std::vector<Case>{
             {"udp4", arriving() / to_pod / Udp{}, REASON_UPLINK_DELIVERED, in()},
             {"udp6", arriving() / Ipv6{ip("2001:db8:2::9"), pod6()} / Udp{}, REASON_UPLINK_DELIVERED, in()},
             {"from outside", arriving() / Ipv4{ip("198.51.99.1"), pod4()} / Udp{}, REASON_UPLINK_DELIVERED, in()},
             {"tcp under way", arriving() / to_pod / Tcp{.flags = kAck}, REASON_UPLINK_DELIVERED, in()},
         })
        expect_confirmed(given);
    for (const Case &given : std::vector<Case>{
             {"for the node", arriving() / Ipv4{kRemote, ip("203.0.113.2")} / Udp{}, REASON_HOST_NOT_LOCAL, in()},
             {"for another MAC", Ethernet{kForeignMac, kRouterMac} / to_pod / Udp{}, REASON_HOST_L2, in()},
             {"a pod's source", arriving() / Ipv4{peer4(), pod4()} / Udp{}, REASON_HOST_SOURCE_LOCAL, in()},
             {"expiring", arriving() / Ipv4{.source = kRemote, .destination = pod4(), .ttl = 1} / Udp{},
              REASON_HOST_TTL, in()},
             {"ARP", arriving() / Arp{1, kRouterMac, ip("203.0.113.1"), ip("203.0.113.2")}, REASON_HOST_NOT_IP, in()},
         })
        expect(given);
}

// From whichever source, and whether the packet itself is delivered or not.
TEST_F(Uplink, NobodyWritesTheFlowCacheBySendingPackets) {
    const auto expect_all = [&](const char *source, reason why) {
        for (const Bytes &frame : {Bytes(arriving() / Ipv4{ip(source), pod4()} / Udp{53, 40000}),
                                   Bytes(arriving() / Ipv4{ip(source), pod4()} / Tcp{80, 40000, kSyn}),
                                   Bytes(arriving() / Ipv4{ip(source), pod4()} / Tcp{80, 40000, kAck})})
            expect({source, frame, why, in()});
        expect({source, arriving() / Ipv4{ip(source), pod4()} / Icmp{}, REASON_HOST_UNCONFIRMED, in()});
    };
    expect_all("198.18.2.9", REASON_UPLINK_DELIVERED);  // a pod's of another node
    expect_all("198.18.4.9", REASON_HOST_SOURCE_LOCAL); // of a blackhole
    expect_all("198.51.99.1", REASON_HOST_UNCONFIRMED); // from outside the cluster
    expect_all("203.0.113.2", REASON_HOST_UNCONFIRMED); // the node's own
    EXPECT_EQ(require(node().flows().keys()).size(), 0U);
    EXPECT_EQ(require(node().paths().keys()).size(), 0U);
}

// firstPacket: direct. From any router, but about nothing that the pod has not sent.
TEST_F(Uplink, ErrorsAboutWhatThePodSentAreDelivered) {
    resolve_next_hops();
    const auto expect_error = [&](const char *source, std::uint16_t port, reason why) {
        expect({source,
                arriving() / Ipv4{ip(source), pod4()} / Icmp{.type = 3} / Frame(Ipv4{pod4(), kRemote}.layer()) /
                    Udp{40000, port},
                why, in()});
    };
    expect_error("198.51.99.1", 53, REASON_HOST_UNCONFIRMED);
    expect({"sent", from_pod() / Ipv4{pod4(), kRemote} / Udp{40000, 53}, REASON_SENT_UPLINK});
    expect_error("198.51.99.1", 53, REASON_UPLINK_DELIVERED);
    expect_error("198.51.99.1", 54, REASON_HOST_UNCONFIRMED);
    expect_error("198.18.2.9", 53, REASON_UPLINK_DELIVERED);
    expect_error("198.18.4.9", 53, REASON_HOST_SOURCE_LOCAL); // of a blackhole
}

TEST_F(Uplink, UdpToContainersWithSeveralInterfacesIsTheHosts) {
    node().put_with(node().pod, INTERFACE_PEERS);
    const Ipv4 to_pod{kRemote, pod4()};
    expect({"udp4", arriving() / to_pod / Udp{}, REASON_HOST_UNCONFIRMED, in()});
    expect({"tcp4", arriving() / to_pod / Tcp{}, REASON_UPLINK_DELIVERED, in()});
}

// Sources that the host stack would not accept from the uplink either.
TEST_F(Uplink, MartianSourcesAreLeftToTheHostStack) {
    const auto from = [](const char *source) { return arriving() / Ipv4{ip(source), pod4()} / Udp{}; };
    shell("ip route add 198.18.6.0/24 dev caliA; ip addr add 198.18.7.1/32 dev up0");
    expect({"a node's of the cluster", from("198.18.2.9"), REASON_UPLINK_DELIVERED, in()});
    expect({"the node's own", from("198.18.7.1"), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"of a blackhole", from("198.18.4.9"), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"a pod's of another network", from("198.18.6.9"), REASON_HOST_SOURCE_LOCAL, in()});
    node().peer.addresses = {kRemote};
    node().put(node().peer);
    expect({"a pod's of this node", from("198.18.2.9"), REASON_HOST_SOURCE_LOCAL, in()});
}

TEST_F(Uplink, WhatTheHostSendsWritesNothing) {
    expect({"datagram", leaving() / Ipv4{pod4(), kRemote} / Udp{}, REASON_UPLINK_SENT_HOST, out()});
    expect({"TCP", leaving() / Ipv4{pod4(), ip("198.51.99.1")} / Tcp{}, REASON_UPLINK_SENT_HOST, out()});
    EXPECT_EQ(require(node().flows().keys()).size(), 0U);
    EXPECT_EQ(require(node().paths().keys()).size(), 0U);
}

// Marks of kube-proxy, portmap and Calico are foreign, and stay.
TEST_F(Uplink, ForeignMarksAreNotTakenForOurs) {
    for (std::uint32_t bit = 1; bit != 0; bit <<= 1U) {
        if (bit == PODLANE_MARK)
            continue;
        const Outcome left =
            expect({"left", leaving() / Ipv4{pod4(), kRemote} / Udp{}, REASON_UPLINK_SENT_HOST, out(bit)});
        EXPECT_EQ(left.mark, bit);
    }
}

TEST_F(Uplink, ServesItsNetworksOnly) {
    resolve_next_hops();
    serve(network_id("net-two"));
    expect_confirmed({"to it", ip4("192.0.2.10", "198.18.2.9"), REASON_HOST_NO_UPLINK});
    expect({"from it", arriving() / Ipv4{kRemote, pod4()} / Udp{}, REASON_HOST_NOT_LOCAL, in()});
}

TEST_F(Uplink, FastPathLocalUsesNoUplink) {
    node().put_without(node().pod, INTERFACE_FAST_UPLINK);
    expect({"to it", ip4("192.0.2.10", "198.18.2.9"), REASON_HOST_NOT_LOCAL});
    expect({"from it", arriving() / Ipv4{kRemote, pod4()} / Udp{}, REASON_HOST_FAST_PATH_OFF, in()});
}

TEST_F(Uplink, PacketsOfNoFlowTakeTheSlowPath) {
    expect({"TCP header cut short",
            from_pod() / Ipv4{.source = pod4(), .destination = kRemote, .protocol = 6} / bytes(13),
            REASON_HOST_NO_FLOW});
}

// The host stack sends it, whatever it is: nothing of it is dropped.
TEST_F(Uplink, MalformedPacketsOfTheHostStackLeave) {
    expect({"header of 16 bytes", leaving() / Ipv4{.source = pod4(), .destination = kRemote, .ihl = 4} / Udp{},
            REASON_UPLINK_SENT_HOST, out()});
}

// On an uplink without an address of its own requests have no sender, but announcements and replies do.
TEST_F(Uplink, ArpRequestsOfAnUnnumberedUplinkAreProbes) {
    const ip_addr own = ip("203.0.113.2"), other = ip("203.0.113.1");
    struct Sent {
        const char *name;
        Arp arp;
        bool is_probe;
    };
    for (const std::uint32_t flags : {0U, std::uint32_t{UPLINK_UNNUMBERED}}) {
        uplink entry{};
        entry.networks[0] = network_id(kNetwork);
        entry.flags = flags;
        require(uplinks_->update(uplink_, entry));
        for (const auto &[name, arp, is_probe] : {Sent{"request", {1, kUplinkMac, own, other}, true},
                                                  Sent{"announcement", {1, kUplinkMac, own, own}, false},
                                                  Sent{"reply", {2, kUplinkMac, own, other}, false}}) {
            const Bytes sent = Ethernet{kBroadcastMac, kUplinkMac} / arp;
            Bytes expected = sent;
            if (is_probe && flags != 0)
                std::ranges::fill(std::span(expected).subspan(14 + 14, 4), std::uint8_t{0});
            EXPECT_EQ(hex(expect({name, sent, REASON_UPLINK_SENT_HOST, out()}).frame), hex(expected)) << name;
        }
    }
}

} // namespace
} // namespace podlane::packet
