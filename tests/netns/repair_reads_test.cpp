// SPDX-License-Identifier: MIT
// How often the records on disk are read by what restores many pods: each of them the same number of times, however
// many there are.
#include "tests/netns/ctl.hpp"

namespace podlane::test {
namespace {

class RepairReadsTest : public CtlTest {
  protected:
    using Break = std::function<void(const std::vector<Pod> &)>;

    // Of the records of `count` pods that are broken at once.
    [[nodiscard]] int reads(int count, const Break &damage, const std::string &by) {
        std::vector<Pod> pods;
        for (int i = 0; i < count; ++i)
            pods.push_back(make(keys_));
        const auto beside = node_.container();
        const auto last = make(keys_).container;
        damage(pods);
        const std::string trace = node_.dir() + "/trace";
        std::vector<std::string> argv = {"strace", "-f", "-qq", "-e", "trace=openat", "-o", trace};
        const bool is_verb = by == "ADD" || by == "DEL";
        const auto command =
            is_verb ? std::vector<std::string>{node_.plugins() + "/podlane"} : ctl_argv(node_.bpffs(), by);
        argv.insert(argv.end(), command.begin(), command.end());
        Variables variables = attachment(by == "ADD" ? *beside : *last);
        variables.insert({{"CNI_COMMAND", by}, {"CNI_PATH", node_.plugins()}});
        const Output done = run(node_.ns(), argv, node_.config(keys_).dump(), is_verb ? variables : Variables{});
        EXPECT_EQ(done.rc, 0) << done.out << done.err;
        for (const Pod &pod : pods)
            EXPECT_THAT(check(pod, keys_), succeeds());
        int opened = 0;
        std::istringstream calls(read_file(trace));
        for (std::string line; std::getline(calls, line);)
            for (const Pod &pod : pods)
                opened += line.find("/" + pod.container->id() + ":eth0\"") != std::string::npos ? 1 : 0;
        if (by == "ADD")
            pods.push_back({.container = beside});
        if (by != "DEL")
            pods.push_back({.container = last});
        for (const Pod &pod : pods)
            EXPECT_THAT(del(*pod.container, keys_), succeeds());
        return opened;
    }
    void expect_as_often_for_each(const Break &damage, const std::string &by) {
        SCOPED_TRACE(by);
        const int few = reads(2, damage, by), many = reads(8, damage, by);
        EXPECT_GT(few, 0) << "the test's own foundation";
        EXPECT_EQ(many, 4 * few);
    }

    const Json keys_ = {{"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/16"}}};
};

TEST_F(RepairReadsTest, LostPins) {
    const auto lose_pins = [&](const std::vector<Pod> &) { fs::remove_all(node_.bpffs()); };
    for (const std::string by : {"repair", "ADD", "DEL"})
        expect_as_often_for_each(lose_pins, by);
}

TEST_F(RepairReadsTest, PodsWithoutTheirRoutes) {
    const auto lose_routes = [](const std::vector<Pod> &pods) {
        for (const Pod &pod : pods)
            pod.container->run("ip route flush default");
    };
    expect_as_often_for_each(lose_routes, "repair");
}

} // namespace
} // namespace podlane::test
