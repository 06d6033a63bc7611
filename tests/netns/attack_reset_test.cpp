// SPDX-License-Identifier: MIT
// A hostile host on the uplink ends connections in the name of their peer, without knowing a sequence number: beside
// ptp, with Podlane, and with Podlane and "conntrackLiberal": false.
#include "tests/netns/conntrack.hpp"
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7000;
constexpr std::uint16_t kOwnPort = 40123;
// What conntrack leaves of the 5 days of an established connection after a reset that it believes, in seconds.
constexpr std::uint64_t kBelieved = 10;

enum class Network { ptp, podlane, strict };

struct ResetParameter {
    Network network;
    bool ipv4;
};

// The upper half of the sequence number; the window makes up for it in the checksum.
void put_sequence(Packet &packet, std::uint32_t upper) {
    constexpr std::uint32_t kSum = 0x0102 + 0x2000; // as tcp() has made both
    const std::uint32_t window = (kSum + 0xffff - upper) % 0xffff;
    const auto put = [&](std::size_t at, std::uint32_t value) {
        packet.payload[at] = static_cast<std::uint8_t>(value >> 8U);
        packet.payload[at + 1] = static_cast<std::uint8_t>(value & 0xffU);
    };
    put(4, upper);
    put(14, window);
}

class AttackReset : public testing::TestWithParam<ResetParameter> {
  protected:
    AttackReset() {
        lab_.node().run(iptables() + " -w -A FORWARD -m conntrack --ctstate INVALID -j DROP");
        (void)must_run(lab_.outside(), words("ip route add " + std::string(ipv4() ? Lab::kPods4 : Lab::kPods6) +
                                             " via " + to_string(node_addr())));
        if (GetParam().network == Network::ptp) {
            Json ptp = {{"type", "ptp"}, {"ipam", lab_.node().ipam()}};
            ptp["ipam"]["routes"] = {{{"dst", "0.0.0.0/0"}}, {{"dst", "::/0"}}};
            victim_ = lab_.add_pod(std::vector<Json>{ptp});
        } else {
            const Json keys = {{"conntrackLiberal", GetParam().network == Network::podlane}};
            victim_ = lab_.add_pod(keys);
        }
    }
    [[nodiscard]] bool ipv4() const { return GetParam().ipv4; }
    [[nodiscard]] std::string iptables() const { return ipv4() ? "iptables" : "ip6tables"; }
    [[nodiscard]] ip_addr victim() const { return victim_.addr(ipv4()); }
    [[nodiscard]] ip_addr peer() const { return ip(ipv4() ? Lab::kOutside4 : Lab::kOutside6); }
    [[nodiscard]] ip_addr node_addr() const { return ip(ipv4() ? Lab::kNode4 : Lab::kNode6); }
    [[nodiscard]] Tracked entry() {
        for (const Tracked &one : tracked(lab_.node().ns()))
            if (one.source.port == kOwnPort && to_string(one.source.addr) == to_string(victim()))
                return one;
        return {};
    }
    // In the name of both ends, with sequence numbers from all over their range.
    void forge(std::uint8_t flags) {
        const Wire wire(lab_.outside(), "eth0");
        const Mac gateway = Wire(lab_.node().ns(), "up0").mac();
        for (std::uint32_t part = 0; part < 8; ++part)
            for (const Ends &ends :
                 {Ends{peer(), victim(), kPort, kOwnPort}, Ends{victim(), peer(), kOwnPort, kPort}}) {
                Packet one = tcp(ends, flags);
                put_sequence(one, part << 13U);
                wire.send(frame(gateway, wire.mac(), one));
            }
    }

    Lab lab_;
    Pod victim_;
};

std::string name_of(const testing::TestParamInfo<ResetParameter> &info) {
    static const std::map<Network, std::string> kNames = {
        {Network::ptp, "Ptp"}, {Network::podlane, "Podlane"}, {Network::strict, "Strict"}};
    return kNames.at(info.param.network) + (info.param.ipv4 ? "V4" : "V6");
}

class BesideStrictWindows : public AttackReset {};
class BesideLiberalWindows : public AttackReset {};

// With ptp, and with Podlane and "conntrackLiberal": false, conntrack finds what is forged out of its windows invalid.
TEST_P(BesideStrictWindows, ForgedEndsChangeNoConnection) {
    const EchoServer server(lab_.outside(), ipv4(), kPort);
    const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    for (const int flags : {+tcp_rst, tcp_rst | tcp_ack, tcp_fin | tcp_ack, +tcp_syn, tcp_syn | tcp_ack}) {
        forge(static_cast<std::uint8_t>(flags));
        std::this_thread::sleep_for(quiet());
        EXPECT_EQ(entry().state, "ESTABLISHED") << flags;
        EXPECT_GT(entry().seconds, kBelieved) << flags;
        EXPECT_EQ(transfer(socket, 1 << 20), 0) << flags;
    }
}

// conntrack has not seen the bytes on the fast path, and has to believe any sequence number: docs/SECURITY.md says what
// that lets a neighbour do. A repair of it changes this test.
TEST_P(BesideLiberalWindows, ForgedEndsAreBelieved) {
    const EchoServer server(lab_.outside(), ipv4(), kPort);
    const Fd socket = test::connected(victim_.ns(), Transport::tcp, {peer(), kPort}, {{}, kOwnPort});
    ASSERT_EQ(transfer(socket, 1 << 20), 0);
    forge(tcp_rst);
    EXPECT_TRUE(wait_until([&] { return entry().seconds <= kBelieved; }));
    EXPECT_EQ(entry().state, "ESTABLISHED");
    EXPECT_TRUE(wait_until([&] { return transfer(socket, 1 << 16) != 0 || entry().seconds > kBelieved; }))
        << "a connection in use gets its time back";
    EXPECT_EQ(transfer(socket, 1 << 20), 0);
    forge(tcp_fin | tcp_ack);
    EXPECT_TRUE(wait_until([&] { return entry().state != "ESTABLISHED"; }));
    EXPECT_EQ(transfer(socket, 1 << 20), 0) << "on the slow path, as long as the entry lives";
}

constexpr ResetParameter kPtp4{Network::ptp, true}, kPtp6{Network::ptp, false};
constexpr ResetParameter kStrict4{Network::strict, true}, kStrict6{Network::strict, false};
constexpr ResetParameter kLiberal4{Network::podlane, true}, kLiberal6{Network::podlane, false};
INSTANTIATE_TEST_SUITE_P(Of, BesideStrictWindows, testing::Values(kPtp4, kPtp6, kStrict4, kStrict6), name_of);
INSTANTIATE_TEST_SUITE_P(Of, BesideLiberalWindows, testing::Values(kLiberal4, kLiberal6), name_of);

} // namespace
} // namespace podlane::test
