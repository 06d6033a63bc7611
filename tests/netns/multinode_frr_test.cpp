// SPDX-License-Identifier: MIT
// The documented example of FRR carries pods' traffic between nodes as BIRD's does.
#include "tests/harness/frr.hpp"

#include <gtest/gtest.h>

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr std::array kFamilies = {true, false};

TEST(Frr, PodsReachEachOtherOverBothUplinksAndOverOne) {
    if (!Frrs::installed())
        GTEST_SKIP() << "frr is not installed (tools/setup test)";
    Cluster cluster(2);
    const Frrs frrs(cluster);
    ASSERT_TRUE(frrs.settle(2)) << frrs.ask(1, "show bgp summary") << cluster.node(1).run("ip route");
    const Pod a = cluster.add_pod(1, {{"uplinks", {"up*"}}});
    const Pod b = cluster.add_pod(2, {{"uplinks", {"up*"}}});
    const auto sent_by = [&](const char *uplink) { return cluster.count(1, uplink, REASON_UPLINK_SENT); };
    for (const bool ipv4 : kFamilies) {
        const EchoServer server(b.ns(), ipv4, kPort);
        const std::array before = {sent_by("up0"), sent_by("up1")};
        for (int flow = 0; flow < 40; ++flow)
            ASSERT_EQ(ask(a.ns(), flow % 2 == 0 ? Transport::tcp : Transport::udp, {b.addr(ipv4), kPort}), 0);
        EXPECT_GT(sent_by("up0"), before[0] + 10);
        EXPECT_GT(sent_by("up1"), before[1] + 10);
    }
    cluster.cable(2, 0, false);
    ASSERT_TRUE(wait_until([&] { return cluster.has_ways("bgp", 1, 2, 1) && cluster.has_ways("bgp", 2, 1, 1); }));
    const std::uint64_t before = sent_by("up0");
    for (const bool ipv4 : kFamilies) {
        const EchoServer server(b.ns(), ipv4, kPort);
        const Fd socket = connected(a.ns(), Transport::tcp, {b.addr(ipv4), kPort});
        EXPECT_EQ(transfer(socket, std::size_t{1} << 20U), 0);
    }
    EXPECT_EQ(sent_by("up0"), before);
    EXPECT_EQ(cluster.count(a, REASON_HOST_NO_ROUTE), 0U);
    EXPECT_EQ(cluster.count(a, REASON_HOST_NO_UPLINK), 0U);
}

} // namespace
} // namespace podlane::test
