// SPDX-License-Identifier: MIT
// Isolated pods, and who is beyond the uplink: pods of other nodes, routers, and hosts that forge.
#include "tests/harness/repeat.hpp"
#include "tests/netns/isolation.hpp"

#include <atomic>

namespace podlane::test {
namespace {

using IsolationNodes = IsolationTest;
INSTANTIATE_TEST_SUITE_P(All, IsolationNodes, testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "V4" : "V6"); });

// A host on the uplink and a pod are in league: the host opens connections in the name of a pod that starts, and what
// the other pod sends would be the answers.
TEST_P(IsolationNodes, NobodyOnTheUplinkSpeaksForAPodThatStarts) {
    constexpr int kStarts = 8, kPorts = 256;
    on_node("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up0.rp_filter=0");
    const Pod accomplice = make();
    const ip_addr victim = ip(ipv4() ? "198.18.9.7" : "2001:db8:9::7");
    const Wire outside(outside_->ns(), "eth0"), wire = accomplice.wire();
    const Mac gateway = Wire(node_.ns(), "up0").mac();
    std::atomic<int> first_port = 20000;
    const Repeat league([&, i = 0]() mutable {
        const auto port = static_cast<std::uint16_t>(first_port + i++ % kPorts);
        outside.send(frame(gateway, outside.mac(), udp({victim, addr(accomplice), kPort, port})));
        wire.send(frame(accomplice.gateway_mac, accomplice.mac, udp({addr(accomplice), victim, port, kPort})));
    });
    std::size_t arrived = 0;
    for (int i = 0; i < kStarts; ++i) {
        first_port += kPorts; // the accomplice counts as having opened those of before
        const auto container = node_.container();
        Json keys = isolated("victims");
        keys["runtimeConfig"] = {{"ips", {"198.18.9.7", "2001:db8:9::7"}}};
        keys["capabilities"] = {{"ips", true}};
        const Fd socket = open_socket(container->ns(), Transport::udp, ipv4(), {{}, kPort});
        ASSERT_THAT(add(*container, keys), succeeds());
        const Pod pod = observe(node_, container);
        EXPECT_TRUE(wait_until([&] { return drops(pod) > 2 * kPorts; })) << "each port twice";
        arrived += datagrams_at(socket);
        ASSERT_THAT(del(*container, keys), succeeds());
    }
    EXPECT_EQ(arrived, 0U);
}

// As NobodyOnTheUplinkSpeaksForIt, if its network does not use the uplink, and for its allowed sources.
TEST_P(IsolationNodes, NobodyOnTheUplinkSpeaksForAPodOffTheFastPath) {
    on_node("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.up0.rp_filter=0");
    const Wire outside(outside_->ns(), "eth0");
    const Mac gateway = Wire(node_.ns(), "up0").mac();
    const ip_addr allowed = ip(ipv4() ? "192.0.2.7" : "2001:db8:7::7");
    std::uint16_t port = 40000;
    for (const char *path : {"local", "off"}) {
        const Json off = {{"fastPath", "off"}};
        Json keys = isolated("victims");
        keys.update({{"fastPath", path}, {"allowedSources", {"192.0.2.0/24", "2001:db8:7::/64"}}});
        const Pod accomplice = make(off);
        EXPECT_EQ(ctl_json("uplink list"), Json::array()) << "neither isolation nor fast path";
        const Pod victim = make(keys);
        EXPECT_EQ(ctl_json("uplink list").size(), 1U);
        on_node("ip route add " + to_string(allowed) + " dev " + victim.host_ifname + " via " +
                to_string(addr(victim)) + " onlink");
        victim.container->run("ip addr add " + to_string(allowed) + " dev eth0" + (ipv4() ? "" : " nodad"));
        const Wire wire = accomplice.wire();
        for (const ip_addr &own : {addr(victim), allowed}) {
            const Fd socket = open_socket(victim.ns(), Transport::udp, ipv4(), {{own}, kPort});
            const std::uint64_t before = drops(victim);
            EXPECT_TRUE(wait_until([&] {
                ++port; // the first packet says who has opened it
                outside.send(frame(gateway, outside.mac(), udp({own, addr(accomplice), kPort, port})));
                wire.send(frame(accomplice.gateway_mac, accomplice.mac, udp({addr(accomplice), own, port, kPort})));
                return drops(victim) > before + 20;
            })) << path;
            EXPECT_EQ(datagrams_at(socket), 0U) << path << to_string(own);
        }
        ASSERT_THAT(del(*victim.container, keys), succeeds());
        EXPECT_EQ(ctl_json("uplink list").size(), 1U) << "until the network's last pod goes";
        ASSERT_THAT(del(*accomplice.container, off), succeeds());
        EXPECT_EQ(ctl_json("uplink list"), Json::array());
    }
}

