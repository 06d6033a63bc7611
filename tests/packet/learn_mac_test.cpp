// SPDX-License-Identifier: MIT
// The MAC of a pod without a bridge follows what it announces for its own addresses, but never becomes a group's.
#include "tests/packet/neighbour_cases.hpp"

namespace podlane::packet {
namespace {

class LearnMac : public PacketTest {
  protected:
    void prepare() override { node().put_with(node().pod, INTERFACE_ROUTED); }

    // By ARP or by neighbour discovery.
    Outcome announce(bool ipv4, const Mac &mac) {
        if (ipv4)
            return node().run(Ethernet{kBroadcastMac, mac} / Arp{1, mac, pod4(), pod4()});
        const Ethernet to_all{{0x33, 0x33, 0, 0, 0, 1}, mac};
        return node().run(to_all / Ipv6{pod6(), ip("ff02::1"), 255} / Nd{136, pod6()} / nd_option(2, mac));
    }
    // Where packets to the pod go, on its link.
    void expect_receives_by(bool ipv4, const Mac &mac) {
        const interface of_pod = *require(node().tables().interfaces.find(node().pod.ifindex));
        EXPECT_EQ(to_string(to_mac(of_pod.pod_mac)), to_string(mac));
        const Ethernet from_peer{kHostMac, kPeerMac};
        const Bytes sent = ipv4 ? from_peer / Ipv4{peer4(), pod4()} / Udp{} : from_peer / Ipv6{peer6(), pod6()} / Udp{};
        const Outcome outcome = node().run(sent, {.ifindex = node().peer.ifindex});
        expect_ends_in(node(), outcome, REASON_SENT_DIRECT, node().peer.ifindex);
        EXPECT_EQ(hex(std::span(outcome.frame).first(6)), hex(mac));
    }
};

TEST_F(LearnMac, ThatAPodAnnouncesIsFollowed) {
    expect_ends_in(node(), announce(true, kForeignMac), REASON_HOST_ARP);
    expect_receives_by(true, kForeignMac);
    constexpr Mac kAnother{0x02, 0, 0, 0, 0, 0x67};
    expect_ends_in(node(), announce(false, kAnother), REASON_HOST_ND);
    expect_receives_by(false, kAnother);
}

// All ports of a link get what is sent to a group.
TEST_F(LearnMac, OfAGroupIsNotFollowed) {
    for (const bool ipv4 : {true, false})
        for (const Mac &group :
             {kBroadcastMac, Mac{0x01, 0, 0x5e, 0, 0, 1}, Mac{0x33, 0x33, 0, 0, 0, 1}, Mac{0x03, 0, 0, 0, 0, 0x0a}}) {
            SCOPED_TRACE(to_string(group));
            expect_ends_in(node(), announce(ipv4, group), REASON_DROP_SOURCE_MAC);
            expect_receives_by(ipv4, kPodMac);
        }
}

} // namespace
} // namespace podlane::packet
