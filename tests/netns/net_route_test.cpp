// SPDX-License-Identifier: MIT
// Addresses, neighbours and routes: what is put is found, what exists or is missing is a value.
#include "loader/net/wait.hpp"
#include "net_fixture.hpp"

#include <linux/rtnetlink.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace podlane::net::test {
namespace {

constexpr Mac kGatewayMac{0xee, 0xee, 0xee, 0xee, 0xee, 0xee};
constexpr const char *kGateway4 = "169.254.1.1";
constexpr const char *kGateway6 = "fe80::ecee:eeff:feee:eeee";

Address address(const char *text, std::uint32_t flags = 0) { return {prefix(text), flags, kScopeGlobal}; }

RouteSpec route(const char *destination, std::uint32_t ifindex) {
    RouteSpec spec;
    spec.destination = prefix(destination);
    spec.ifindex = ifindex;
    return spec;
}

RouteSpec onlink(const char *destination, const char *gateway, std::uint32_t ifindex) {
    RouteSpec spec = route(destination, ifindex);
    spec.gateway = ip(gateway);
    spec.onlink = true;
    return spec;
}

TEST_F(NetTest, AddressesAreAddedOnce) {
    const std::uint32_t eth0 = veth_up().pod_ifindex;
    for (const char *text : {"192.0.2.5/32", "2001:db8::5/128", "198.51.100.7/24"}) {
        EXPECT_TRUE(require(add_address(pod_, eth0, address(text, kNoDad))));
        EXPECT_FALSE(require(add_address(pod_, eth0, address(text, kNoDad)))) << text << " exists";
    }
    const auto there = require(list_addresses(pod_, eth0));
    ASSERT_EQ(there.size(), 3U);
    EXPECT_EQ(there[0].prefix, prefix("192.0.2.5/32"));
    EXPECT_EQ(there[1].prefix, prefix("198.51.100.7/24"));
    EXPECT_EQ(there[2].prefix, prefix("2001:db8::5/128"));
    EXPECT_TRUE(require(list_addresses(pod_, 4711)).empty());
}

TEST_F(NetTest, NoDadAddressIsUsableAtOnce) {
    const std::uint32_t eth0 = veth_up().pod_ifindex;
    require(add_address(pod_, eth0, address("2001:db8::5/128", kNoDad)));
    require(add_address(pod_, eth0, address("2001:db8::6/128")));
    const auto there = require(list_addresses(pod_, eth0));
    ASSERT_EQ(there.size(), 2U);
    for (const Address &each : there) {
        const bool waits = each.prefix == prefix("2001:db8::6/128");
        EXPECT_EQ((each.flags & IFA_F_TENTATIVE) != 0, waits) << to_string(each.prefix);
    }
}

TEST_F(NetTest, NoPrefixRouteMeansNone) {
    const std::uint32_t eth0 = veth_up().pod_ifindex;
    require(add_address(pod_, eth0, address("192.0.2.5/24", kNoPrefixRoute)));
    require(add_address(pod_, eth0, address("2001:db8::5/64", kNoDad | kNoPrefixRoute)));
    EXPECT_TRUE(require(list_routes(pod_, eth0, Family::ipv4)).empty());
    EXPECT_TRUE(require(list_routes(pod_, eth0, Family::ipv6)).empty());
    require(add_address(pod_, eth0, address("198.51.100.5/24")));
    EXPECT_EQ(require(list_routes(pod_, eth0, Family::ipv4)).size(), 1U);
}

TEST_F(NetTest, AddressErrorsNameTheAddress) {
    EXPECT_THAT(add_address(pod_, 4711, address("192.0.2.5/32")), is_error(ErrorCode::missing, {"192.0.2.5/32"}));
}

TEST_F(NetTest, NeighboursAreInsertedAndReplaced) {
    const std::uint32_t eth0 = veth_up().pod_ifindex;
    for (const char *gateway : {kGateway4, kGateway6}) {
        require(put_neighbour(pod_, eth0, ip(gateway), kPodMac));
        require(put_neighbour(pod_, eth0, ip(gateway), kGatewayMac));
        const auto found = require(find_neighbour(pod_, eth0, ip(gateway)));
        ASSERT_TRUE(found) << gateway;
        EXPECT_EQ(found->mac, kGatewayMac);
        EXPECT_TRUE(found->permanent);
    }
    EXPECT_FALSE(require(find_neighbour(pod_, 1, ip(kGateway4))));
    EXPECT_FALSE(require(find_neighbour(pod_, 4711, ip(kGateway4))));
    EXPECT_EQ(put_neighbour(pod_, 4711, ip(kGateway4), kPodMac).error().code, ErrorCode::missing);
}

TEST_F(NetTest, OnlinkDefaultRoutesLeadToTheGateway) {
    const std::uint32_t eth0 = addressed_eth0();
    for (const auto &[everything, gateway] : {std::pair{"0.0.0.0/0", kGateway4}, std::pair{"::/0", kGateway6}}) {
        const RouteSpec wanted = onlink(everything, gateway, eth0);
        require(put_neighbour(pod_, eth0, ip(gateway), kGatewayMac));
        EXPECT_TRUE(require(add_route(pod_, wanted)));
        EXPECT_FALSE(require(add_route(pod_, wanted))) << everything << " exists";
        const auto found = require(find_route(pod_, wanted));
        ASSERT_TRUE(found) << everything;
        EXPECT_EQ(to_string(*found->gateway), to_string(ip(gateway)));
        EXPECT_TRUE(found->onlink);
        EXPECT_EQ(found->protocol, RTPROT_STATIC);

        const auto by_default = require(default_route(pod_, is_ipv4(ip(gateway)) ? Family::ipv4 : Family::ipv6));
        ASSERT_TRUE(by_default) << everything;
        EXPECT_EQ(by_default->ifindex, eth0);
        EXPECT_EQ(to_string(*by_default->gateway), to_string(ip(gateway)));

        EXPECT_TRUE(require(remove_route(pod_, wanted)));
        EXPECT_FALSE(require(remove_route(pod_, wanted)));
        EXPECT_FALSE(require(find_route(pod_, wanted)));
    }
}

TEST_F(NetTest, HostRoutesLeadToTheirPod) {
    const std::uint32_t cali0 = veth_up().host.ifindex;
    for (const char *pod : {"192.0.2.5/32", "2001:db8::5/128"}) {
        const RouteSpec wanted = route(pod, cali0);
        EXPECT_TRUE(require(add_route(node_, wanted)));
        EXPECT_FALSE(require(add_route(node_, wanted)));
        const auto found = require(find_route(node_, wanted));
        ASSERT_TRUE(found) << pod;
        EXPECT_EQ(found->ifindex, cali0);
        EXPECT_FALSE(found->gateway);
        EXPECT_FALSE(require(find_route(node_, route(pod, 1)))) << "not by another interface";
        EXPECT_TRUE(require(remove_route(node_, wanted)));
        EXPECT_FALSE(require(find_route(node_, wanted)));
    }
    EXPECT_FALSE(require(remove_route(node_, route("192.0.2.5/32", 4711))));
    EXPECT_TRUE(require(list_routes(node_, 4711, Family::ipv4)).empty());
    EXPECT_TRUE(require(list_routes(node_, 4711, Family::ipv6)).empty());
}

TEST_F(NetTest, ARouteHiddenByABetterOneIsFound) {
    const Veth made = veth_up();
    for (const char *pod : {"192.0.2.5/32", "2001:db8::5/128"}) {
        RouteSpec used = route(pod, made.host.ifindex);
        used.priority = 10;
        RouteSpec hidden = used;
        hidden.priority = 20;
        require(add_route(node_, used));
        EXPECT_FALSE(require(find_route(node_, hidden)));
        EXPECT_TRUE(require(add_route(node_, hidden)));
        EXPECT_EQ(require(find_route(node_, hidden))->priority, 20U);
        EXPECT_EQ(require(find_route(node_, used))->priority, 10U);
    }
}

TEST_F(NetTest, RoutesKeepEverythingTheyWereGiven) {
    const std::uint32_t eth0 = addressed_eth0();
    for (const auto &[destination, gateway, source] : {std::tuple{"198.51.100.0/24", kGateway4, "192.0.2.5"},
                                                       std::tuple{"2001:db8:1::/48", kGateway6, "2001:db8::5"}}) {
        RouteSpec wanted = onlink(destination, gateway, eth0);
        wanted.table = 1000; // does not fit the header's byte
        wanted.priority = 77;
        wanted.mtu = 1280;
        wanted.advmss = 1200;
        wanted.preferred_source = ip(source);
        wanted.protocol = 99;
        EXPECT_TRUE(require(add_route(pod_, wanted)));
        const auto found = require(find_route(pod_, wanted));
        ASSERT_TRUE(found) << destination;
        EXPECT_EQ(found->table, 1000U);
        EXPECT_EQ(found->priority, 77U);
        EXPECT_EQ(found->mtu, 1280U);
        EXPECT_EQ(found->advmss, 1200U);
        EXPECT_EQ(to_string(*found->preferred_source), to_string(ip(source)));
        EXPECT_EQ(found->protocol, 99);

        RouteSpec other_priority = wanted;
        other_priority.priority = 78;
        EXPECT_FALSE(require(find_route(pod_, other_priority)));
        RouteSpec other_table = wanted;
        other_table.table = std::nullopt;
        EXPECT_FALSE(require(find_route(pod_, other_table)));
        const Family family = is_ipv4(ip(gateway)) ? Family::ipv4 : Family::ipv6;
        const auto of_any_table = require(list_routes(pod_, eth0, family, kAllTables));
        EXPECT_TRUE(std::ranges::any_of(of_any_table, [](const RouteSpec &one) { return one.table == 1000U; }));
        EXPECT_TRUE(require(list_routes(pod_, eth0, family, 2000)).empty()) << "there is no such table";
        EXPECT_TRUE(require(remove_route(pod_, wanted)));
    }
}

TEST_F(NetTest, Ipv4GoesByAnIpv6Gateway) {
    const std::uint32_t eth0 = veth_up().pod_ifindex;
    const RouteSpec wanted = onlink("0.0.0.0/0", kGateway6, eth0);
    EXPECT_TRUE(require(add_route(pod_, wanted)));
    EXPECT_EQ(to_string(*require(find_route(pod_, wanted))->gateway), to_string(ip(kGateway6)));
    EXPECT_EQ(to_string(*require(default_route(pod_, Family::ipv4))->gateway), to_string(ip(kGateway6)));
    EXPECT_TRUE(require(remove_route(pod_, wanted)));
}

TEST_F(NetTest, RouteErrorsCarryTheObjectAndTheKernelsWords) {
    RouteSpec unreachable = onlink("0.0.0.0/0", kGateway4, veth_up().pod_ifindex);
    unreachable.onlink = false;
    EXPECT_THAT(add_route(pod_, unreachable), is_error({"0.0.0.0/0 via 169.254.1.1", "Nexthop has invalid gateway"}));
}

TEST_F(NetTest, DefaultRouteIsTheOneOfTheLowestMetric) {
    const std::uint32_t eth0 = veth_up().pod_ifindex;
    require(set_loopback_up(pod_)); // without any local address no gateway is valid
    for (const Family family : {Family::ipv4, Family::ipv6}) {
        const bool v4 = family == Family::ipv4;
        const char *everything = v4 ? "0.0.0.0/0" : "::/0";
        EXPECT_FALSE(require(default_route(pod_, family)));
        RouteSpec better = onlink(everything, v4 ? "203.0.113.1" : "fe80::1", eth0);
        RouteSpec worse = onlink(everything, v4 ? "203.0.113.2" : "fe80::2", eth0);
        better.priority = 100;
        worse.priority = 200;
        require(add_route(pod_, worse));
        require(add_route(pod_, better));
        EXPECT_EQ(to_string(*require(default_route(pod_, family))->gateway), to_string(*better.gateway));

        // A filter of reserved addresses, a halved default: the lookup ends elsewhere, the default stays the same.
        RouteSpec filter = route(v4 ? "240.0.0.0/4" : "4000::/4", 0);
        filter.type = RTN_BLACKHOLE;
        const RouteSpec half = onlink(v4 ? "128.0.0.0/1" : "4000::/2", v4 ? "203.0.113.3" : "fe80::3", eth0);
        for (const RouteSpec &hiding : {filter, half}) {
            EXPECT_TRUE(require(add_route(pod_, hiding)));
            const auto found = require(default_route(pod_, family));
            ASSERT_TRUE(found) << to_string(hiding.destination);
            EXPECT_EQ(to_string(*found->gateway), to_string(*better.gateway));
            EXPECT_TRUE(require(remove_route(pod_, hiding)));
        }
    }
}

TEST_F(NetTest, FindingOneAmongManyIsLeftToTheKernel) {
    const std::uint32_t cali0 = veth_up().host.ifindex;
    require(set_loopback_up(node_));
    for (std::uint32_t i = 0; i < 2000; ++i) {
        RouteSpec other = route("0.0.0.0/32", 1);
        other.destination.addr = ipv4_from_host_order(0xc6120000U + i); // 198.18.0.0/15
        ASSERT_TRUE(require(add_route(node_, other)));
    }
    require(add_route(node_, route("192.0.2.5/32", cali0)));
    EXPECT_EQ(require(list_routes(node_, cali0, Family::ipv4)).size(), 1U);
    EXPECT_EQ(require(list_routes(node_, 1, Family::ipv4)).size(), 2000U) << "a dump of many pieces is read to its end";
    EXPECT_TRUE(require(find_route(node_, route("192.0.2.5/32", cali0))));
}

TEST_F(NetTest, WaitingForARouteEndsWhenItComes) {
    using std::chrono::seconds, std::chrono::milliseconds;
    const std::uint32_t eth0 = veth_up().pod_ifindex;
    for (const char *destination : {"192.0.2.5/32", "2001:db8::5/128"}) {
        EXPECT_FALSE(require(wait_for_route(pod_, route(destination, eth0), milliseconds(1))));
        std::thread later([&] {
            Netlink own = require(Netlink::open_in(pod_ns_));
            EXPECT_TRUE(require(add_route(own, route("198.51.100.0/24", eth0)))) << "wakes, and is another one";
            std::this_thread::sleep_for(milliseconds(20));
            require(remove_route(own, route("198.51.100.0/24", eth0)));
            EXPECT_TRUE(require(add_route(own, route(destination, eth0))));
        });
        EXPECT_TRUE(require(wait_for_route(pod_, route(destination, eth0), seconds(60)))) << destination;
        later.join();
        EXPECT_TRUE(require(wait_for_route(pod_, route(destination, eth0), milliseconds(0)))) << "is there already";
        EXPECT_EQ(require(list_routes(pod_, eth0, Family::ipv4)).size(), 1U) << "the socket is used as before";
    }
}

} // namespace
} // namespace podlane::net::test
