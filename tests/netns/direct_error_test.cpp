// SPDX-License-Identifier: MIT
// With "firstPacket": "direct", a router's ICMP errors reach the pod, although conntrack does not know the connection.
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

class DirectError : public LabTest {
  protected:
    static constexpr std::uint16_t kPort = 7;

    // The peer answers as a router that has no route to the pod of another node.
    void prepare() override {
        const auto outside = [&](const std::string &command) { (void)must_run(lab_->outside(), words(command)); };
        outside("ip route add " + pod_range() + " via " + to_string(node_addr()));
        outside("ip route add unreachable " + remote_range());
        outside("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        lab_->node().run("ip route replace default via 203.0.113.99"); // not by the router
        lab_->node().run("ip -6 route replace default via 2001:db8:cafe::99");
        lab_->node().run("ip route add " + remote_range() + " via " + to_string(outside_addr()));
        ASSERT_TRUE(wait_until([&] { return ping(lab_->node().ns(), outside_addr()); }));
        rule("-A FORWARD -m conntrack --ctstate INVALID -j DROP");
        pod_ = add_pod({{"firstPacket", "direct"}, {"clusterCIDRs", {remote_range(), Lab::kPods4, Lab::kPods6}}});
    }
    void rule(const std::string &words) { lab_->node().run(iptables() + " -w " + words); }
    [[nodiscard]] std::string remote_range() const { return ipv4() ? "198.18.20.0/24" : "2001:db8:20::/64"; }
    [[nodiscard]] Endpoint remote() const { return {ip(ipv4() ? "198.18.20.7" : "2001:db8:20::7"), kPort}; }

    Pod pod_;
};

TEST_P(DirectError, OfARouterEndsAConnectionAtOnce) {
    const Fd socket = open_socket(pod_.ns(), Transport::tcp, ipv4());
    EXPECT_EQ(connect_to(socket, remote()), ipv4() ? EHOSTUNREACH : ENETUNREACH);
    EXPECT_GT(lab_->count(pod_, REASON_SENT_UPLINK), 0U) << "the fast path has sent its SYN";
}

INSTANTIATE_TEST_SUITE_P(All, DirectError, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
