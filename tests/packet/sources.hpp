// SPDX-License-Identifier: MIT
// A pod with a second interface, whose network leaves by an uplink of its own.
#pragma once

#include "tests/packet/cases.hpp"

#include <net/if.h>

namespace podlane::packet {

inline constexpr Mac kSecondMac{0x02, 0, 0, 0, 0, 0x1a};
inline constexpr Mac kUplinkMac{0x02, 0, 0, 0, 0, 0x0e};
inline constexpr Mac kNeighbourMac{0x02, 0, 0, 0, 0, 0xee};
inline constexpr const char *kSetUp =
    "set -e; echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding;"
    "ip link add lan0 address 02:00:00:00:00:0e type veth peer name plan0;"
    "for i in lan0 plan0 caliA caliAp caliC caliCp; do ip link set $i up; done;"
    "ip addr add 203.0.113.2/24 dev caliCp; ip route add 198.51.100.0/24 dev caliA;"
    "ip route add 192.168.133.20 dev caliC; ip -6 route add 2001:db8:133::20 dev caliC";

// The pod has a second interface in another network, whose way is by lan0.
class Source : public PacketTest {
  protected:
    void prepare() override {
        node().asks = true;
        shell(kSetUp);
        lan_ = if_nametoindex("lan0");
        require(node().tables().counters.update(lan_, counter_shares{}));
        second_ = {"pod2", node().unknown_ifindex, kSecondMac, {ip("192.168.133.20"), ip("2001:db8:133::20")}, "lan"};
        second_.flags = kAllFlags | INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE;
        node().put_with(node().pod, INTERFACE_PEERS);
        node().put(second_);
        const Uplinks uplinks = require(open_uplinks(node().root(), Access::read_write));
        uplink entry{};
        entry.networks[0] = network_id("lan");
        require(uplinks.update(lan_, entry));
        for (const ip_addr &addr : second_.addresses)
            put_egress_route(addr);
    }
    // As ADD does it.
    void put_egress_route(const ip_addr &addr) {
        source_route route{};
        route.ifindex = second_.ifindex;
        route.source = addr;
        route.uplink = lan_;
        route.gateway = ip(is_ipv4(addr) ? "192.168.133.1" : "2001:db8:133::1");
        route.mtu = 1400;
        route.prefix_bits = is_ipv4(addr) ? 96 + 24 : 64;
        std::ranges::copy(kHostMac, route.host_mac);
        std::ranges::copy(kSecondMac, route.pod_mac);
        std::ranges::copy(kUplinkMac, route.uplink_mac);
        for (const std::uint32_t end : {node().pod.ifindex, second_.ifindex})
            require(node().tables().source_routes.update({end, addr}, route));
        require(node().tables().source_slots.update({node().pod.ifindex, is_ipv4(addr) ? 1U : 0U, 1}, route));
    }
    Outcome expect(const Case &given) { return expect_case(node(), given, second_.ifindex); }
    [[nodiscard]] How from_second() const { return {.ifindex = second_.ifindex}; }
    [[nodiscard]] How in() const { return {.program = PODLANE_PROGRAM_FROM_UPLINK, .ifindex = lan_}; }
    [[nodiscard]] How out() const { return {.program = PODLANE_PROGRAM_TO_UPLINK, .ifindex = lan_}; }

    Pod second_;
    std::uint32_t lan_ = 0;
};

inline Ethernet of_second() { return {kHostMac, kSecondMac}; }

} // namespace podlane::packet
