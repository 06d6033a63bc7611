// SPDX-License-Identifier: MIT
// Short waits for RCU: asked for while they are wanted, and never left behind. Others may be at it at the same time.
#include "loader/expedited_rcu.hpp"
#include "maps/fd.hpp"
#include "tests/harness/test.hpp"
#include "tests/netns/reading.hpp"

#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>

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

// Once the others are through; nobody else gets it.
Fd locked() {
    Fd lock(open(kExpeditedRcuLock, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(flock(lock.get(), LOCK_EX), 0);
    return lock;
}

void write(const char *text) {
    const Fd file(open(kPath, O_RDWR | O_CLOEXEC));
    ASSERT_GT(pwrite(file.get(), text, std::strlen(text), 0), 0);
}

// How a process ends that does this.
template <typename Work> int status_after(Work work) {
    const pid_t child = fork();
    if (child == 0)
        work();
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

// Of podlanectl, each command of its table: of a node without programs, in directories of the test's own. Some fail.
std::vector<std::string> calls_of_podlanectl(const test::Node &node) {
    const std::vector<std::pair<ctl::Opt, std::string>> places = {{ctl::Opt::bpffs, " --bpffs " + node.bpffs()},
                                                                  {ctl::Opt::bin_dir, " --bin-dir " + node.dir()},
                                                                  {ctl::Opt::conf_dir, " --conf-dir " + node.dir()}};
    const std::map<std::string_view, std::string> arguments = {{"INTERFACE", " up0"},
                                                               {"FILE", " " + node.dir() + "/no-file"}};
    std::vector<std::string> calls = {"", "--help", "no-such-object"};
    for (const ctl::Noun &noun : ctl::nouns())
        for (const ctl::Command &command : noun.commands) {
            std::string call = test::spelled(noun, command) + test::needed_words(noun, command);
            if (const auto argument = arguments.find(command.argument.name); argument != arguments.end())
                call += argument->second;
            if (command.verb == "show")
                call += " web-0";
            for (const auto &[option, place] : places)
                if (command.options.has(option))
                    call += place;
            calls.push_back(call);
        }
    return calls;
}

class ExpeditedRcuTest : public testing::Test {
  protected:
    void SetUp() override {
        if (access(kPath, R_OK | W_OK) != 0)
            GTEST_SKIP() << "this kernel has no " << kPath;
        if (value() != "0" && value() != kOurs)
            use_stand_in();
    }

    // A file in its place, for this process and its children: also if the kernel has it on from the command line.
    static void use_stand_in() {
        static bool done = false;
        if (std::exchange(done, true))
            return;
        ASSERT_EQ(unshare(CLONE_NEWNS), 0);
        ASSERT_EQ(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
        ASSERT_EQ(mount("podlane", "/run", "tmpfs", 0, nullptr), 0);
        std::ofstream("/run/rcu_expedited") << "0\n";
        ASSERT_EQ(mount("/run/rcu_expedited", kPath, nullptr, MS_BIND, nullptr), 0);
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
    ASSERT_TRUE(WIFSIGNALED(status_after([] {
        const ExpeditedRcu never_ended;
        (void)kill(getpid(), SIGKILL);
    })));
    { const ExpeditedRcu next; }
    EXPECT_TRUE(is_off()) << value();
}

TEST_F(ExpeditedRcuTest, IsSwitchedOffByACallThatNeedsNone) {
    write("20556\n"); // as a killed call leaves it
    EXPECT_TRUE(test::wait_until([] { return ExpeditedRcu::clean_up() || value() == "0"; }));
    EXPECT_TRUE(is_off()) << value();
    {
        const ExpeditedRcu scope;
        EXPECT_FALSE(ExpeditedRcu::clean_up()) << "it is wanted";
    }
}

// Also by one that is refused, or of which nothing else is to be read. In a file of their own: calls of other tests
// would switch the kernel's off meanwhile.
TEST_F(ExpeditedRcuTest, IsSwitchedOffByAnyCallOfTheBinaries) {
    use_stand_in();
    const test::Node node;
    const std::string config =
        R"({"cniVersion": "1.1.0", "name": "pods", "type": "podlane", "bpffs": ")" + node.bpffs() + "\"}";
    for (const char *program : {"PODLANE_BIN", "PODLANE_K8S_BIN"}) {
        const std::string path = test::variable(program);
        if (!fs::exists(path))
            continue; // podlane-k8s is not built
        for (const std::vector<std::string> &argv : {std::vector{path}, std::vector{path, std::string("--version")}}) {
            SCOPED_TRACE(testing::PrintToString(argv));
            write("20556\n");
            (void)test::run(node.ns(), argv);
            EXPECT_TRUE(is_off()) << value();
        }
    }
    for (const std::string &call : calls_of_podlanectl(node)) {
        SCOPED_TRACE(call);
        write("20556\n");
        const test::Output reply = test::run(node.ns(), test::words(test::variable("PODLANECTL_BIN") + " " + call));
        EXPECT_TRUE(is_off()) << value();
        if (call.starts_with("status")) {
            EXPECT_THAT(reply.out, HasSubstr("left /sys/kernel/rcu_expedited switched on"));
        }
    }
    // The last: they load the programs, and `monitor` would go on.
    for (const auto &[command, input] : std::vector<std::pair<std::string, std::string>>{{"VERSION", config},
                                                                                         {"STATUS", config},
                                                                                         {"CHECK", config},
                                                                                         {"GC", config},
                                                                                         {"ADD", "{"},
                                                                                         {"DEL", ""},
                                                                                         {"NONE", config}}) {
        SCOPED_TRACE(command);
        write("20556\n");
        (void)node.cni_text("podlane", command, input);
        EXPECT_TRUE(is_off()) << value();
    }
}

TEST_F(ExpeditedRcuTest, StaysOffIfTheConfigurationSaysSo) {
    const int status = status_after([] { // it counts for the whole process
        ExpeditedRcu::forbid();
        const std::string before = value();
        const ExpeditedRcu scope;
        _exit(before == kOurs || value() == "0" ? 0 : 1); // others may want it at this moment
    });
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// It only saves time: a process that was stopped while it held the lock must not stop every ADD and DEL of the node.
TEST_F(ExpeditedRcuTest, IsNotWaitedForForever) {
    const Fd lock = locked();
    write("0\n"); // a call that another test has killed may have left it
    const ExpeditedRcu scope;
    EXPECT_NE(value(), kOurs);
}

// Everybody may open the kernel's file.
TEST_F(ExpeditedRcuTest, LocksOfOtherUsersChangeNothing) {
    { const ExpeditedRcu first; }
    struct stat lock {};
    ASSERT_EQ(stat(kExpeditedRcuLock, &lock), 0);
    EXPECT_EQ(lock.st_uid, 0U);
    EXPECT_EQ(lock.st_mode & 0777U, 0600U);
    for (const int operation : {LOCK_SH, LOCK_EX}) {
        const Fd theirs(open(kPath, O_RDONLY | O_CLOEXEC));
        ASSERT_EQ(flock(theirs.get(), operation), 0);
        {
            const ExpeditedRcu scope;
            EXPECT_EQ(value(), kOurs);
        }
        EXPECT_TRUE(is_off()) << value();
        write("20556\n"); // as a killed call leaves it
        EXPECT_TRUE(ExpeditedRcu::clean_up() || is_off());
        EXPECT_TRUE(is_off()) << value();
    }
}

TEST_F(ExpeditedRcuTest, AValueThatAnotherProgramWroteBeforeOrMeanwhileStays) {
    for (const bool before : {true, false}) {
        SCOPED_TRACE(before);
        const Fd lock = locked();
        if (before)
            write("1\n");
        ASSERT_EQ(flock(lock.get(), before ? LOCK_SH : LOCK_UN), 0); // LOCK_SH: none of them is the last one
        {
            const ExpeditedRcu ours;
            if (!before)
                write("1\n");
            EXPECT_EQ(value(), "1");
        }
        EXPECT_EQ(value(), "1");
        write("0\n");
    }
}

} // namespace
} // namespace podlane
