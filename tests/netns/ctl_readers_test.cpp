// SPDX-License-Identifier: MIT
// Reading is safe: it changes nothing, keeps nobody waiting, and copes with what comes and goes meanwhile.
#include "tests/harness/bpf.hpp"
#include "tests/netns/reading.hpp"

#include "loader/pins.hpp"

namespace podlane::test {
namespace {

class ReadersTest : public CtlTest {
  protected:
    // All entries of all maps, but of what counts: the containers' own stacks speak now and then.
    [[nodiscard]] MapEntries entries() const {
        return map_entries(node_.bpffs(), {PODLANE_MAP_EVENTS, PODLANE_MAP_COUNTERS, PODLANE_MAP_LIMITS});
    }
    // Calls that end by themselves.
    static std::vector<std::string> calls() {
        std::vector<std::string> all;
        each_reading([&](const ctl::Noun &noun, const ctl::Command &command) {
            if (noun.name != "monitor" && noun.name != "top")
                all.push_back(asked_of_web(noun, command));
        });
        all.insert(all.end(), {"endpoint list", "counter list", "path list", "map dump paths", "history list"});
        return all;
    }
};

TEST_F(ReadersTest, ReadingChangesNothing) {
    const Pod web = make({{"ingressRate", 8000000}, {"ingressBurst", 8000000}}, named("shop", "web-0"));
    const Pod db = make(Json::object(), named("shop", "db-0"));
    ASSERT_TRUE(ping(web.container->ns(), db.text4()));
    const auto before = entries();
    const std::string state = node_.state();
    for (const std::string &call : calls()) {
        EXPECT_THAT(ctl(call), prints(0)) << call;
        EXPECT_EQ(node_.state(), state) << call;
        EXPECT_TRUE(entries() == before) << call << " changes a map";
    }
}

// Whoever holds the lock of ADDs, DELs and upgrades is not waited for, and so does not wait either.
TEST_F(ReadersTest, ReadersTakeNoLock) {
    const Pod made = make(Json::object(), named("shop", "web-0"));
    const Lock lock = require(Lock::exclusive(node_.bpffs()));
    for (const std::string &call : calls()) {
        std::vector<std::string> argv = {"timeout", "60"};
        for (const std::string &word : ctl_argv(node_.bpffs(), call))
            argv.push_back(word);
        EXPECT_THAT(run(node_.ns(), argv), prints(0)) << call;
    }
}

// Pods come and go while everything is read again and again: neither side fails.
TEST_F(ReadersTest, ReadersWorkBesideAddsAndDels) {
    const Pod web = make(Json::object(), named("shop", "web-0"));
    constexpr int kRounds = 6;
    std::atomic<int> running = 2;
    std::vector<std::thread> plugins;
    for (int i = 0; i < 2; ++i)
        plugins.emplace_back([&, container = node_.container()] {
            for (int round = 0; round < kRounds; ++round) {
                EXPECT_THAT(add(*container), succeeds());
                EXPECT_THAT(del(*container), succeeds());
            }
            --running;
        });
    std::size_t read = 0;
    const auto all = calls();
    while (running > 0 || read < all.size()) {
        const std::string &call = all.at(read++ % all.size());
        const Output output = ctl(call);
        const bool may_find = call.starts_with("doctor") || call.starts_with("status"); // of a pod that is half gone
        EXPECT_TRUE(output.rc == 0 || (may_find && output.rc == 1 && output.err.empty()))
            << call << ": " << output.out << output.err;
    }
    for (std::thread &one : plugins)
        one.join();
    EXPECT_GE(read, all.size());
}

} // namespace
} // namespace podlane::test
