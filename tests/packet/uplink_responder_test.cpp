// SPDX-License-Identifier: MIT
// Neighbour solicitations on the uplink of a network with an egress route: which are answered, byte for byte.
#include "tests/packet/neighbour_cases.hpp"
#include "tests/packet/sources.hpp"

namespace podlane::packet {
namespace {

const ip_addr kRequested = ip("2001:db8:133::20"), kRequester = ip("2001:db8:133::9");
const ip_addr kRequestedGroup = ip("ff02::1:ff00:20");
constexpr Mac kRequestedGroupMac{0x33, 0x33, 0xff, 0, 0, 0x20};
const Ethernet kToGroup{kRequestedGroupMac, kNeighbourMac};
constexpr std::uint32_t kOverride = 0x20000000, kSolicitedOverride = 0x60000000; // flags of advertisements

Frame by_group(std::uint8_t hop_limit = 255) { return kToGroup / Ipv6{kRequester, kRequestedGroup, hop_limit}; }
Bytes requester_option() { return nd_option(1, kNeighbourMac); }

TEST_F(Source, SolicitationsOfTheUplinkAreAnswered) {
    const Nd solicit{135, kRequested};
    const Ethernet by_unicast{kUplinkMac, kNeighbourMac};
    for (const auto &[name, frame] : std::vector<std::pair<const char *, Bytes>>{
             {"to the group", by_group() / solicit / requester_option()},
             {"without an option", by_group() / solicit},
             {"by unicast", by_unicast / Ipv6{kRequester, kRequested, 255} / solicit / requester_option()}}) {
        const Outcome outcome = expect({name, frame, REASON_UPLINK_ND, in()});
        EXPECT_EQ(hex(outcome.frame),
                  hex(advertisement({kNeighbourMac, kUplinkMac}, kRequested, kRequester, kSolicitedOverride)));
    }
    // Of a host that would give itself the pod's address.
    const Bytes claim = kToGroup / Ipv6{ip("::"), kRequestedGroup, 255} / solicit;
    const Outcome defended = expect({"address detection", claim, REASON_UPLINK_ND, in()});
    EXPECT_EQ(hex(defended.frame),
              hex(advertisement({{0x33, 0x33, 0, 0, 0, 1}, kUplinkMac}, kRequested, ip("ff02::1"), kOverride)));
}

TEST_F(Source, OtherSolicitationsOfTheUplinkAreNotAnswered) {
    constexpr reason kHost = REASON_HOST_NOT_LOCAL;
    const Bytes option = requester_option();
    const Nd solicit{135, kRequested};
    for (const std::uint8_t hop_limit : {254, 64, 1})
        expect({"that a router has forwarded", by_group(hop_limit) / solicit / option, kHost, in()});
    const Ethernet to_other{kForeignMac, kNeighbourMac};
    const Ipv6 header{kRequester, kRequestedGroup, 255};
    for (const Case &given : std::vector<Case>{
             {"to another host's MAC", to_other / header / solicit / option, kHost, in()},
             {"for nobody", by_group() / Nd{135, ip("2001:db8:133::21")} / option, kHost, in()},
             {"for a pod of another network", by_group() / Nd{135, pod6()} / option, kHost, in()},
             {"cut", by_group() / icmp6(135) / bytes(15), kHost, in()},
             {"an advertisement", by_group() / Nd{136, kRequested} / nd_option(2, kNeighbourMac), kHost, in()},
         })
        expect(given);
    Bytes of_ipv4 = by_group() / solicit / option; // as an IPv4-mapped address
    constexpr std::size_t kTarget = 14 + 40 + 8;
    const ip_addr mapped = ip("192.168.133.20");
    std::memcpy(of_ipv4.data() + kTarget, mapped.word, sizeof mapped.word);
    expect({"for a pod's IPv4 address", of_ipv4, kHost, in()});
    source_route route = *require(node().tables().source_routes.find({second_.ifindex, kRequested}));
    route.uplink = if_nametoindex("plan0");
    require(node().tables().source_routes.update({second_.ifindex, kRequested}, route));
    expect({"for a pod behind another uplink", by_group() / solicit / option, kHost, in()});
}

// RFC 6980: discovery has no fragments. Behind other headers the kernel decides, as it does without Podlane.
TEST_F(Source, SolicitationsBehindOtherHeadersAreNotAnswered) {
    const Nd solicit{135, kRequested};
    const Bytes option = requester_option();
    for (const std::uint8_t type : {IPPROTO_HOPOPTS, IPPROTO_DSTOPTS})
        expect({"options", by_group() / Extension{type} / solicit / option, REASON_HOST_NOT_LOCAL, in()});
    for (const Extension &fragment :
         {Extension{IPPROTO_FRAGMENT}, Extension{IPPROTO_FRAGMENT, 1, 1}, // the only one, the first
          Extension{IPPROTO_FRAGMENT, 1, 0x0040, IPPROTO_ICMPV6}})        // a later one
        expect({"a fragment", by_group() / fragment / solicit / option, REASON_HOST_NOT_LOCAL, in()});
}

} // namespace
} // namespace podlane::packet