// Whoever has an address of another group's is not from outside.
TEST_P(IsolationNodes, PodsOfOtherNodesAreKnownByTheirAddresses) {
    (void)must_run(outside_->ns(), words(ipv4() ? "ip route add 198.18.9.0/24 via 203.0.113.2"
                                                : "ip -6 route add 2001:db8:9::/64 via 2001:db8:cafe::2"));
    const Json theirs = {"203.0.113.0/24", "2001:db8:cafe::/64"};
    const auto by_group = [](const Json &more) {
        Json keys = isolated("tenant-a");
        keys.update(more);
        return keys;
    };
    for (const auto &[keys, lets_in] : {
             std::pair{by_group({{"groupCIDRs", {{"tenant-a", theirs}}}}), true},
             std::pair{by_group({{"groupCIDRs", {{"tenant-b", theirs}}}}), false},
             std::pair{by_group({{"outside", "allow"}}), true},
             std::pair{by_group({{"outside", "allow"}, {"groupCIDRs", {{"tenant-b", theirs}}}}), false},
             std::pair{Json{{"isolation", "network"}, {"outside", "allow"}}, true},
             std::pair{Json{{"isolation", "network"}}, false},
             std::pair{Json{{"isolation", "network"}, {"clusterCIDRs", theirs}}, true},
         }) {
        SCOPED_TRACE(keys);
        const Pod pod = make(keys);
        const EchoServer server(pod.ns(), ipv4(), kPort);
        if (lets_in) {
            EXPECT_EQ(ask(outside_->ns(), Transport::tcp, {addr(pod), kPort}), 0);
        } else {
            expect_refused(outside_->ns(), addr(pod));
        }
    }
}

// Its end on the node takes packets from whoever reaches it: the rule that keeps pods away is the page's.
TEST_P(IsolationNodes, ARuleKeepsPodsFromSpeakingThroughATunnel) {
    Json keys = isolated("tenant-a");
    keys["groupCIDRs"] = {{"tenant-a", {"198.51.100.0/24", "2001:db8:51::/64"}}};
    const Pod a = make(keys), hostile = make(isolated("hostile"));
    on_node("ip link add vx0 type vxlan id 7 dstport 8472 local 203.0.113.2 dev up0");
    on_node("ip link set vx0 up");
    on_node("ip route add 198.51.100.0/24 dev vx0");
    on_node("ip route add 2001:db8:51::/64 dev vx0");
    const ip_addr member = ip(ipv4() ? "198.51.100.9" : "2001:db8:51::9");
    const Bytes inner = frame(Wire(node_.ns(), "vx0").mac(), hostile.mac, udp({member, addr(a), 40000, kPort}));
    const std::string header("\x08\0\0\0\0\0\x07\0", 8), tunnelled = header + std::string(inner.begin(), inner.end());
    const Fd at_a = open_socket(a.ns(), Transport::udp, ipv4(), {{}, kPort});
    const Fd socket = open_socket(hostile.ns(), Transport::udp, true);
    const auto send = [&] { return send_datagram(socket, {ip("203.0.113.2"), 8472}, tunnelled); };
    ASSERT_TRUE(wait_until([&] { return send() && datagrams_at(at_a) > 0; })) << "without the rule";

    const std::string page = read_file(variable("PODLANE_SOURCE_DIR") + "/docs/IDENTITY.md");
    const std::size_t rules = page.find("table inet tunnels");
    node_.run("nft -f -", page.substr(rules, page.find("```", rules) - rules));
    (void)datagrams_at(at_a);
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(send());
    const Fd from_node = open_socket(node_.ns(), Transport::udp, ipv4());
    EXPECT_TRUE(send_datagram(from_node, {addr(a), kPort}, "last"));
    EXPECT_EQ(receive(at_a).text, "last");
}

// Routers that may open no connection report what happened to one that another host was allowed to open.
TEST_P(IsolationNodes, ErrorsAboutAnAllowedConnectionArrive) {
    Json keys = isolated("tenant-a");
    keys["groupCIDRs"] = {{"tenant-a", {"203.0.113.1/32", "2001:db8:cafe::1/128"}}};
    const Pod a = make(keys);
    const std::string net = ipv4() ? "203.0.113." : "2001:db8:cafe::";
    const ip_addr remote = ip(net + "1"), router = ip(net + "77");
    (void)must_run(outside_->ns(), words(ipv4() ? "ip route add 198.18.9.0/24 via 203.0.113.2"
                                                : "ip -6 route add 2001:db8:9::/64 via 2001:db8:cafe::2"));
    const EchoServer server(a.ns(), ipv4(), kPort);
    const Fd socket = connected(outside_->ns(), Transport::tcp, {addr(a), kPort}, {{}, 40000});
    const Wire outside(outside_->ns(), "eth0"), uplink(node_.ns(), "up0"), pod = a.wire();
    const auto error_about = [&](std::uint16_t port) {
        Bytes quoted = to_bytes(tcp({addr(a), remote, kPort, port}, tcp_ack));
        quoted.insert(quoted.begin(), 4, 0);
        outside.send(frame(uplink.mac(), outside.mac(), icmp({router, addr(a)}, ipv4() ? 3 : 1, 0, quoted)));
    };
    const std::uint64_t before = drops(a);
    error_about(40001); // of no connection
    EXPECT_TRUE(wait_until([&] { return drops(a) == before + 1; }));
    error_about(40000);
    EXPECT_TRUE(pod.until([&](const Bytes &one) { return is_from(one, router); }, patience()));
    EXPECT_EQ(drops(a), before + 1);
    EXPECT_EQ(transfer(socket, 100), 0);
}

} // namespace
} // namespace podlane::test
