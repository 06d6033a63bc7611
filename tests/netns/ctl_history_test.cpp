// SPDX-License-Identifier: MIT
// podlanectl history: what the plugin writes down of its calls, and what one is shown of it.
#include "tests/netns/ctl.hpp"

#include "maps/history.hpp"

namespace podlane::test {
namespace {

class HistoryTest : public CtlTest {
  protected:
    [[nodiscard]] Json history(const std::string &options = "") const { return ctl_json("history list " + options); }
};

TEST_F(HistoryTest, HasEachCallWithItsStepsTheSlowestFirst) {
    const Variables web = named("shop", "web-0");
    const Pod made = make(Json::object(), web);
    ASSERT_EQ(check(made, Json::object(), web).rc, 0);
    ASSERT_EQ(del(*made.container, Json::object(), web).rc, 0);
    const Json all = history();
    ASSERT_EQ(all.size(), 3U) << all.dump(1);
    for (const auto &[index, verb] : {std::pair{0, "DEL"}, std::pair{1, "CHECK"}, std::pair{2, "ADD"}}) {
        const Json &one = all[static_cast<std::size_t>(index)];
        EXPECT_EQ(one.at("verb"), verb);
        EXPECT_EQ(one.at("outcome"), "ok");
        EXPECT_EQ(one.at("pod_name"), "web-0");
        EXPECT_EQ(one.at("pod_namespace"), "shop");
        EXPECT_EQ(one.at("container_id"), made.container->id());
        EXPECT_EQ(one.at("network"), "pods");
        std::uint64_t sum = 0;
        std::uint64_t before = UINT64_MAX;
        for (const Json &step : one.at("steps")) {
            EXPECT_LE(step.at("duration_ns"), before) << one.dump(1);
            before = step.at("duration_ns");
            sum += before;
        }
        EXPECT_LE(sum, one.at("duration_ns"));
        EXPECT_GT(sum * 10, one.at("duration_ns").get<std::uint64_t>() * 9) << "steps miss time: " << one.dump(1);
    }
    const auto has_step = [](const Json &one, const std::string &name) {
        return find(one.at("steps"), "step", name).is_object();
    };
    for (const char *step : {"ipam", "load", "link", "pod", "host", "programs", "entries"})
        EXPECT_TRUE(has_step(all[2], step)) << step << " in " << all[2].dump(1);
    EXPECT_TRUE(has_step(all[0], "link"));
    EXPECT_FALSE(has_step(all[0], "load"));
}

TEST_F(HistoryTest, SaysWhatFailedAndWhy) {
    const Pod made = make();
    const Reply again = add(*made.container);
    ASSERT_EQ(again.code(), 104);
    const Json newest = history("--last 1").at(0);
    EXPECT_EQ(newest.at("outcome"), "failed");
    EXPECT_EQ(newest.at("error_code"), 104);
    EXPECT_EQ(newest.at("message"), again.message().substr(0, OPERATION_MESSAGE_SIZE - 1));
    EXPECT_THAT(ctl("history").out, HasSubstr("error 104: "));
}

TEST_F(HistoryTest, SelectsByWhoThePodIs) {
    const Pod web = make(Json::object(), named("shop", "web-0"));
    const Pod db = make(Json::object(), named("shop", "db-0"));
    EXPECT_EQ(history("shop/web-0").size(), 1U);
    EXPECT_EQ(history("--namespace shop").size(), 2U);
    EXPECT_EQ(history("--container " + db.container->id()).size(), 1U);
    EXPECT_EQ(history("--address " + db.text4()).at(0).at("pod_name"), "db-0");
    EXPECT_EQ(history("--network pods").size(), 2U);
    EXPECT_EQ(history("--pod nobody").size(), 0U);
    EXPECT_EQ(history("--last 1").size(), 1U);
}

// Many writers at once: each call keeps its number, the oldest give way, and none is seen half-written.
TEST_F(HistoryTest, SurvivesManyWritersAndAReader) {
    (void)make();
    constexpr std::uint64_t kWriters = 4;
    constexpr std::uint64_t kEach = 5000;
    const auto write = [&](std::uint8_t letter) {
        HistoryWriter map = require(HistoryWriter::open(node_.bpffs()));
        operation done{};
        std::memset(done.container_id, letter, sizeof done.container_id - 1);
        std::memset(done.pod_name, letter, sizeof done.pod_name - 1);
        for (std::uint64_t i = 0; i < kEach; ++i)
            map.append(done);
    };
    std::vector<std::thread> writers;
    for (std::uint64_t i = 0; i < kWriters; ++i)
        writers.emplace_back(write, static_cast<std::uint8_t>('a' + i));
    std::uint64_t newest = 0;
    while (newest < kWriters * kEach / 2) {
        const auto all = require(History::read(node_.bpffs())).operations();
        for (const operation &one : all)
            ASSERT_TRUE(one.number == 1 || one.container_id[0] == one.pod_name[sizeof one.pod_name - 2]) << one.number;
        newest = all.empty() ? newest : all.front().number;
    }
    for (std::thread &writer : writers)
        writer.join();
    const History reader = require(History::read(node_.bpffs()));
    const auto all = reader.operations();
    constexpr std::size_t kMetInOnePlace = 16; // where a writer slept while 256 others wrote
    EXPECT_GE(all.size(), std::size_t{HISTORY_OPERATIONS} - kMetInOnePlace);
    EXPECT_GE(all.front().number, kWriters * kEach + 1 - kMetInOnePlace);
    std::uint64_t added = 0;
    for (const std::uint64_t bucket : reader.totals(OPERATION_ADD, false).buckets)
        added += bucket;
    EXPECT_EQ(added, kWriters * kEach + 1);
}

TEST_F(HistoryTest, IsNotNeeded) {
    const Pod made = make();
    ASSERT_EQ(unlink(pin_path(node_.bpffs(), PODLANE_MAP_HISTORY).c_str()), 0);
    EXPECT_EQ(del(*made.container).rc, 0);
}

} // namespace
} // namespace podlane::test
