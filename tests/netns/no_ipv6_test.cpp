// SPDX-License-Identifier: MIT
// On a kernel that was booted without IPv6 (ipv6.disable=1), as hardened nodes are, all of IPv4 works.
#include "tests/harness/outcome.hpp"
#include "tests/harness/pod.hpp"
#include "tests/harness/talk.hpp"

#include <unistd.h>

namespace podlane::test {
namespace {

class NoIpv6 : public testing::Test {
  protected:
    void SetUp() override {
        if (access("/proc/net/if_inet6", F_OK) == 0)
            GTEST_SKIP() << "this kernel has IPv6; tests/kernels runs this under one without";
        must_run(node_.ns(), words("sysctl -qw net.ipv4.ip_forward=1"));
        node_.run("ip link add up0 type veth peer name eth0 netns " + outside_->path());
        node_.run("ip addr add 203.0.113.2/24 dev up0");
        node_.run("ip link set up0 up");
        outside_->run("ip addr add 203.0.113.1/24 dev eth0");
        outside_->run("ip link set eth0 up");
        node_.run("ip route add default via 203.0.113.1");
    }
    [[nodiscard]] Json config(const Json &ranges) const {
        Json all = node_.config({{"uplinks", {"up0"}},
                                 {"clusterCIDRs", {"198.18.0.0/16"}},
                                 {"ipMasq", true},
                                 {"capabilities", {{"bandwidth", true}}},
                                 {"egressRate", 100000000},
                                 {"egressBurst", 1000000},
                                 {"ipam", {{"ranges", ranges}}}});
        all.erase("firstPacket");
        return all;
    }
    const Json ipv4_ = {{{{"subnet", "198.18.9.0/24"}}}};

    Node node_;
    std::shared_ptr<Container> outside_ = node_.container();
};

TEST_F(NoIpv6, Ipv4IsWhole) {
    const Json network = config(ipv4_);
    std::vector<std::pair<std::shared_ptr<Container>, Json>> pods;
    for (int i = 0; i < 2; ++i) {
        auto container = node_.container();
        const Reply reply = node_.cni("ADD", network, *container);
        ASSERT_EQ(reply.rc, 0) << reply;
        pods.emplace_back(std::move(container), reply.json);
    }
    const auto address = pods[1].second.at("ips").at(0).at("address").get<std::string>();
    EXPECT_TRUE(ping(pods[0].first->ns(), address.substr(0, address.find('/'))));
    EXPECT_TRUE(ping(pods[0].first->ns(), "203.0.113.1")) << "masqueraded";
    for (const auto &[container, result] : pods) {
        Json with_result = network;
        with_result["prevResult"] = result;
        EXPECT_THAT(node_.cni("CHECK", with_result, *container), succeeds());
    }
    EXPECT_THAT(node_.podlanectl("repair"), prints(0));
    EXPECT_THAT(node_.podlanectl("upgrade"), prints(0));
    for (const auto &[container, result] : pods)
        EXPECT_THAT(node_.cni("DEL", network, *container), succeeds());
    EXPECT_TRUE(node_.leased().empty());
    EXPECT_TRUE(node_.records().empty());
}

TEST_F(NoIpv6, AnAddressOfItIsRefusedWithTheReason) {
    Json both = ipv4_;
    both.push_back({{{"subnet", "2001:db8:9::/64"}}});
    const auto container = node_.container();
    const Reply refused = node_.cni("ADD", config(both), *container);
    EXPECT_THAT(refused, fails_with(100, {"adding address 2001:db8:9::2/128"}));
    EXPECT_THAT(refused.details(), testing::HasSubstr("ipv6.disable"));
    EXPECT_TRUE(node_.leased().empty());
}

} // namespace
} // namespace podlane::test
