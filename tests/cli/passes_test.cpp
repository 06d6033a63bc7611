// SPDX-License-Identifier: MIT
// Which findings of several passes over a node count: those that are found twice, and those that only a pass found
// which saw all, beside others that could not see where they are.
#include "tools/podlanectl/doctor/passes.hpp"
#include "tests/harness/test.hpp"

namespace podlane::ctl::doctor {
namespace {

constexpr Check kRoute{"host-route", Severity::wrong, "", "", nullptr, nullptr};
constexpr Check kProgram{"program", Severity::wrong, "", "", nullptr, nullptr};
constexpr Check kPlan{kPlanCheck, Severity::wrong, "", "", nullptr, nullptr};
constexpr Check kOrphan{"orphan", Severity::wrong, "", "", nullptr, nullptr};
constexpr Check kRules{"forward-rules", Severity::notice, "", "", nullptr, nullptr};

Row found(const Check &check, const std::string &pod, const std::string &what = "gone") {
    return {.check = &check, .finding = {.what = what}, .pod = pod};
}
Row unchecked(const Check &check, const std::string &pod, const std::string &why = "EIO") {
    return {.check = &check, .finding = {.what = "cannot be checked: " + why, .is_unchecked = true}, .pod = pod};
}
// Of which nothing was seen but that there are pins.
Examined blind() { return {.rows = {unchecked(kProgram, "")}, .is_partial = true}; }
Examined saw(std::vector<Row> rows) { return {.rows = std::move(rows)}; }

// "host-route a", or "host-route a?" if it cannot be checked. Each look has the next of `passes`, and all are needed.
std::vector<std::string> reported(const std::vector<Examined> &passes) {
    std::size_t looked = 0;
    const auto result = examine_in_passes([&](bool only_settled) -> Result<Examined> {
        EXPECT_EQ(only_settled, looked > 0);
        if (looked == passes.size())
            return Error{ErrorCode::internal, "one pass too many"};
        return passes.at(looked++);
    });
    EXPECT_EQ(looked, passes.size());
    std::vector<std::string> words;
    if (!result)
        return {result.error().message};
    for (const Row &row : result->rows)
        words.push_back(std::string(row.check->name) + " " + row.pod + (row.finding.is_unchecked ? "?" : ""));
    return words;
}

TEST(Passes, WhatIsFoundTwiceCounts) {
    EXPECT_THAT(reported({saw({})}), IsEmpty());
    EXPECT_THAT(reported({saw({found(kRoute, "a")}), saw({found(kRoute, "a")})}), ElementsAre("host-route a"));
    EXPECT_THAT(reported({saw({found(kRoute, "a")}), saw({})}), IsEmpty()) << "an ADD or a DEL was under way";
    EXPECT_THAT(reported({saw({found(kRoute, "a")}), saw({found(kRoute, "b"), found(kProgram, "a")})}), IsEmpty());
    EXPECT_THAT(reported({saw({found(kOrphan, "", "full: 7 of 9")}), saw({found(kOrphan, "", "full: 8 of 9")})}),
                ElementsAre("orphan "));
}

TEST(Passes, NoticesAreThoseOfTheLastOne) {
    EXPECT_THAT(reported({saw({found(kRules, "")})}), ElementsAre("forward-rules "));
    EXPECT_THAT(reported({saw({unchecked(kRules, "")})}), ElementsAre("forward-rules ?"));
    EXPECT_THAT(reported({saw({found(kRoute, "a"), found(kRules, "", "one")}),
                          saw({found(kRoute, "a"), found(kRules, "", "two")})}),
                ElementsAre("host-route a", "forward-rules "));
}

TEST(Passes, AFailedOneHidesNoFinding) {
    const Examined seen = saw({found(kRoute, "a")});
    EXPECT_THAT(reported({blind(), seen, seen}), ElementsAre("host-route a"));
    EXPECT_THAT(reported({seen, blind(), seen}), ElementsAre("host-route a"));
    for (const Row &failed : {unchecked(kRoute, "a"), unchecked(kProgram, "a")}) {
        EXPECT_THAT(reported({saw({failed}), seen, seen}), ElementsAre("host-route a"));
        EXPECT_THAT(reported({seen, saw({failed}), seen}), ElementsAre("host-route a"));
    }
    EXPECT_THAT(reported({saw({unchecked(kProgram, "")}), saw({found(kOrphan, "")}), saw({found(kOrphan, "")})}),
                ElementsAre("orphan "));
}

TEST(Passes, AFailedOneThatIsFollowedByAWholeOneIsNone) {
    EXPECT_THAT(reported({blind(), saw({})}), IsEmpty());
    EXPECT_THAT(reported({saw({found(kRoute, "a")}), blind(), saw({})}), IsEmpty());
    EXPECT_THAT(reported({blind(), saw({found(kRoute, "a")}), saw({found(kRoute, "b")})}), IsEmpty())
        << "neither was found twice, and each was looked for twice";
}

// Beside one endpoint that cannot be examined, ADDs and DELs of others go on.
TEST(Passes, AFailedCheckHidesNoOtherEndpoint) {
    EXPECT_THAT(reported({saw({unchecked(kRoute, "b")}), saw({unchecked(kRoute, "b"), found(kRoute, "a")})}),
                ElementsAre("host-route b?"));
    EXPECT_THAT(reported({saw({unchecked(kRules, ""), found(kOrphan, "")}), saw({unchecked(kRules, "")})}),
                ElementsAre("forward-rules ?"));
}

TEST(Passes, TheReasonOfAFailedCheckMayBeAnother) {
    EXPECT_THAT(reported({saw({unchecked(kRoute, "a", "EIO")}), saw({unchecked(kRoute, "a", "ENOMEM")})}),
                ElementsAre("host-route a?"));
}

// Anything else of the endpoint hides it.
TEST(Passes, ThePlanIsComparedAgain) {
    const Examined plan = saw({found(kPlan, "a")});
    EXPECT_THAT(reported({saw({found(kRoute, "a")}), plan, plan}), ElementsAre("plan a"));
    EXPECT_THAT(reported({saw({found(kRoute, "b")}), plan}), IsEmpty());
}

TEST(Passes, WhatNoOtherOneCouldSeeCounts) {
    EXPECT_THAT(reported({saw({found(kRoute, "a")}), blind(), blind(), blind()}),
                ElementsAre("program ?", "host-route a"));
    EXPECT_THAT(reported({blind(), blind()}), ElementsAre("program ?"));
}

TEST(Passes, TwoFindingsOfTheSameWordsAreTwo) {
    const Examined twice = saw({found(kOrphan, ""), found(kOrphan, "")});
    EXPECT_THAT(reported({twice, twice}), ElementsAre("orphan ", "orphan "));
    EXPECT_THAT(reported({twice, saw({})}), IsEmpty());
}

TEST(Passes, AnErrorIsNoPass) {
    const auto result = examine_in_passes([](bool) -> Result<Examined> {
        return Error{ErrorCode::netlink, "ENOBUFS"};
    });
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message, "ENOBUFS");
}

// "host-route a: yes", in their order.
std::vector<std::string> merged(std::vector<Row> before, std::vector<Row> now) {
    merge(before, saw(std::move(now)));
    std::vector<std::string> words;
    for (const Row &row : before)
        words.push_back(std::string(row.check->name) + " " + row.pod + ": " + row.fixed);
    return words;
}
Row after(Row row, const std::string &fixed) {
    row.fixed = fixed;
    return row;
}

TEST(Passes, WhatIsNotFoundAgainIsFixed) {
    const Row failed = after(found(kProgram, "a"), "no: refused");
    EXPECT_THAT(merged({after(found(kProgram, "a"), "yes")}, {}), ElementsAre("program a: yes"));
    EXPECT_THAT(merged({failed}, {}), ElementsAre("program a: yes")) << "by another repair";
    EXPECT_THAT(merged({failed}, {found(kProgram, "b")}), ElementsAre("program a: yes", "program b: "));
    EXPECT_THAT(merged({failed}, {found(kProgram, "a", "is another one")}),
                ElementsAre("program a: no: refused", "program a: "))
        << "its repair failed, and the check still finds something";
    EXPECT_THAT(merged({after(found(kProgram, "a"), "yes")}, {found(kProgram, "a")}),
                ElementsAre("program a: no: it was found again"));
}

} // namespace
} // namespace podlane::ctl::doctor
