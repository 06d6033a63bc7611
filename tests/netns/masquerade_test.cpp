// SPDX-License-Identifier: MIT
// Pods reach the outside under the node's address, while they reach each other on the fast path.
#include "tests/netns/lab.hpp"

namespace podlane::test {
namespace {

enum class Rules { iptables, nftables };

class Masquerade : public LabTestOf<std::tuple<LabParameter, Rules>> {
  protected:
    [[nodiscard]] const LabParameter &lab_parameter() const override { return std::get<0>(GetParam()); }

    void masquerade() {
        const std::string ip = ipv4() ? "ip" : "ip6";
        if (std::get<1>(GetParam()) == Rules::iptables)
            lab_->node().run(iptables() + " -t nat -A POSTROUTING -s " + pod_range() + " ! -d " + pod_range() +
                             " -j MASQUERADE");
        else
            lab_->node().run("nft -f -", "table " + ip +
                                             " outgoing { chain post { type nat hook postrouting priority 100; " + ip +
                                             " saddr " + pod_range() + " " + ip + " daddr != " + pod_range() +
                                             " masquerade; }\n}\n");
    }
};

TEST_P(Masquerade, OutsideSeesTheNode) {
    const Pod a = add_pod();
    const EchoServer outside(lab_->outside(), ipv4(), 7);
    EXPECT_EQ(ask(a.ns(), Transport::udp, {node_addr(), 9}), ECONNREFUSED);
    masquerade();
    for (const Transport transport : {Transport::tcp, Transport::udp})
        EXPECT_EQ(ask(a.ns(), transport, {outside_addr(), 7}), 0) << to_string(transport);
    EXPECT_TRUE(ping(a.ns(), outside_addr()));
    ASSERT_EQ(outside.callers().size(), 2U);
    for (const ip_addr &caller : outside.callers())
        EXPECT_EQ(to_string(caller), to_string(node_addr()));
}

TEST_P(Masquerade, TransferOutsideAndDirectTrafficGoOnSideBySide) {
    const Pod a = add_pod();
    const Pod b = add_pod();
    masquerade();
    const EchoServer outside(lab_->outside(), ipv4(), 7);
    const EchoServer inside(b.ns(), ipv4(), 7);
    const Fd out = connected(a.ns(), Transport::tcp, {outside_addr(), 7});
    EXPECT_EQ(transfer(out, big() / 4, [&] { EXPECT_EQ(ask(a.ns(), Transport::tcp, {addr(b), 7}), 0); }), 0);
    EXPECT_GT(lab_->count(a, REASON_SENT_DIRECT), 0U);
    for (const ip_addr &caller : inside.callers())
        EXPECT_EQ(to_string(caller), to_string(addr(a))) << "pods see each other's own addresses";
}

TEST_P(Masquerade, UnreachableOutsideIsAnErrorAtTheCaller) {
    const Pod a = add_pod();
    masquerade();
    EXPECT_EQ(ask(a.ns(), Transport::udp, {outside_addr(), 9}), ECONNREFUSED);
    EXPECT_EQ(ask(a.ns(), Transport::tcp, {outside_addr(), 9}), ECONNREFUSED);
}

INSTANTIATE_TEST_SUITE_P(All, Masquerade,
                         testing::Combine(lab_parameters(), testing::Values(Rules::iptables, Rules::nftables)),
                         [](const auto &info) {
                             const auto *rules = std::get<1>(info.param) == Rules::iptables ? "Iptables" : "Nftables";
                             return lab_parameter_text(std::get<0>(info.param)) + rules;
                         });

} // namespace
} // namespace podlane::test
