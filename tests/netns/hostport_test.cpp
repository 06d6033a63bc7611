// SPDX-License-Identifier: MIT
// hostPort by the real `portmap` plugin, chained behind Podlane.
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kHostPort = 8081;
constexpr std::uint16_t kContainerPort = 8080;

class HostPort : public LabTest {
  protected:
    Pod add_served_pod() {
        Json mappings = Json::array();
        for (const char *protocol : {"tcp", "udp"})
            mappings.push_back({{"hostPort", kHostPort}, {"containerPort", kContainerPort}, {"protocol", protocol}});
        return lab_->add_pod({lab_->node().config(with_attach()),
                              {{"type", "portmap"}, {"snat", true}, {"capabilities", {{"portMappings", true}}}}},
                             {{"portMappings", mappings}});
    }
    void expect_served(const net::Namespace &from, const ip_addr &addr) {
        for (const Transport transport : {Transport::tcp, Transport::udp})
            for (int i = 0; i < 3; ++i)
                EXPECT_EQ(ask(from, transport, {addr, kHostPort}), 0)
                    << to_string(transport) << " to " << to_string(addr);
    }
};

TEST_P(HostPort, AnotherPodIsServedAndStaysFastOtherwise) {
    const Pod served = add_served_pod();
    const Pod other = add_pod();
    const EchoServer server(served.ns(), ipv4(), kContainerPort);
    expect_served(other.ns(), node_addr());
    EXPECT_GT(lab_->count(served, REASON_HOST_PATH), 0U);
    EXPECT_EQ(lab_->count(served, REASON_SENT_DIRECT), 0U);

    EXPECT_EQ(ask(other.ns(), Transport::tcp, {addr(served), kContainerPort}), 0);
    EXPECT_GT(lab_->count(served, REASON_SENT_DIRECT), 0U);
}

TEST_P(HostPort, ServedPodReachesItself) {
    const Pod served = add_served_pod();
    const EchoServer server(served.ns(), ipv4(), kContainerPort);
    expect_served(served.ns(), node_addr());
}

TEST_P(HostPort, HostIsServed) {
    const Pod served = add_served_pod();
    const EchoServer server(served.ns(), ipv4(), kContainerPort);
    expect_served(lab_->node().ns(), node_addr());
    if (ipv4()) // there is no route_localnet for ::1
        expect_served(lab_->node().ns(), ip("127.0.0.1"));
}

TEST_P(HostPort, OutsideIsServedUnderItsOwnAddress) {
    const Pod served = add_served_pod();
    const EchoServer server(served.ns(), ipv4(), kContainerPort);
    expect_served(lab_->outside(), node_addr());
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(outside_addr()));
}

INSTANTIATE_TEST_SUITE_P(All, HostPort, lab_parameters(), lab_parameter_name);

} // namespace
} // namespace podlane::test
