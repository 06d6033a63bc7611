// SPDX-License-Identifier: MIT
// The gateway's answers, byte for byte.
#include "tests/packet/neighbour_cases.hpp"

namespace podlane::packet {
namespace {

using ArpNdResponder = PacketTest;

Bytes arp_reply(const ip_addr &asker, std::size_t padding) {
    return Ethernet{kPodMac, kHostMac} / Arp{2, kHostMac, gateway4(), asker, kPodMac} / bytes(padding, 0xa5);
}

TEST_F(ArpNdResponder, AnswersArpForTheGateway) {
    for (const ip_addr &asker : {pod4(), ip("0.0.0.0")})
        for (const std::size_t padding : {0U, 18U}) {
            Arp request = arp_request(gateway4());
            request.sender = asker;

            const Outcome outcome = node().run(arp(request) / bytes(padding, 0xa5));

            expect_ends_in(node(), outcome, REASON_GATEWAY_ARP);
            EXPECT_EQ(hex(outcome.frame), hex(arp_reply(asker, padding)));
        }
}

Bytes of_gateway(const ip_addr &asker) { return advertisement({kPodMac, kHostMac}, gateway6(), asker, 0xe0000000U); }

TEST_F(ArpNdResponder, AnswersSolicitationsForTheGateway) {
    const Nd solicit{135, gateway6()};
    const Bytes long_option = nd_option(14, {}, 4);
    for (const ip_addr &asker : {pod6(), pod_local()})
        for (const Bytes &options : {Bytes{}, own_option(), [&] {
                                         Bytes all = long_option;
                                         all.resize(32);
                                         append(all, own_option());
                                         return all;
                                     }()}) {
            const Outcome outcome = node().run(nd(asker) / solicit / options);

            expect_ends_in(node(), outcome, REASON_GATEWAY_ND);
            EXPECT_EQ(hex(outcome.frame), hex(of_gateway(asker)));
        }
}

// Sums that end in 0 or carry twice are where a folded checksum goes wrong.
TEST_F(ArpNdResponder, HasARightChecksumForEverySender) {
    node().pod.allowed = {*parse_prefix("2001:db8:7::/64")};
    node().put(node().pod);
    ip_addr asker = ip("2001:db8:7::");
    for (std::uint32_t i = 0; i < 0x10000; i += 3) {
        asker.word[3] = htonl(i);
        const Outcome outcome = node().run_uncounted(nd(asker) / Nd{135, gateway6()} / own_option());
        ASSERT_EQ(hex(outcome.frame), hex(of_gateway(asker))) << i;
    }
}

} // namespace
} // namespace podlane::packet
