// SPDX-License-Identifier: MIT
// Rules of the host on packet marks lead connections to a proxy in another pod, which answers with the address that the
// client has called. A program's query of the routes knows no mark.
#include "tests/netns/service_test.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 7;

class MarkedRoute : public ServiceTest {
  protected:
    MarkedRoute() : ServiceTest(kPort, kPort) {}
};

TEST_P(MarkedRoute, ATransparentProxyGetsEveryPacket) {
    const Pod proxy = add_pod({{"antiSpoof", false}});
    const std::string command = ipv4() ? "ip" : "ip -6", link = proxy.host_ifname;
    for (const std::string &change :
         {command + " route add " + to_string(addr(server_)) + " via " + to_string(addr(proxy)) + " dev " + link +
              " onlink table 77",
          command + " rule add fwmark 7 lookup 77",
          "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf." + link + ".rp_filter=0"})
        lab_->node().run(change);
    rule("-t mangle -A PREROUTING -i " + client_.host_ifname + " -p tcp --dport 7 -j MARK --set-mark 7");
    (void)must_run(proxy.ns(), words(iptables() + " -w -t nat -A PREROUTING -p tcp --dport 7 -j REDIRECT"));
    const EchoServer server(proxy.ns(), ipv4(), kPort);
    const Fd socket = connected({addr(server_), kPort});
    EXPECT_EQ(transfer(socket, 1 << 20), 0);
    EXPECT_EQ(server.callers().size(), 1U);
    EXPECT_EQ(lab_->count(client_, REASON_SENT_DIRECT), 0U);
}

INSTANTIATE_TEST_SUITE_P(All, MarkedRoute, testing::Values(LabParameter{"auto", true}, LabParameter{"auto", false}),
                         lab_family_name);

} // namespace
} // namespace podlane::test
