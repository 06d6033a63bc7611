// SPDX-License-Identifier: MIT
// A flush of the flow cache, beside a neighbour on another uplink that speaks in the name of a host on the LAN.
#include "tests/netns/lan.hpp"

namespace podlane::test {
namespace {

class LanFlush : public Lan {};

// A socket that is bound and not connected: no query shows by which interface its flow is.
TEST_P(LanFlush, LeavesAFlowToItsUplink) {
    for (const char *where : {"all", "up0"})
        node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
    const EchoServer server(host_->ns(), GetParam(), kPort);
    const Wire wire(lab_.provider(0).ns(), "eth0");
    const Mac gateway = Wire(node().ns(), "up0").mac();
    const auto pod = add_pod(Json::object());
    const std::uint32_t veth = SourceLab::host_veth(*pod, "net1");
    const Fd socket = open_socket(pod->ns(), Transport::udp, GetParam(), {addr(*pod), 30000});
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(send_datagram(socket, {host_addr(), kPort}, "hello"));
        std::string text;
        EXPECT_TRUE(wait_until([&] { return (text = receive(socket).text) == "hello" || text.empty(); }));
        ASSERT_EQ(text, "hello") << i;
        ASSERT_EQ(node().podlanectl("path flush --all").rc, 0);
        const std::uint64_t before = lab_.count(veth, REASON_RECEIVED_HOST);
        wire.send(frame(gateway, wire.mac(), udp({host_addr(), addr(*pod), kPort, 30000})));
        ASSERT_TRUE(wait_until([&] { return lab_.count(veth, REASON_RECEIVED_HOST) > before; }))
            << "it does not arrive";
    }
}

INSTANTIATE_TEST_SUITE_P(All, LanFlush, testing::Bool(), family_name);

} // namespace
} // namespace podlane::test
