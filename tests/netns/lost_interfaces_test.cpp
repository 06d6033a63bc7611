// SPDX-License-Identifier: MIT
// Pins that are lost while containers have several interfaces: until all of a container's are known again, the source
// of one is foreign to the programs on another.
#include "tests/harness/outcome.hpp"
#include "tests/netns/sources.hpp"

#include <future>

namespace podlane::test {
namespace {

TEST(LostInterfaces, ARepairLosesNoPacket) {
    constexpr const char *kQuestions = "ping -q -i 0.005 -c 1000 -W 2 ";
    SourceLab lab;
    std::vector<std::shared_ptr<Container>> pods;
    std::map<std::string, std::future<Output>> answers;
    for (int i = 0; i < 3; ++i) {
        const auto &pod = pods.emplace_back(lab.node().container());
        lab.add(pod, "eth0", 0);
        lab.add(pod, "net1", 1);
    }
    for (const auto &pod : pods)
        for (const bool ipv4 : {true, false})
            for (const int number : {0, 1}) {
                const net::Namespace &client = lab.client(number).ns();
                const std::string addr = to_string(SourceLab::addr(*pod, number == 0 ? "eth0" : "net1", ipv4));
                ASSERT_TRUE(wait_until([&] { return ping(client, addr); })) << addr;
                answers.emplace(addr, std::async(std::launch::async,
                                                 [&client, addr] { return run(client, words(kQuestions + addr)); }));
            }
    const auto are_asked = [&] {
        return std::ranges::all_of(answers, [](const auto &one) {
            return one.second.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
        });
    };
    int repairs = 0;
    for (; are_asked(); ++repairs) {
        std::filesystem::remove_all(lab.node().bpffs());
        const Output repaired = lab.node().podlanectl("repair");
        EXPECT_THAT(repaired.out, testing::HasSubstr("has lost its entries")) << repaired.err;
    }
    EXPECT_GE(repairs, 2) << "the test's own foundation";
    for (auto &[addr, answer] : answers)
        EXPECT_THAT(answer.get().out, testing::HasSubstr("1000 received")) << addr;
}

} // namespace
} // namespace podlane::test
