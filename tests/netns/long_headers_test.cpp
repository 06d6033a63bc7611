// SPDX-License-Identifier: MIT
// Packets of IPv6 behind more extension headers than the programs parse: only TCP could hide there from conntrack.
#include "tests/harness/frame.hpp"
#include "tests/netns/lab.hpp"
#include "tests/netns/segments.hpp"

namespace podlane::test {
namespace {

class LongHeaders : public testing::Test {
  protected:
    void SetUp() override {
        (void)must_run(lab_.outside(), words("ip -6 route add " + std::string(Lab::kPods6) + " via " + Lab::kNode6));
        pod_ = lab_.add_pod(Json{{"uplinks", {"up*"}}});
    }
    // As many destination options before a packet of another protocol than TCP.
    [[nodiscard]] static Packet behind_headers(const Packet &whole, std::size_t headers) {
        Packet out = behind(whole, std::vector<std::uint8_t>(headers, kDestinationOptions));
        out.options[out.options.size() - 8] = whole.protocol;
        return out;
    }
    Lab lab_;
    Pod pod_;
};

TEST_F(LongHeaders, HideNothingButTcp) {
    const Wire wire(lab_.outside(), "eth0");
    const Mac uplink = Wire(lab_.node().ns(), "up0").mac();
    const auto hidden = [&] { return lab_.node().counted("up0", REASON_DROP_HIDDEN_HEADER).packets; };
    std::uint16_t sequence = 0;
    for (const ip_addr &to : {ip(Lab::kNode6), pod_.addr(false)})
        for (const std::size_t headers : {1U, 4U, 5U, 8U}) {
            SCOPED_TRACE(to_string(to) + " behind " + std::to_string(headers));
            const Packet request = echo_request({ip(Lab::kOutside6), to}, 7, ++sequence);
            wire.forget();
            wire.send(frame(uplink, wire.mac(), behind_headers(request, headers)));
            EXPECT_TRUE(wait_until([&] { return frames_from(wire, to) > 0; })) << "no reply";
        }
    EXPECT_EQ(hidden(), 0U);
    const Packet segment = tcp({ip(Lab::kOutside6), ip(Lab::kNode6)}, tcp_ack);
    for (const std::size_t headers : {5U, 8U})
        wire.send(frame(uplink, wire.mac(), behind_headers(segment, headers)));
    const Packet request = echo_request({ip(Lab::kOutside6), ip(Lab::kNode6)}, 7, ++sequence);
    wire.send(frame(uplink, wire.mac(), behind_headers(request, 9)));
    EXPECT_TRUE(wait_until([&] { return hidden() == 3; })) << hidden();
    for (const std::uint16_t outer : {0x8100, 0x88a8})
        wire.send(frames::tagged(frame(uplink, wire.mac(), request), {{outer, 0}, {0x8100, 0}}));
    EXPECT_TRUE(wait_until([&] { return hidden() == 5; })) << hidden();
}

// Nor does a pod hide neighbour discovery there.
TEST_F(LongHeaders, OfAPodHideNothingButTcpAndDiscovery) {
    const Wire wire = pod_.wire();
    const ip_addr own = pod_.addr(false), outside = ip(Lab::kOutside6);
    const auto send = [&](const Packet &packet, std::size_t headers) {
        wire.send(frame(pod_.gateway_mac, pod_.mac, behind_headers(packet, headers)));
    };
    std::uint16_t sequence = 0;
    for (const std::size_t headers : {1U, 4U, 5U, 8U}) {
        wire.forget();
        send(echo_request({own, outside}, 7, ++sequence), headers);
        EXPECT_TRUE(wait_until([&] { return frames_from(wire, outside) > 0; })) << "no reply behind " << headers;
    }
    const auto dropped = [&] { return lab_.count(pod_, REASON_DROP_ND_SPOOFED); };
    EXPECT_EQ(dropped(), 0U);
    for (const std::size_t headers : {5U, 8U}) {
        send(tcp({own, outside}, tcp_ack), headers);
        send(neighbour({own, outside}, 136, 0, own, 2, pod_.mac), headers);
    }
    send(echo_request({own, outside}, 7, ++sequence), 9);
    EXPECT_TRUE(wait_until([&] { return dropped() == 5; })) << dropped();
}

} // namespace
} // namespace podlane::test
