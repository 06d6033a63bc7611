// SPDX-License-Identifier: MIT
// Running another program: its pipes, its end, its time limit, and its parent's end.
#include "loader/process.hpp"
#include "tests/harness/test.hpp"

#include <sys/prctl.h>

namespace podlane {
namespace {

using namespace std::chrono_literals;

Result<Finished> shell(const std::string &script, const std::string &input = {},
                       std::chrono::milliseconds limit = kProcessTimeLimit) {
    return run_process("/bin/sh", {"PATH=/usr/bin:/bin"}, input, {"-c", script}, limit);
}

Finished finished(const std::string &script, const std::string &input = {}) {
    Result<Finished> done = shell(script, input);
    if (!done)
        throw std::runtime_error(done.error().message);
    return *std::move(done);
}

TEST(RunProcess, PassesInputAndCollectsBothOutputsAndTheExitCode) {
    const std::string input(500'000, 'x');

    const Finished done = finished("cat; echo trouble >&2; exit 3", input);

    EXPECT_EQ(done.out, input);
    EXPECT_EQ(done.err, "trouble\n");
    EXPECT_EQ(done.exit_code, 3);
    EXPECT_EQ(exit_words(done), "exited with code 3");
}

TEST(RunProcess, NamesTheSignalThatKilledTheProgram) {
    const Finished done = finished("kill -SEGV $$");

    EXPECT_EQ(done.exit_code, 128 + SIGSEGV);
    EXPECT_EQ(exit_words(done), "was killed by signal 11 (Segmentation fault)");
}

TEST(RunProcess, AcceptsAProgramThatDoesNotReadItsInput) {
    EXPECT_EQ(finished("exit 0", std::string(500'000, 'x')).exit_code, 0);
}

TEST(RunProcess, DropsErrorOutputBeyondTheFirstKilobytesWithoutBlocking) {
    const Finished done = finished("head -c 500000 /dev/zero >&2; echo done");

    EXPECT_EQ(done.out, "done\n");
    EXPECT_LT(done.err.size(), 10'000U);
}

TEST(RunProcess, RefusesEndlessOutput) {
    const auto done = shell("yes");

    ASSERT_FALSE(done);
    EXPECT_THAT(done.error().message, HasSubstr("printed more than 1048576 bytes"));
}

TEST(RunProcess, NamesAProgramThatCannotBeStarted) {
    const auto done = run_process("/nonexistent", {}, "");

    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message, "starting /nonexistent: No such file or directory");
}

TEST(RunProcess, SaysWhatAProgramThatIsThereCannotBeRunBy) {
    const auto start = [](const std::string &name, const std::string &text) {
        const std::string directory = testing::TempDir() + "process_test." + std::to_string(getpid());
        const std::string path = directory + "/" + name;
        std::filesystem::create_directory(directory);
        std::ofstream(path) << text;
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
        auto done = run_process(path, {}, "");
        std::filesystem::remove_all(directory);
        return done;
    };
    const auto script = start("script", "#! /nonexistent/python3 -u\n");
    ASSERT_FALSE(script);
    EXPECT_THAT(script.error().message, testing::EndsWith("/script: its interpreter /nonexistent/python3 is missing"));
    EXPECT_THAT(script.error().hint, HasSubstr("first line of "));
    const auto of_windows = start("windows", "#!/bin/sh\r\n");
    ASSERT_FALSE(of_windows);
    EXPECT_THAT(of_windows.error().message, testing::EndsWith("/windows: its interpreter /bin/sh\\r is missing"));
    const auto text = start("text", "echo\n");
    ASSERT_FALSE(text);
    EXPECT_THAT(text.error().message, testing::EndsWith("/text: Exec format error"));
    EXPECT_THAT(text.error().hint, HasSubstr("#!/bin/sh"));
}

TEST(RunProcess, KillsAProgramAtItsTimeLimitEvenIfItClosedItsOutputs) {
    for (const char *script : {"sleep 60", "exec >&- 2>&-; sleep 60"}) {
        const auto done = shell(script, {}, 100ms);

        ASSERT_FALSE(done) << script;
        EXPECT_EQ(done.error().code, ErrorCode::try_again_later);
        EXPECT_EQ(done.error().message, "/bin/sh did not finish within 100 ms and was killed");
    }
}

// A plugin that is a script must not go on allocating by what it has called, whatever process group that is in.
TEST(RunProcess, KillsWhatTheProgramHasStartedToo) {
    for (const char *script : {"sleep 60; exit 1", "setsid sleep 60; exit 1", "timeout 60 sleep 60; exit 1",
                               "setsid sh -c '(timeout 60 sleep 60; exit 1); exit 1'; exit 1"}) {
        SCOPED_TRACE(script);
        std::array<int, 2> held{};
        ASSERT_EQ(pipe(held.data()), 0);
        ASSERT_FALSE(shell(script, {}, 200ms));
        close(held[1]);

        pollfd released{held[0], POLLIN, 0};
        EXPECT_EQ(poll(&released, 1, 10000), 1) << "sleep lives on, and has the other end";
        close(held[0]);
    }
}

// podlanectl runs several programs at a time.
TEST(RunProcess, KillsNoOtherChildOfItsCaller) {
    const pid_t other = fork();
    if (other == 0) {
        pause();
        _exit(0);
    }
    ASSERT_FALSE(shell("setsid sleep 60; exit 1", {}, 200ms));
    int status = 0;
    EXPECT_EQ(waitpid(other, &status, WNOHANG), 0);
    kill(other, SIGKILL);
    EXPECT_EQ(waitpid(other, &status, 0), other);
}

TEST(RunProcess, DoesNotWaitForADaemonThatKeepsTheOutputsOpen) {
    EXPECT_EQ(shell("sleep 3 & echo started", {}, 2s).value().out, "started\n");
}

TEST(RunProcess, KnowsTheExitCodeIfItsCallerIgnoresSigchld) {
    std::signal(SIGCHLD, SIG_IGN);

    EXPECT_EQ(finished("exit 3").exit_code, 3);
}

TEST(RunProcess, EndsTheProgramWithItsCaller) {
    prctl(PR_SET_CHILD_SUBREAPER, 1); // the orphan becomes ours, and its end can be waited for
    std::array<int, 2> ready{};
    ASSERT_EQ(pipe(ready.data()), 0);
    const pid_t caller = fork();
    if (caller == 0) {
        (void)shell("echo $$ >&" + std::to_string(ready[1]) + "; exec sleep 600");
        _exit(0);
    }
    std::array<char, 16> text{};
    ASSERT_GT(read(ready[0], text.data(), text.size() - 1), 0);
    const pid_t program = std::stoi(text.data());

    kill(caller, SIGKILL);

    int status = 0;
    ASSERT_EQ(waitpid(caller, &status, 0), caller);
    ASSERT_EQ(waitpid(program, &status, 0), program);
    EXPECT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
}

// Whatever a script has started, whether or not the script itself is there still.
TEST(RunProcess, EndsWhatTheProgramHasStartedWithItsCaller) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (const std::string end : {"wait", "exec sleep 600"}) {
        SCOPED_TRACE(end);
        std::array<int, 2> ready{};
        ASSERT_EQ(pipe(ready.data()), 0);
        const pid_t caller = fork();
        if (caller == 0) {
            (void)shell("(sh -c 'echo $$; exec sleep 600' >&" + std::to_string(ready[1]) + ") & " + end);
            _exit(0);
        }
        std::array<char, 16> text{};
        ASSERT_GT(read(ready[0], text.data(), text.size() - 1), 0);
        const pid_t started = std::stoi(text.data());

        kill(caller, SIGKILL);

        close(ready[1]);
        pollfd released{ready[0], POLLIN, 0};
        EXPECT_EQ(poll(&released, 1, 10000), 1) << "sleep lives on";
        kill(started, SIGKILL);
        while (wait(nullptr) > 0) {
        }
        close(ready[0]);
    }
}

TEST(RunProcess, LeavesADaemonThatTheProgramHasStarted) {
    std::array<int, 2> go{}, held{};
    ASSERT_EQ(pipe(go.data()) + pipe(held.data()), 0);
    const pid_t caller = fork();
    if (caller == 0) {
        const auto done =
            shell("(read _; echo here >&" + std::to_string(held[1]) + ") <&" + std::to_string(go[0]) + " &");
        _exit(done && done->exit_code == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(caller, &status, 0), caller);
    ASSERT_EQ(status, 0);
    close(held[1]);
    ASSERT_EQ(write(go[1], "on\n", 3), 3);
    std::array<char, 16> text{};
    EXPECT_GT(read(held[0], text.data(), text.size()), 0) << "it was killed";
    for (const int end : {go[0], go[1], held[0]})
        close(end);
}

TEST(RunProcess, SignalsThatItsCallerIgnoresEndTheProgram) {
    const pid_t child = fork();
    if (child == 0) {
        survive_file_size_limit();
        const Finished done = finished("grep SigIgn: /proc/self/status"); // a mask in hexadecimal
        const auto ignored = std::stoull(done.out.substr(done.out.find(':') + 1), nullptr, 16);
        _exit((ignored & (1ULL << (SIGXFSZ - 1) | 1ULL << (SIGPIPE - 1))) == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(StandardStreams, ThatWereClosedAreNoPlaceForTheNextFile) {
    const pid_t child = fork();
    if (child == 0) {
        for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
            close(stream);
        reserve_standard_streams();
        char byte = 0;
        const bool unusable = read(STDIN_FILENO, &byte, 1) < 0 && write(STDOUT_FILENO, &byte, 1) < 0 &&
                              write(STDERR_FILENO, &byte, 1) < 0;
        _exit(unusable && dup(STDIN_FILENO) > STDERR_FILENO ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

} // namespace
} // namespace podlane
