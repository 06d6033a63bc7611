// SPDX-License-Identifier: MIT
// A container with two interfaces: datagrams that are forged on one network do not pull the queries of the other there.
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 53;
constexpr std::uint16_t kFirst = 20000;
constexpr int kQueries = 20;

// Parameter: IPv4.
class AttackHijack : public testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        // As on nodes whose networks are routed asymmetrically: the source is not checked for the forger.
        for (const char *where : {"all", "default", "up0", "up1"})
            lab_.node().run("sysctl -qw net.ipv4.conf." + std::string(where) + ".rp_filter=0");
        lab_.node().run("ip -6 route add " + SourceLab::client_addr(0, false) + " via " +
                        SourceLab::on_link(0, 1, false));
        pod_ = lab_.node().container();
        lab_.add(pod_, "eth0", 0, {{"firstPacket", "host"}});
        lab_.add(pod_, "net1", 1, {{"firstPacket", "host"}});
    }
    [[nodiscard]] bool ipv4() const { return GetParam(); }
    [[nodiscard]] ip_addr addr(const std::string &ifname) const { return SourceLab::addr(*pod_, ifname, ipv4()); }
    [[nodiscard]] Endpoint resolver() const { return {ip(SourceLab::client_addr(0, ipv4())), kPort}; }
    // By whoever is on the network of net1, in the resolver's name, for every port that will ask.
    void forge() {
        const Json link = Json::parse(lab_.node().run("ip -j link show up1")).at(0);
        const Wire wire(lab_.provider(1).ns(), "eth0");
        for (int i = 0; i < 3 * kQueries; ++i) {
            const Ends forged{resolver().addr, addr("net1"), kPort, static_cast<std::uint16_t>(kFirst + i)};
            wire.send(frame(require(parse_mac(link.at("address").get<std::string>())), wire.mac(), udp(forged)));
        }
    }

    SourceLab lab_;
    std::shared_ptr<Container> pod_;
};

TEST_P(AttackHijack, QueriesOfBoundAndConnectedSocketsStayOnTheirInterface) {
    const EchoServer server(lab_.client(0).ns(), ipv4(), kPort);
    ASSERT_EQ(ask(pod_->ns(), Transport::udp, resolver()), 0);
    const std::uint64_t before = lab_.count(SourceLab::host_veth(*pod_, "net1"), REASON_RECEIVED_HOST);
    forge();
    ASSERT_TRUE(wait_until([&] {
        return lab_.count(SourceLab::host_veth(*pod_, "net1"), REASON_RECEIVED_HOST) >= before + 3 * kQueries;
    })) << "the forged datagrams do not arrive";
    for (const bool bound : {false, true}) {
        int answers = 0;
        for (int i = 0; i < kQueries; ++i) {
            const auto port = static_cast<std::uint16_t>(kFirst + i + (bound ? kQueries : 0));
            const Endpoint local{bound ? addr("eth0") : ip_addr{}, port};
            const Fd socket = open_socket(pod_->ns(), Transport::udp, ipv4(), local);
            ASSERT_EQ(connect_to(socket, resolver()), 0);
            ASSERT_EQ(send_text(socket, "query"), 0);
            answers += wait_until([&] { return recv(socket.get(), nullptr, 0, MSG_DONTWAIT) >= 0; }, quiet()) ? 1 : 0;
        }
        EXPECT_EQ(answers, kQueries) << (bound ? "bound" : "connected");
    }
    for (const ip_addr &caller : server.callers())
        EXPECT_EQ(to_string(caller), to_string(addr("eth0")));
}

INSTANTIATE_TEST_SUITE_P(All, AttackHijack, testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "V4" : "V6"); });

} // namespace
} // namespace podlane::test
