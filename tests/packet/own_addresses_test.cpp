// SPDX-License-Identifier: MIT
// The node's own addresses on a node without a default route.
#include "loader/own_addresses.hpp"
#include "tests/packet/sources.hpp"

namespace podlane::packet {
namespace {

// An address that the kernel does not forward to is the node's own or unknown: the rules distinguish them.
TEST_F(Source, WithoutADefaultRouteOwnAddressesAreKnown) {
    shell("ip -6 addr add 2001:db8:cafe::2/64 dev caliCp nodad");
    ASSERT_TRUE(test::wait_until([] {
        return std::system("ip -6 route get 2001:db8:cafe::2 | grep -q ^local") == 0; // NOLINT(cert-env33-c)
    }));
    EXPECT_EQ(require(find_own_address_rules()), OwnAddressRules::none);
    for (int twice = 0; twice < 2; ++twice)
        require(put_own_address_rules());
    EXPECT_EQ(require(find_own_address_rules()), OwnAddressRules::all);
    const Ethernet mac = of_second();
    const Ethernet arriving{kUplinkMac, kNeighbourMac};
    const ip_addr second4 = second_.addresses.at(0), second6 = second_.addresses.at(1);
    for (const Case &given : std::vector<Case>{
             {"to the node", mac / Ipv4{second4, ip("203.0.113.2")} / Udp{}, REASON_HOST_NOT_LOCAL, from_second()},
             {"to its IPv6 address", mac / Ipv6{second6, ip("2001:db8:cafe::2")} / Udp{}, REASON_HOST_NOT_LOCAL,
              from_second()},
             {"beyond", mac / Ipv4{second4, ip("198.18.9.9")} / Udp{}, REASON_SENT_WAY, from_second()},
             {"beyond by IPv6", mac / Ipv6{second6, ip("2001:db8:9::9")} / Udp{}, REASON_SENT_WAY, from_second()},
             {"as the node", arriving / Ipv4{ip("203.0.113.2"), second4} / Udp{}, REASON_HOST_SOURCE_LOCAL, in()},
             {"as its IPv6 address", arriving / Ipv6{ip("2001:db8:cafe::2"), second6} / Udp{}, REASON_HOST_SOURCE_LOCAL,
              in()},
             {"from beyond", arriving / Ipv4{ip("198.18.9.8"), second4} / Udp{}, REASON_UPLINK_DELIVERED, in()},
             {"from beyond by IPv6", arriving / Ipv6{ip("2001:db8:9::8"), second6} / Udp{}, REASON_UPLINK_DELIVERED,
              in()},
         })
        expect(given);
    // A route may discard the address that nobody has, as on nodes that speak BGP.
    shell("ip route add blackhole 240.0.0.0/4");
    expect(
        {"beyond, beside a blackhole", mac / Ipv4{second4, ip("198.18.9.7")} / Udp{}, REASON_SENT_WAY, from_second()});
    require(remove_own_address_rules());
    EXPECT_EQ(require(find_own_address_rules()), OwnAddressRules::none);
    EXPECT_EQ(
        std::system("ip rule | grep -q 'sport 20556' || ip -6 route show table all | grep -q 1347158016"), // NOLINT
        256);
}

} // namespace
} // namespace podlane::packet
