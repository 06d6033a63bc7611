// SPDX-License-Identifier: MIT
// Connections of the node itself are none of the fast path's: conntrack is queried for them once a second, not for each
// of their packets.
#include "maps/clock.hpp"
#include "maps/tables.hpp"
#include "tests/netns/service_test.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr std::uint16_t kFrom = 7000;

class OwnConnection : public ServiceTest {
  protected:
    OwnConnection() : ServiceTest(kPort, kPort) {}

    [[nodiscard]] flow_key key() const {
        return {.source = addr(client_),
                .destination = node_addr(),
                .source_port = htons(kFrom),
                .destination_port = htons(kPort),
                .protocol = IPPROTO_TCP,
                .reserved = {}};
    }
    // As if the host stack had just forwarded a packet of it: a query then makes an entry of the cache.
    void claim_forwarded() {
        const flow_key one = key();
        const auto map = require(Map<flow_key, forwarded>::open(lab_->node().bpffs() + "/live/" + PODLANE_MAP_FORWARDED,
                                                                Access::read_write));
        (void)require(map.update(
            one, {.at_ns = monotonic_ns(), .came_by = client_.ifindex, .check = flow_check(&one), .window = {}}));
    }
    [[nodiscard]] bool is_cached() {
        return require(require(open_flows(lab_->node().bpffs(), Access::read_only)).find(key())).has_value();
    }
};

TEST_P(OwnConnection, IsQueriedWhenItBegins) {
    const EchoServer node(lab_->node().ns(), ipv4(), kPort);
    const Fd socket = connected({node_addr(), kPort}, Transport::tcp, kFrom);
    claim_forwarded();
    ASSERT_TRUE(answered(socket));
    EXPECT_TRUE(is_cached()) << "nothing says yet that it is the node's own";
}

TEST_P(OwnConnection, IsQueriedOnceASecondThen) {
    const EchoServer node(lab_->node().ns(), ipv4(), kPort);
    const Fd socket = connected({node_addr(), kPort}, Transport::tcp, kFrom);
    ASSERT_TRUE(answered(socket));
    ASSERT_TRUE(answered(socket)); // the first may have come before conntrack counted it as established
    claim_forwarded();
    ASSERT_TRUE(answered(socket));
    EXPECT_FALSE(is_cached()) << "queried for this packet";
    EXPECT_TRUE(wait_until([&] {
        claim_forwarded();
        return answered(socket) && is_cached();
    })) << "never queried again";
}

INSTANTIATE_TEST_SUITE_P(All, OwnConnection, testing::Values(LabParameter{"auto", true}, LabParameter{"auto", false}),
                         lab_family_name);

} // namespace
} // namespace podlane::test
