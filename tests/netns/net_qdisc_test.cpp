// SPDX-License-Identifier: MIT
// Queueing disciplines of a link.
#include "loader/net/qdisc.hpp"
#include "tests/netns/net_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace podlane::net::test {
namespace {

constexpr std::uint32_t kHandle = 0x504c0000;
constexpr std::uint32_t kPackets = 1000;

class NetQdisc : public NetTest {
  protected:
    std::string root_qdisc() { return require(find_link(node_, ifindex_))->qdisc; }
    static void tc(const std::string &arguments) { ASSERT_EQ(std::system(("tc qdisc " + arguments).c_str()), 0); }

    std::uint32_t ifindex_ = veth_up().host.ifindex;
    FqSpec fq_{ifindex_, kHandle, kPackets};
};

TEST_F(NetQdisc, NamesTheQdiscOfIncomingPackets) {
    EXPECT_EQ(require(ingress_qdisc(node_, ifindex_)), "");
    tc("add dev cali0 clsact");
    EXPECT_EQ(require(ingress_qdisc(node_, ifindex_)), "clsact");
    tc("del dev cali0 clsact");
    tc("add dev cali0 ingress");
    EXPECT_EQ(require(ingress_qdisc(node_, ifindex_)), kIngressQdisc);
    EXPECT_EQ(require(ingress_qdisc(node_, 4242)), "") << "of a link that is missing";
}

TEST_F(NetQdisc, AddsChangesAndRemovesItsOwnFqOnly) {
    if (!require(has_fq(node_))) {
        EXPECT_FALSE(require(set_fq(node_, fq_)));
        GTEST_SKIP() << "this kernel has no fq";
    }
    EXPECT_TRUE(require(set_fq(node_, fq_)));
    EXPECT_TRUE(require(set_fq(node_, fq_))) << "once more";
    EXPECT_EQ(root_qdisc(), "fq");
    EXPECT_TRUE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_FALSE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_EQ(root_qdisc(), "noqueue");

    tc("add dev cali0 root handle 7: pfifo");
    EXPECT_FALSE(require(set_fq(node_, fq_)));
    EXPECT_FALSE(require(remove_root_qdisc(node_, ifindex_, kHandle)));
    EXPECT_EQ(root_qdisc(), "pfifo");
}

} // namespace
} // namespace podlane::net::test
