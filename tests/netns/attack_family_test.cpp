// SPDX-License-Identifier: MIT
// Prefixes of IPv6 that hold ::ffff:0:0/96, as which the programs' tables write IPv4: wherever they are configured,
// they say nothing about IPv4. A hostile pod's forged packets, and what FORWARD drops, reach no victim, and limits
// hold.
#include "tests/netns/forged.hpp"
#include "tests/netns/limits.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kSink = 9; // of flood()

// Parameter: the prefix.
class AttackFamily : public LimitTest, public testing::WithParamInterface<const char *> {
  protected:
    AttackFamily() : outside_(lab_.outside(), "eth0") {
        for (const char *where : {"all", "default"})
            lab_.node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
        (void)must_run(lab_.outside(), words(std::string("ip route add ") + Lab::kPods4 + " via " + Lab::kNode4));
        // Not by the next hop of the default route: of the cluster, if it is one of its addresses.
        lab_.node().run("ip route replace default via 203.0.113.99");
    }
    void SetUp() override {
        ASSERT_TRUE(test::ping(lab_.node().ns(), Lab::kOutside4, 2)) << "the fast path sends to no other";
    }
    [[nodiscard]] static std::vector<Json> keys() {
        Json direct = {{"firstPacket", "direct"}};
        direct["clusterCIDRs"] = Json::array({GetParam()});
        Json limited = limits(kRate, kRate);
        limited["unshapedSubnets"] = Json::array({GetParam()});
        return {Json{{"allowedSources", Json::array({GetParam()})}}, direct, limited};
    }
    // Of IPv4, and in headers of IPv6.
    [[nodiscard]] static std::vector<forged::Forged> forge(const Pod &hostile, const Pod &victim) {
        std::vector<forged::Forged> all;
        for (const ip_addr &source :
             {ip("10.1.1.1"), ip("198.51.100.77"), ip(Lab::kOutside4), ip(Lab::kNode4), victim.v4})
            for (const auto &[to4, to6] : {std::pair{victim.v4, victim.v6}, {ip(Lab::kOutside4), ip(Lab::kOutside6)}}) {
                all.push_back(
                    {to_string(source), frame(hostile.gateway_mac, hostile.mac, udp({source, to4}, forged::kMarked))});
                Bytes mapped = frame(hostile.gateway_mac, hostile.mac, udp({hostile.v6, to6}, forged::kMarked));
                std::memcpy(&mapped.at(kEthernetBytes + 8), &source, sizeof source);
                all.push_back({to_string(source) + " in IPv6", mapped});
            }
        return all;
    }
    [[nodiscard]] std::uint64_t dropped(const Pod &pod) {
        return lab_.count(pod, REASON_DROP_SOURCE_ADDRESS) + lab_.count(pod, REASON_DROP_MALFORMED);
    }
    [[nodiscard]] static bool is_marked(const Bytes &frame) { return contains(frame, pattern(forged::kMarked)); }
    // Bits per second that a pod's flood brings to the victim's socket.
    [[nodiscard]] static double arriving(const Pod &from, const Pod &victim) {
        const Fd sink = open_socket(victim.ns(), Transport::udp, true, {victim.v4, kSink});
        const Repeat sending = flood(from, victim.v4);
        const auto start = std::chrono::steady_clock::now();
        std::uint64_t bytes = 0;
        while (std::chrono::steady_clock::now() - start < kTime)
            bytes += receive(sink, 65536, std::chrono::milliseconds(100)).text.size();
        return static_cast<double>(bytes) * 8 /
               std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

    Wire outside_;
};

TEST_P(AttackFamily, NoForgedSourceOfIpv4ReachesAVictim) {
    const Pod victim = lab_.add_pod();
    const Wire at_victim = victim.wire();
    for (const Json &with : keys()) {
        SCOPED_TRACE(with.dump());
        const Pod hostile = lab_.add_pod(with);
        const auto all = forge(hostile, victim);
        forged::send_as(Privilege::net_raw, hostile.ns(), "eth0", all);
        EXPECT_TRUE(wait_until([&] { return dropped(hostile) >= all.size(); }));
        for (const Wire *wire : {&at_victim, &std::as_const(outside_)})
            for (const Bytes &one : wire->arrived())
                EXPECT_FALSE(is_marked(one)) << hex(one);
        const Wire sender = hostile.wire();
        for (const auto &[wire, to] :
             {std::pair{&at_victim, victim.v4}, {&std::as_const(outside_), ip(Lab::kOutside4)}}) {
            sender.send(frame(hostile.gateway_mac, hostile.mac, udp({hostile.v4, to}, forged::kMarked)));
            EXPECT_TRUE(wire->until(is_marked, patience())) << "its own address";
        }
    }
}

TEST_P(AttackFamily, NoAddressOfIpv4IsOfTheCluster) {
    const Pod pod = lab_.add_pod(keys().at(1));
    const Wire at_pod = pod.wire();
    const Mac gateway = Wire(lab_.node().ns(), "up0").mac();
    const auto speak = [&] {
        for (const Packet &packet : {udp({ip(Lab::kOutside4), pod.v4}, forged::kMarked),
                                     tcp({ip(Lab::kOutside4), pod.v4}, tcp_ack, forged::kMarked)})
            outside_.send(frame(gateway, outside_.mac(), packet));
        for (const Packet &packet : {udp({pod.v4, ip(Lab::kOutside4)}, forged::kMarked),
                                     tcp({pod.v4, ip(Lab::kOutside4)}, tcp_ack, forged::kMarked)})
            at_pod.send(frame(pod.gateway_mac, pod.mac, packet));
    };
    lab_.node().run("iptables -w -P FORWARD DROP");
    for (int i = 0; i < 3; ++i)
        speak();
    EXPECT_FALSE(at_pod.until(is_marked, quiet()));
    EXPECT_FALSE(outside_.until(is_marked, quiet()));
    lab_.node().run("iptables -w -P FORWARD ACCEPT");
    speak();
    EXPECT_TRUE(at_pod.until(is_marked, patience())) << "nothing but the rule was in the way";
    EXPECT_TRUE(outside_.until(is_marked, patience())) << "nothing but the rule was in the way";
}

// In each direction. Of what is sent beyond the rate nothing waits.
TEST_P(AttackFamily, Ipv4ToALimitedPodStaysLimited) {
    const Pod free = lab_.add_pod();
    for (const Json &limit : {limits(kRate, 0), limits(0, kRate)}) {
        SCOPED_TRACE(limit.dump());
        Json with = limit;
        with["limiter"] = "bucket";
        with["unshapedSubnets"] = Json::array({GetParam()});
        const Pod limited = lab_.add_pod(with);
        const bool is_ingress = limit.contains("ingressRate");
        const double rate = is_ingress ? arriving(free, limited) : arriving(limited, free);
        EXPECT_LT(rate, 1.2 * static_cast<double>(kRate));
        EXPECT_GT(state(limited, is_ingress ? LIMIT_INGRESS : LIMIT_EGRESS).dropped, 0U);
    }
}

INSTANTIATE_TEST_SUITE_P(All, AttackFamily, testing::Values("::/0", "::1/80"),
                         [](const auto &info) { return std::string(info.index == 0 ? "Everything" : "Mapped"); });

} // namespace
} // namespace podlane::test
