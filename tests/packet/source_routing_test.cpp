// SPDX-License-Identifier: MIT
// Packets from the address of another interface of the container, and of networks with a way out of their own.
#include "maps/clock.hpp"
#include "tests/packet/sources.hpp"

namespace podlane::packet {
namespace {

TEST_F(Source, OfAPeerInterfaceIsHandledAsSentByIt) {
    for (const Case &given : std::vector<Case>{
             {"udp4", ip4("192.168.133.20", "203.0.113.9"), REASON_SENT_SIBLING},
             {"udp6", ip6("2001:db8:133::20", "2001:db8:9::9"), REASON_SENT_SIBLING},
             {"answer under way", from_pod() / Ipv4{ip("192.168.133.20"), peer4()} / Tcp{.flags = kAck},
              REASON_SENT_SIBLING},
             {"of nobody", ip4("192.168.133.21", "203.0.113.9"), REASON_DROP_SOURCE_ADDRESS},
             {"larger than the peer interface's MTU",
              from_pod() / Ipv4{ip("192.168.133.20"), peer4()} / Udp{} / bytes(1400 - 27), REASON_SENT_SIBLING},
         })
        expect(given);
    const Outcome sent = node().run(ip4("192.168.133.20", "203.0.113.9"));
    EXPECT_TRUE(std::ranges::equal(kHostMac, std::span(sent.frame).first(6)));
    EXPECT_TRUE(std::ranges::equal(kSecondMac, std::span(sent.frame).subspan(6, 6)));
}

TEST_F(Source, OfAnotherContainerIsDropped) {
    expect({"a neighbour's", ip4("192.0.2.20", "203.0.113.9"), REASON_DROP_SOURCE_ADDRESS});
    node().put_with(node().peer, INTERFACE_PEERS);
    expect({"from another container",
            Ethernet{kHostMac, kPeerMac} / Ipv4{ip("192.168.133.20"), pod4()} / Udp{},
            REASON_DROP_SOURCE_ADDRESS,
            {.ifindex = node().peer.ifindex}});
}

// The kernel's test runs give a packet a socket that is bound to its source. Unbound ones: netns/source_routing_test.
TEST_F(Source, ABoundSocketKeepsItsAddress) {
    const path_key asked{
        second_.ifindex, ip("192.168.133.20"), ip("203.0.113.9"), htons(40000), htons(53), IPPROTO_UDP, {}};
    const Bytes sent = ip4("192.0.2.10", "203.0.113.9");
    require(node().paths().update(asked, {0, PATH_UPLINK, lan_}));
    EXPECT_EQ(hex(expect({"query", sent, REASON_HOST_NOT_LOCAL}).frame), hex(sent));
}

// No key of one kind is found under one of another: an entry speaks for the address it stores, and slots have a table
// of their own.
TEST_F(Source, AnEntryIsOnlyForTheAddressItStores) {
    source_route route = *require(node().tables().source_routes.find({node().pod.ifindex, ip("2001:db8:133::20")}));
    for (const char *claimed : {"::100:0", "::100:0:100:0", "::200:0"}) {
        require(node().tables().source_routes.update({node().pod.ifindex, ip(claimed)}, route));
        expect({claimed, from_pod() / Ipv6{ip(claimed), ip("2001:db8:9::9")} / Udp{}, REASON_DROP_SOURCE_ADDRESS});
    }
}

// The host stack does not see the mark of what was handed over, and nothing is handed over twice, whatever the tables
// say: with anti-spoofing it ends there, without it goes on as the interface's own.
TEST_F(Source, IsHandedOverOnce) {
    const Bytes sent = ip4("192.168.133.20", "203.0.113.9");
    const Outcome once = node().run(sent);
    EXPECT_EQ(once.verdict, kRedirected);
    EXPECT_EQ(once.mark, PODLANE_MARK);
    const Outcome twice = node().run(sent, {.mark = once.mark});
    EXPECT_EQ(twice.counted, (std::vector<Counted>{{node().pod.ifindex, REASON_DROP_SOURCE_ADDRESS, 1, sent.size()}}));
    node().put_without(node().pod, INTERFACE_ANTI_SPOOF);
    const Outcome unchecked = node().run(sent, {.mark = once.mark});
    EXPECT_EQ(unchecked.verdict, kNext);
    EXPECT_EQ(unchecked.mark, 0U);
    const path_key asked{
        second_.ifindex, ip("192.168.133.20"), ip("203.0.113.9"), htons(40000), htons(53), IPPROTO_UDP, {}};
    require(node().paths().update(asked, {0, PATH_UPLINK, lan_}));
    EXPECT_EQ(node().run(ip4("192.0.2.10", "203.0.113.9"), {.mark = once.mark}).verdict, kNext) << "UDP of both";
}

// A bridge's MAC is not that of its port: what is for the bridge itself it routes, the rest it passes on.
TEST_F(Source, WhatIsForTheBridgeIsRouted) {
    constexpr Mac kBridgeMac{0x02, 0, 0, 0, 0, 0xb0};
    node().put_with(node().pod, INTERFACE_FAST_UPLINK);
    const address_key key{network_id(node().pod.network), pod4()};
    auto port = *require(node().tables().addresses.find(key));
    std::ranges::copy(kBridgeMac, port.host_mac);
    require(node().tables().addresses.update(key, port));
    const auto sent = [&](const Mac &to) { return Ethernet{to, kPodMac} / Ipv4{pod4(), ip("203.0.113.9")} / Udp{}; };
    expect({"for the bridge", sent(kBridgeMac), REASON_HOST_UNCONFIRMED});
    expect({"for a machine beyond", sent(kForeignMac), REASON_HOST_L2});
}

// With and without a default route of the node.
TEST_F(Source, ANetworkLeavesByItsEgressRoute) {
    const Ethernet mac = of_second();
    for (const Case &given : std::vector<Case>{
             {"neighbour4", mac / Ipv4{ip("192.168.133.20"), ip("192.168.133.9")} / Udp{}, REASON_SENT_WAY,
              from_second()},
             {"neighbour6", mac / Ipv6{ip("2001:db8:133::20"), ip("2001:db8:133::9")} / Udp{}, REASON_SENT_WAY,
              from_second()},
             {"beyond4", mac / Ipv4{ip("192.168.133.20"), ip("198.18.9.9")} / Tcp{.flags = kAck}, REASON_SENT_WAY,
              from_second()},
             {"beyond6", mac / Ipv6{ip("2001:db8:133::20"), ip("2001:db8:9::9")} / Udp{}, REASON_SENT_WAY,
              from_second()},
             {"fragment",
              mac / Ipv4{.source = ip("192.168.133.20"), .destination = ip("198.18.9.9"), .fragment = 100} / bytes(30),
              REASON_SENT_WAY, from_second()},
             {"first fragment",
              mac / Ipv4{.source = ip("192.168.133.20"), .destination = ip("198.18.9.9"), .fragment = 0x2000} / Udp{},
              REASON_SENT_WAY, from_second()},
             {"fragment to a pod of the node",
              mac / Ipv4{.source = ip("192.168.133.20"), .destination = ip("198.51.100.9"), .fragment = 100} /
                  bytes(30),
              REASON_HOST_NOT_LOCAL, from_second()},
             {"first fragment to a pod of the node",
              mac / Ipv4{.source = ip("192.168.133.20"), .destination = ip("198.51.100.9"), .fragment = 0x2000} / Udp{},
              REASON_HOST_NOT_LOCAL, from_second()},
             {"a pod of the node", mac / Ipv4{ip("192.168.133.20"), ip("198.51.100.9")} / Udp{}, REASON_HOST_NOT_LOCAL,
              from_second()},
             {"expiring", mac / Ipv4{.source = ip("192.168.133.20"), .destination = ip("198.18.9.8"), .ttl = 1} / Udp{},
              REASON_HOST_TTL, from_second()},
         })
        expect(given);
}

// A redirect compares nothing. The link's MTU counts, and not that of the pod's interface.
TEST_F(Source, NothingLargerThanTheLinkLeavesByTheEgressRoute) {
    const auto sent4 = [&](std::size_t size, std::uint16_t fragment = 0) {
        return of_second() /
               Ipv4{.source = ip("192.168.133.20"), .destination = ip("198.18.9.9"), .fragment = fragment} / Udp{} /
               bytes(size - 28);
    };
    const auto sent6 = [&](std::size_t size) {
        return of_second() / Ipv6{ip("2001:db8:133::20"), ip("2001:db8:9::9")} / Udp{} / bytes(size - 48);
    };
    for (const auto &[size, set] :
         {std::pair{1500U, "ip link set lan0 mtu 1500"}, std::pair{1300U, "ip link set lan0 mtu 1300"}}) {
        SCOPED_TRACE(size);
        shell(set);
        expect({"4", sent4(size), REASON_SENT_WAY, from_second()});
        expect({"6", sent6(size), REASON_SENT_WAY, from_second()});
        expect({"4 and one", sent4(size + 1), REASON_DROP_MALFORMED, from_second()});
        expect({"6 and one", sent6(size + 1), REASON_DROP_MALFORMED, from_second()});
        expect({"a fragment and one", sent4(size + 1, 0x2000), REASON_DROP_MALFORMED, from_second()});
    }
}

TEST_F(Source, TheNodeIsReachedOnTheNode) {
    shell("ip route add default via 203.0.113.1 dev caliCp; "
          "ip -6 addr add 2001:db8:cafe::2/64 dev caliCp nodad; "
          "ip -6 route add default via 2001:db8:cafe::1");
    // The kernel makes the address its own in a worker.
    ASSERT_TRUE(test::wait_until([] {
        return std::system("ip -6 route get 2001:db8:cafe::2 | grep -q ^local") == 0; // NOLINT(cert-env33-c)
    }));
    const Ethernet mac = of_second();
    expect({"the node", mac / Ipv4{ip("192.168.133.20"), ip("203.0.113.2")} / Udp{}, REASON_HOST_NOT_LOCAL,
            from_second()});
    expect({"its IPv6 address", mac / Ipv6{ip("2001:db8:133::20"), ip("2001:db8:cafe::2")} / Udp{},
            REASON_HOST_NOT_LOCAL, from_second()});
    expect(
        {"a neighbour", mac / Ipv4{ip("192.168.133.20"), ip("192.168.133.9")} / Udp{}, REASON_SENT_WAY, from_second()});
}

TEST_F(Source, NeighboursOfTheUplinkAreAnswered) {
    const Ethernet all{kBroadcastMac, kNeighbourMac};
    expect({"ARP", all / Arp{1, kNeighbourMac, ip("192.168.133.9"), ip("192.168.133.20")}, REASON_UPLINK_ARP, in()});
    expect({"ARP to another host",
            Ethernet{kHostMac, kNeighbourMac} / Arp{1, kNeighbourMac, ip("192.168.133.9"), ip("192.168.133.20")},
            REASON_HOST_NOT_IP, in()});
    expect({"ARP for another", all / Arp{1, kNeighbourMac, ip("192.168.133.9"), ip("192.168.133.21")},
            REASON_HOST_NOT_IP, in()});
    expect({"ARP for a pod without a way", all / Arp{1, kNeighbourMac, ip("192.0.2.9"), pod4()}, REASON_HOST_NOT_IP,
            in()});
    expect({"delivered", Ethernet{kUplinkMac, kNeighbourMac} / Ipv4{ip("192.168.133.9"), ip("192.168.133.20")} / Udp{},
            REASON_UPLINK_DELIVERED, in()});
    expect({"delivered under way",
            Ethernet{kUplinkMac, kNeighbourMac} / Ipv4{ip("192.168.133.9"), ip("192.168.133.20")} / Tcp{.flags = kAck},
            REASON_UPLINK_DELIVERED, in()});
}

// A packet's own route is no peer's, also if nothing checks its source.
TEST_F(Source, AnAddressOfItsOwnIsNotHandedOver) {
    second_.flags &= ~std::uint32_t{INTERFACE_ANTI_SPOOF};
    node().put(second_);
    put_egress_route(second_.addresses.at(0));
    expect(
        {"own", of_second() / Ipv4{ip("192.168.133.20"), ip("192.168.133.9")} / Udp{}, REASON_SENT_WAY, from_second()});
}

// A packet that is cut into segments on the way fits, however large it is.
TEST_F(Source, SegmentsAreHandedOver) {
    expect({"segments of the peer's MTU",
            from_pod() / Ipv4{ip("192.168.133.20"), peer4()} / Tcp{} / bytes(2600),
            REASON_SENT_SIBLING,
            {.gso_size = 1300, .gso_segments = 2}});
}

TEST_F(Source, TheHopLimitIsDecrementedOnTheEgressRoute) {
    const Ethernet mac = of_second();
    const Bytes sent4 = mac / Ipv4{ip("192.168.133.20"), ip("192.168.133.9"), 9} / Udp{};
    const Bytes sent6 = mac / Ipv6{ip("2001:db8:133::20"), ip("2001:db8:133::9"), 9} / Udp{};
    EXPECT_EQ(expect({"4", sent4, REASON_SENT_WAY, from_second()}).frame.at(14 + 8), 8);
    EXPECT_EQ(expect({"6", sent6, REASON_SENT_WAY, from_second()}).frame.at(14 + 7), 8);
}

// Without a gateway neighbours are reached and nobody else, wherever the prefix ends within a word.
TEST_F(Source, NeighboursAreThoseOfThePrefix) {
    const ip_addr own = ip("2001:db8:133::20");
    const auto to = [&](const char *addr) { return of_second() / Ipv6{own, ip(addr)} / Udp{}; };
    struct Neighbour {
        std::uint32_t bits;
        const char *inside, *outside;
    };
    for (const auto &[bits, inside, outside] :
         {Neighbour{32, "2001:db8:ffff::9", "2001:db9::9"}, Neighbour{33, "2001:db8:7fff::9", "2001:db8:8000::9"},
          Neighbour{64, "2001:db8:133:0:ffff::9", "2001:db8:133:1::9"},
          Neighbour{96, "2001:db8:133::ffff:9", "2001:db8:133::1:0:9"},
          Neighbour{127, "2001:db8:133::21", "2001:db8:133::22"}}) {
        SCOPED_TRACE(bits);
        source_route route = *require(node().tables().source_routes.find({second_.ifindex, own}));
        route.gateway = {};
        route.prefix_bits = bits;
        require(node().tables().source_routes.update({second_.ifindex, own}, route));
        expect({inside, to(inside), REASON_SENT_WAY, from_second()});
        expect({outside, to(outside), REASON_HOST_NO_ROUTE, from_second()});
    }
}

// The first fragment does not use the cached path of its flow: the others do not name it.
TEST_F(Source, FirstFragmentsUseNoCachedPath) {
    const ip_addr own = ip("192.168.133.20"), local = ip("198.51.100.9");
    const Bytes first = of_second() / Ipv4{.source = own, .destination = local, .fragment = 0x2000} / Udp{};
    const Bytes whole = of_second() / Ipv4{own, local} / Udp{};
    for (const auto &[via, why] : {std::pair{PATH_UPLINK, REASON_SENT_WAY}, std::pair{PATH_HOST, REASON_HOST_PATH}}) {
        const path_key flow{second_.ifindex, own, local, htons(40000), htons(53), IPPROTO_UDP, {}};
        require(node().paths().update(flow, {monotonic_ns(), static_cast<std::uint32_t>(via), lan_}));
        expect({"whole", whole, why, from_second()});
        expect({"first fragment", first, REASON_HOST_NOT_LOCAL, from_second()});
    }
}

// The destination is judged again if nothing has come for two seconds, and for each new connection.
TEST_F(Source, ADestinationIsJudgedAgain) {
    const ip_addr own = ip("192.168.133.20"), local = ip("198.51.100.9");
    const Bytes datagram = of_second() / Ipv4{own, local} / Udp{};
    const path_key flow{second_.ifindex, own, local, htons(40000), htons(53), IPPROTO_UDP, {}};
    require(node().paths().update(flow, {monotonic_ns() - 3 * kNsPerSecond, PATH_UPLINK, lan_}));
    for (int i = 0; i < 2; ++i)
        expect({"not judged for long", datagram, REASON_HOST_NOT_LOCAL, from_second()});
    const Bytes syn =
        of_second() / Ipv4{.source = own, .destination = local, .protocol = IPPROTO_TCP} / Tcp{.flags = kSyn};
    const Bytes ack =
        of_second() / Ipv4{.source = own, .destination = local, .protocol = IPPROTO_TCP} / Tcp{.flags = kAck};
    const path_key connection{second_.ifindex, own, local, htons(40000), htons(80), IPPROTO_TCP, {}};
    require(node().paths().update(connection, {monotonic_ns(), PATH_UPLINK, lan_}));
    expect({"judged just now", ack, REASON_SENT_WAY, from_second()});
    for (const Bytes &one : {syn, ack})
        expect({"a new connection", one, REASON_HOST_NOT_LOCAL, from_second()});
}

// By the uplink neither: all take one path, and its source is refused if that of the others is.
TEST_F(Source, ArrivingFragmentsUseNoCachedPath) {
    const ip_addr own = ip("192.168.133.20"), neighbour = ip("192.168.133.9");
    const Ethernet mac{kUplinkMac, kNeighbourMac};
    const auto first = [&](const ip_addr &of) {
        return mac / Ipv4{.source = of, .destination = own, .fragment = 0x2000} / Udp{};
    };
    const auto later = [&](const ip_addr &of) {
        return mac / Ipv4{.source = of, .destination = own, .fragment = 100} / bytes(40);
    };
    for (const path_via via : {PATH_UPLINK, PATH_HOST}) {
        const path_key flow{second_.ifindex, own, neighbour, htons(53), htons(40000), IPPROTO_UDP, {}};
        require(node().paths().update(flow, {0, static_cast<std::uint32_t>(via), lan_}));
        expect({"first", first(neighbour), REASON_UPLINK_DELIVERED, in()});
        expect({"later", later(neighbour), REASON_UPLINK_DELIVERED, in()});
    }
    node().forget_paths();
    const ip_addr of_a_pod = ip("198.51.100.9");
    expect({"first, refused", first(of_a_pod), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"later, refused", later(of_a_pod), REASON_HOST_SOURCE_LOCAL, in()});
    expect({"unknown", first(neighbour), REASON_UPLINK_DELIVERED, in()});
    EXPECT_EQ(require(node().paths().keys()).size(), 0U) << "a fragment names no flow";
}

// Rules by the type of service hold.
TEST_F(Source, RoutesAreQueriedWithTheTrafficClass) {
    shell("ip rule add tos 0x10 lookup 100; ip route add 198.18.9.0/24 dev caliA table 100; "
          "ip -6 rule add tos 0x10 lookup 100; ip -6 route add 2001:db8:9::/64 dev caliA table 100");
    const ip_addr own4 = ip("192.168.133.20"), own6 = ip("2001:db8:133::20");
    for (const auto &[traffic_class, why] : {std::pair{0, REASON_SENT_WAY}, std::pair{0x10, REASON_HOST_NOT_LOCAL}}) {
        const auto of = static_cast<std::uint8_t>(traffic_class);
        node().forget_paths();
        expect({"4", of_second() / Ipv4{.source = own4, .destination = ip("198.18.9.9"), .traffic_class = of} / Udp{},
                why, from_second()});
        expect({"6",
                of_second() / Ipv6{.source = own6, .destination = ip("2001:db8:9::9"), .traffic_class = of} / Udp{},
                why, from_second()});
    }
}

TEST_F(Source, AnUplinkOfAnotherNetworkIsNotUsed) {
    uplink entry{};
    entry.networks[0] = network_id("another");
    require(require(open_uplinks(node().root(), Access::read_write)).update(lan_, entry));
    expect({"by it", of_second() / Ipv4{ip("192.168.133.20"), ip("192.168.133.9")} / Udp{}, REASON_HOST_NO_UPLINK,
            from_second()});
}

// Of TCP and UDP conntrack says whether the host stack translates them.
TEST_F(Source, RepliesToTheHostStackTakeTheSlowPath) {
    const auto arriving = Ethernet{kUplinkMac, kNeighbourMac} / Ipv4{ip("192.168.133.9"), ip("192.168.133.20")};
    for (const auto &[protocol, local, peer, frame, why] :
         {std::tuple{IPPROTO_UDP, 53, 40000, arriving / Udp{}, REASON_UPLINK_DELIVERED},
          std::tuple{IPPROTO_ICMP, 7, 7, arriving / Icmp{.type = 0}, REASON_HOST_PATH}}) {
        const path_key flow{second_.ifindex,
                            ip("192.168.133.20"),
                            ip("192.168.133.9"),
                            htons(static_cast<std::uint16_t>(local)),
                            htons(static_cast<std::uint16_t>(peer)),
                            static_cast<std::uint8_t>(protocol),
                            {}};
        require(node().paths().update(flow, {0, PATH_HOST, 0}));
        expect({"reply", frame, why, in()});
    }
}

// An association that the host stack carries stays there, and one that an uplink carries stays on it, unless nothing
// has come for as long as conntrack keeps one: then an INIT may begin another.
TEST_F(Source, NoPacketOfSctpMovesAnAssociation) {
    constexpr std::array<std::uint8_t, 2> kChunks{0, 1}; // DATA, INIT
    const path_key flow{
        second_.ifindex, ip("192.168.133.20"), ip("192.168.133.9"), htons(5000), htons(5001), IPPROTO_SCTP, {}};
    const auto frame = [](const Frame &head, std::uint16_t from, std::uint16_t to, std::uint8_t chunk) {
        Bytes all = head / Udp{.source = from, .destination = to, .protocol = IPPROTO_SCTP} / bytes(16);
        all.at(all.size() - 12) = chunk;
        return all;
    };
    const auto arriving = Ethernet{kUplinkMac, kNeighbourMac} / Ipv4{ip("192.168.133.9"), ip("192.168.133.20")};
    const auto delivered = Ethernet{kSecondMac, kHostMac} / Ipv4{ip("192.168.133.9"), ip("192.168.133.20")};
    const auto sent = of_second() / Ipv4{ip("192.168.133.20"), ip("192.168.133.9")};
    for (const std::uint32_t via : {PATH_HOST, PATH_UPLINK}) {
        const bool by_host = via == PATH_HOST;
        const flow_path path{monotonic_ns(), via, by_host ? 0 : lan_};
        require(node().paths().update(flow, path));
        for (const std::uint8_t chunk : kChunks) {
            expect({"arriving", frame(arriving, 5001, 5000, chunk),
                    by_host ? REASON_HOST_PATH : REASON_UPLINK_DELIVERED, in()});
            expect({"delivered", frame(delivered, 5001, 5000, chunk), REASON_RECEIVED_HOST,
                    How{.program = PODLANE_PROGRAM_TO_POD, .ifindex = second_.ifindex}});
            const bool begins = chunk == kChunks[1]; // the pod's own association, by its own uplink
            expect({"sent", frame(sent, 5000, 5001, chunk), by_host && !begins ? REASON_HOST_PATH : REASON_SENT_WAY,
                    from_second()});
            EXPECT_EQ(require(node().paths().find(flow))->via, begins ? PATH_UPLINK : via);
            require(node().paths().update(flow, path));
        }
    }
    const auto via_after = [&](std::uint64_t silent_s, std::uint8_t chunk) {
        const std::uint64_t silent_ns = silent_s * 1'000'000'000;
        require(node().paths().update(flow, {monotonic_ns() - silent_ns, PATH_UPLINK, lan_}));
        (void)node().run(frame(delivered, 5001, 5000, chunk),
                         How{.program = PODLANE_PROGRAM_TO_POD, .ifindex = second_.ifindex});
        return require(node().paths().find(flow))->via;
    };
    EXPECT_EQ(via_after(40, kChunks[0]), PATH_UPLINK);
    EXPECT_EQ(via_after(40, kChunks[1]), PATH_UPLINK);
    if (monotonic_ns() < 250'000'000'000)
        GTEST_SKIP() << "the machine is up for less than four minutes";
    EXPECT_EQ(via_after(220, kChunks[0]), PATH_UPLINK);
    EXPECT_EQ(via_after(220, kChunks[1]), PATH_INIT);
}

TEST_F(Source, DestinationsThatNoRouterForwardsToAreLeftToTheHostStack) {
    for (const char *to : {"0.0.0.0", "127.0.0.1", "169.254.169.254", "224.0.0.5", "239.1.2.3", "255.255.255.255"})
        expect({to, of_second() / Ipv4{ip("192.168.133.20"), ip(to)} / Udp{}, REASON_HOST_SCOPE, from_second()});
    for (const char *to : {"::1", "fe80::9", "ff05::5"})
        expect({to, of_second() / Ipv6{ip("2001:db8:133::20"), ip(to)} / Udp{}, REASON_HOST_SCOPE, from_second()});
    for (const char *to : {"192.168.133.9", "240.10.0.5", "128.0.0.1"})
        expect({to, of_second() / Ipv4{ip("192.168.133.20"), ip(to)} / Udp{}, REASON_SENT_WAY, from_second()});
}

// Sources that the host stack would not accept on an egress route's uplink either. An error caches no path.
TEST_F(Source, RefusedSourcesAreLeftToTheHostStack) {
    shell("ip route add default via 203.0.113.1 dev caliCp; "
          "ip route add blackhole 198.18.4.0/24; "
          "ip route add unreachable 198.18.5.0/24; ip route add prohibit 198.18.6.0/24");
    const auto from = [&](const char *source) {
        return Ethernet{kUplinkMac, kNeighbourMac} / Ipv4{ip(source), ip("192.168.133.20")};
    };
    for (const char *source : {"203.0.113.2", "198.51.100.9", "198.18.4.9", "198.18.5.9", "198.18.6.9"})
        expect({source, from(source) / Udp{}, REASON_HOST_SOURCE_LOCAL, in()});
    expect({"an error",
            from("192.168.133.9") / Icmp{.type = 3} / Frame(Ipv4{ip("192.168.133.20"), ip("192.168.133.9")}.layer()) /
                Udp{},
            REASON_UPLINK_DELIVERED, in()});
    EXPECT_EQ(require(node().paths().keys()).size(), 0U);
    expect({"a neighbour's", from("192.168.133.9") / Udp{}, REASON_UPLINK_DELIVERED, in()});
    EXPECT_EQ(require(node().paths().keys()).size(), 1U);
}

} // namespace
} // namespace podlane::packet
