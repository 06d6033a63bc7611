// SPDX-License-Identifier: MIT
// The gateway every pod sees is no interface's address: the programs answer for it, once a question.
#include "tests/netns/lab.hpp"

#include <netinet/icmp6.h>

namespace podlane::test {
namespace {

constexpr Mac kEveryone{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
constexpr Mac kGateway{0xee, 0xee, 0xee, 0xee, 0xee, 0xee};

class Gateway : public LabTest {
  protected:
    [[nodiscard]] ip_addr gateway() const { return ip(ipv4() ? "169.254.1.1" : "fe80::ecee:eeff:feee:eeee"); }
    [[nodiscard]] reason answered() const { return ipv4() ? REASON_GATEWAY_ARP : REASON_GATEWAY_ND; }
    // What a pod asks that wants the gateway's MAC; `target` in its place.
    [[nodiscard]] Bytes question(const Pod &pod, const ip_addr &target) const {
        if (ipv4())
            return frame(kEveryone, pod.mac, 0x0806, to_bytes(Arp{1, pod.mac, pod.v4, {}, target}));
        const Mac group{0x33, 0x33, 0xff, 0xee, 0xee, 0xee};
        return frame(group, pod.mac,
                     neighbour({pod.v6, ip("ff02::1:ffee:eeee")}, ND_NEIGHBOR_SOLICIT, 0, target, 1, pod.mac));
    }
    [[nodiscard]] bool is_answer(const Bytes &frame) const {
        if (ipv4())
            return ethertype(frame) == 0x0806 && frame.size() >= 42 && frame[21] == 2;
        return ethertype(frame) == 0x86dd && frame.size() >= 78 && frame[20] == IPPROTO_ICMPV6 &&
               frame[54] == ND_NEIGHBOR_ADVERT;
    }
};

TEST_P(Gateway, QuestionGetsExactlyOneAnswer) {
    const Pod a = add_pod();
    const Wire wire = a.wire();
    const auto before = lab_->count(a, answered());
    wire.send(question(a, gateway()));
    Bytes answer;
    const auto keep = [&](const Bytes &frame) {
        answer = frame;
        return is_answer(frame);
    };
    ASSERT_TRUE(wire.until(keep, patience()));
    const std::size_t mac_at = ipv4() ? 22 : 80; // sender's MAC; the link-layer address option
    ASSERT_GE(answer.size(), mac_at + 6);
    EXPECT_TRUE(std::equal(kGateway.begin(), kGateway.end(), answer.begin() + static_cast<std::ptrdiff_t>(mac_at)));
    EXPECT_TRUE(std::equal(a.mac.begin(), a.mac.end(), answer.begin()));
    EXPECT_FALSE(wire.until([this](const Bytes &frame) { return is_answer(frame); }, quiet())) << "a second answer";
    EXPECT_EQ(lab_->count(a, answered()), before + 1);
}

// The kernel itself has to take the answer for good.
TEST_P(Gateway, PodWithoutItsPermanentNeighbourStillGetsOut) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    (void)a.container->run("ip neigh del " + to_string(gateway()) + " dev eth0");
    ASSERT_EQ(a.container->run("ip neigh show " + to_string(gateway()) + " nud permanent"), "");
    EXPECT_TRUE(ping(a.ns(), addr(b)));
    EXPECT_TRUE(ping(a.ns(), node_addr()));
    EXPECT_GE(lab_->count(a, answered()), 1U);
    EXPECT_NE(a.container->run("ip neigh show " + to_string(gateway()) + " dev eth0").find("ee:ee:ee:ee:ee:ee"),
              std::string::npos);
}

TEST_P(Gateway, OthersAreNotAnsweredFor) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    const Wire wire = a.wire();
    for (const ip_addr &target : {addr(b), outside_addr(), ip(ipv4() ? "169.254.1.2" : "fe80::1234")})
        wire.send(question(a, target));
    EXPECT_TRUE(wait_until([&] { return lab_->count(a, ipv4() ? REASON_HOST_ARP : REASON_HOST_ND) >= 3; }));
    EXPECT_FALSE(wire.until([this](const Bytes &frame) { return is_answer(frame); }, quiet()));
    EXPECT_EQ(lab_->count(a, answered()), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, Gateway, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
