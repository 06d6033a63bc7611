// SPDX-License-Identifier: MIT
// "egress": "cluster" on one interface of a container, and another interface that its processes may send by.
#include "tests/harness/lost_packets.hpp"
#include "tests/netns/attacker.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;
constexpr int kPackets = 3;

// The network of eth0 does not let it out, and its MTU is the smaller one; net1 leads everywhere.
class AttackEgress : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        lab_.node().run("sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0");
        lab_.add(pod_, "eth0", 0,
                 {{"egress", "cluster"},
                  {"clusterCIDRs", {SourceLab::range(0, true, false), SourceLab::range(0, false, false)}},
                  {"mtu", 1400}});
        lab_.add(pod_, "net1", 1, {{"defaultRoute", true}});
        ASSERT_TRUE(ping(lab_.node().ns(), SourceLab::on_link(0, 1, ipv4()), 2))
            << "what is refused later is not waiting for a neighbour";
    }
    [[nodiscard]] static bool ipv4() { return GetParam(); }
    [[nodiscard]] static ip_addr client() { return ip(SourceLab::client_addr(0, ipv4())); }
    [[nodiscard]] ip_addr own(const std::string &ifname) const { return SourceLab::addr(*pod_, ifname, ipv4()); }
    // Whether the node sent an ICMP error, by which link, and whether it reached the client.
    [[nodiscard]] std::string lost() const {
        std::string text = lab_.node().podlanectl("counter list").out + lost_packets("node", lab_.node().ns()) +
                           lost_packets("pod", pod_->ns()) + lost_packets("client", lab_.client(0).ns());
        for (int number = 0; number < SourceLab::kProviders; ++number)
            text += lost_packets("provider" + std::to_string(number), lab_.provider(number).ns());
        return text;
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_ = lab_.node().container();
};

TEST_P(AttackEgress, NothingGetsOutByAnotherInterfaceHoweverLargeItIs) {
    const Fd accomplice = open_socket(lab_.client(0).ns(), Transport::udp, ipv4(), {client(), kPort});
    const ip_addr source = own("eth0");
    int sent = 0;
    for (const std::size_t bytes : {20, 99, 1420}) {
        as_hostile(pod_->ns(), Privilege::none, [&] { send_by("net1", source, client(), bytes, kPackets); });
        sent += kPackets;
        EXPECT_TRUE(wait_until([&] {
            return lab_.node().run("nft list table inet podlane-net0").find("packets " + std::to_string(sent) + " ") !=
                   std::string::npos;
        })) << bytes
            << lab_.node().run("nft list table inet podlane-net0");
    }
    EXPECT_EQ(receive(accomplice, 2000, quiet()).error, ETIMEDOUT);
    EXPECT_EQ(lab_.count(SourceLab::host_veth(*pod_, "net1"), REASON_SENT_SIBLING), static_cast<unsigned>(sent));
}

// A server's replies that the container's routes send by the interface with the larger MTU. What does not fit the way
// out is answered to the address that sent it.
TEST_P(AttackEgress, RepliesOfAnySizeReachTheClient) {
    (void)pod_->run(ipv4() ? "ip route add " + to_string(client()) + " via 169.254.1.1 dev net1"
                           : "ip route add " + to_string(client()) + " via fe80::ecee:eeff:feee:eeee dev net1");
    // The node sends its own errors by its routes: of several equal ones another might lead to another provider.
    lab_.node().run("ip route add " + to_string(client()) + " via " + SourceLab::on_link(0, 1, ipv4()));
    const EchoServer server(pod_->ns(), ipv4(), kPort);
    const std::uint32_t net1 = SourceLab::host_veth(*pod_, "net1");
    for (const char *mtu : {"1500", "1400"}) {
        SCOPED_TRACE(mtu);
        lab_.node().run(std::string("ip link set up0 mtu ") + mtu);
        (void)lab_.provider(0).run(std::string("ip link set eth0 mtu ") + mtu);
        const std::uint64_t before = lab_.count(net1, REASON_SENT_SIBLING);
        const Fd socket = connected(lab_.client(0).ns(), Transport::tcp, {own("eth0"), kPort});
        EXPECT_EQ(transfer(socket, std::size_t{4} << 20U), 0) << lost();
        EXPECT_GT(lab_.count(net1, REASON_SENT_SIBLING), before + 20);
    }
}

INSTANTIATE_TEST_SUITE_P(Family, AttackEgress, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
