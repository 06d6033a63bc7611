// SPDX-License-Identifier: MIT
// Short waits for RCU: asked for while they are wanted, and never left behind. Others may be at it at the same time.
#include "loader/expedited_rcu.hpp"
#include "maps/fd.hpp"
#include "tests/harness/process.hpp"
#include "tests/harness/test.hpp"

#include <sys/file.h>

namespace podlane {
namespace {

constexpr const char *kPath = "/sys/kernel/rcu_expedited";
constexpr const char *kOurs = "20556";

std::string value() {
    std::string text;
    std::ifstream(kPath) >> text;
    return text;
}

bool is_off() {
    return test::wait_until([] { return value() == "0"; });
}

class ExpeditedRcuTest : public testing::Test {
  protected:
    void SetUp() override {
        if (access(kPath, R_OK | W_OK) != 0)
            GTEST_SKIP() << "this kernel has no " << kPath;
        if (value() != "0" && value() != kOurs)
            GTEST_SKIP() << kPath << " is " << value() << " here";
    }
};

TEST_F(ExpeditedRcuTest, IsOnForAsLongAsAnyCallWantsIt) {
    {
        const ExpeditedRcu first;
        EXPECT_EQ(value(), kOurs);
        {
            const ExpeditedRcu second;
            EXPECT_EQ(value(), kOurs);
        }
        EXPECT_EQ(value(), kOurs);
    }
    EXPECT_TRUE(is_off()) << value();
}

TEST_F(ExpeditedRcuTest, IsSwitchedOffAfterAKilledCall) {
    const pid_t child = fork();
    if (child == 0) {
        const ExpeditedRcu never_ended;
        (void)kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    { const ExpeditedRcu next; }
    EXPECT_TRUE(is_off()) << value();
}

TEST_F(ExpeditedRcuTest, IsSwitchedOffByACallThatNeedsNone) {
    const Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    ASSERT_EQ(pwrite(file.get(), "20556\n", 6, 0), 6); // as a killed call leaves it
    EXPECT_TRUE(test::wait_until([] { return ExpeditedRcu::clean_up() || value() == "0"; }));
    EXPECT_TRUE(is_off()) << value();
    {
        const ExpeditedRcu scope;
        EXPECT_FALSE(ExpeditedRcu::clean_up()) << "it is wanted";
    }
}

TEST_F(ExpeditedRcuTest, AValueThatAnotherProgramWroteMeanwhileStays) {
    const Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(file.get(), LOCK_EX), 0); // until the others are through
    ASSERT_EQ(flock(file.get(), LOCK_UN), 0);
    {
        const ExpeditedRcu ours;
        ASSERT_EQ(pwrite(file.get(), "1\n", 2, 0), 2);
    }
    EXPECT_EQ(value(), "1");
    EXPECT_EQ(pwrite(file.get(), "0\n", 2, 0), 2);
}

TEST_F(ExpeditedRcuTest, StaysOffIfTheConfigurationSaysSo) {
    const pid_t child = fork(); // it counts for the whole process
    if (child == 0) {
        ExpeditedRcu::forbid();
        const std::string before = value();
        const ExpeditedRcu scope;
        _exit(before == kOurs || value() == "0" ? 0 : 1); // others may want it at this moment
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// It only saves time: a process that was stopped while it held the lock must not stop every ADD and DEL of the node.
TEST_F(ExpeditedRcuTest, IsNotWaitedForForever) {
    const Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(file.get(), LOCK_EX), 0); // until the others are through
    const ExpeditedRcu scope;
    EXPECT_NE(value(), kOurs);
}

TEST_F(ExpeditedRcuTest, AForeignValueStays) {
    const Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    ASSERT_EQ(flock(file.get(), LOCK_EX), 0); // until the others are through
    ASSERT_EQ(pwrite(file.get(), "1\n", 2, 0), 2);
    ASSERT_EQ(flock(file.get(), LOCK_SH), 0); // none of them is the last one
    {
        const ExpeditedRcu ours;
        EXPECT_EQ(value(), "1");
    }
    EXPECT_EQ(value(), "1");
    EXPECT_EQ(pwrite(file.get(), "0\n", 2, 0), 2);
}

} // namespace
} // namespace podlane
