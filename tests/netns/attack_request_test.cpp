// SPDX-License-Identifier: MIT
// A hostile pod floods the path cache beside a container with several interfaces, which has not replied yet.
#include "tests/netns/attacker.hpp"
#include "tests/netns/sources.hpp"

namespace podlane::test {
namespace {

constexpr std::uint16_t kPort = 53;
constexpr std::uint16_t kCallersPort = 30000;

struct Case {
    bool ipv4;
    bool own_uplink; // of net1's network; else the host stack delivers
};

class AttackRequest : public testing::TestWithParam<Case> {
  protected:
    [[nodiscard]] bool ipv4() const { return GetParam().ipv4; }
    // eth0 behind provider 0, net1 behind provider 1. A small cache is evicted soon.
    std::shared_ptr<Container> add_pod() {
        const Json first = {{"maxPaths", 4096}, {"firstPacket", "host"}};
        Json second = first;
        if (GetParam().own_uplink)
            second.update({{"uplinks", nullptr},
                           {"uplink", "up1"},
                           {"gateway", {SourceLab::on_link(1, 1, true), SourceLab::on_link(1, 1, false)}}});
        auto pod = lab_.node().container();
        lab_.add(pod, "eth0", 0, first);
        lab_.add(pod, "net1", 1, second);
        return pod;
    }
    [[nodiscard]] bool is_cached(std::uint32_t ifindex) const { // without a lookup, which would keep it
        const Paths paths = require(open_paths(lab_.node().bpffs(), Access::read_only));
        return std::ranges::any_of(require(paths.keys()), [&](const path_key &one) {
            return one.ifindex == ifindex && one.peer_port == htons(kCallersPort);
        });
    }

    SourceLab lab_;
};

// An unbound socket replies from the address that was asked: conntrack knows what the host stack has delivered, and no
// pod can evict what an uplink has.
TEST_P(AttackRequest, IsAnsweredFromTheAddressThatWasAddressedAfterAFlood) {
    const auto hostile = add_pod();
    const auto pod = add_pod();
    const std::uint32_t net1 = SourceLab::host_veth(*pod, "net1");
    const Endpoint asked{SourceLab::addr(*pod, "net1", ipv4()), kPort};
    const Endpoint caller{ip(SourceLab::client_addr(1, ipv4())), kCallersPort};
    ASSERT_TRUE(gets_answer(lab_.client(1).ns(), "icmp", asked.addr, kPort)); // neighbours are known
    const Fd server = open_socket(pod->ns(), Transport::udp, ipv4(), {{}, kPort});
    const Fd client = connected(lab_.client(1).ns(), Transport::udp, asked, caller);
    ASSERT_EQ(send_text(client, "question"), 0);
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    auto *const to = reinterpret_cast<sockaddr *>(&from); // NOLINT
    std::array<char, 64> text{};
    ASSERT_TRUE(wait_until([&] {
        return recvfrom(server.get(), text.data(), text.size(), MSG_DONTWAIT, to, &size) > 0; // NOLINT
    }));
    ASSERT_TRUE(is_cached(net1));
    std::atomic<bool> stop = false;
    std::thread attack([&] {
        flood(hostile->ns(), {ip(SourceLab::client_addr(0, ipv4())), ip(SourceLab::client_addr(2, ipv4()))}, ipv4(),
              stop);
    });
    EXPECT_TRUE(wait_until([&] { return !is_cached(net1); }));
    stop = true;
    attack.join();
    ASSERT_EQ(sendto(server.get(), "answer", 6, 0, to, size), 6);
    EXPECT_EQ(receive(client).text, "answer");
}

INSTANTIATE_TEST_SUITE_P(All, AttackRequest,
                         testing::Values(Case{true, false}, Case{false, false}, Case{true, true}, Case{false, true}),
                         [](const auto &info) {
                             return std::string(info.param.ipv4 ? "V4" : "V6") +
                                    (info.param.own_uplink ? "OwnUplink" : "Routed");
                         });

} // namespace
} // namespace podlane::test
