// SPDX-License-Identifier: MIT
// bench_exec: runs one program and prints what it cost: time from its start to its end, CPU time, peak memory.
#include "tests/bench/options.hpp"

#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>

using namespace podlane;

namespace {

constexpr char kHelp[] = R"(bench_exec: what one run of a program costs, printed as one line of JSON

usage: bench_exec [options] -- PROGRAM [ARGUMENT…]

  --netns NS       run in this network namespace: a name below /run/netns, or a path
  --stdin FILE     (/dev/null)
  --stdout FILE    (/dev/null)
  --memory         measure memory instead of time

The environment is passed on. Times are of the program and of what it ran and waited for, from before its start
to its end. Peak memory is that of the program alone, without what it ran: it is stopped at its exit, where
VmHWM is read. (ru_maxrss will not do: it takes in the children waited for, and what ran before the exec.)
)";

struct Options {
    std::string netns;
    std::string input = "/dev/null";
    std::string output = "/dev/null";
    bool memory = false;
    char **command = nullptr;
};

[[noreturn]] void fail(const char *doing, int system_errno) {
    std::fprintf(stderr, "bench_exec: %s: %s\n", doing, std::strerror(system_errno));
    _exit(126);
}

double now_us() { return static_cast<double>(podlane::monotonic_ns()) * 1e-3; }

double microseconds(const timeval &time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
}

int exit_code(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

int measure_time(const Options &options) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, options.input.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    pid_t pid = -1;
    int status = 0;
    rusage usage{};
    const double start = now_us();
    if (const int error = posix_spawn(&pid, options.command[0], &actions, nullptr, options.command, environ))
        fail(options.command[0], error);
    if (wait4(pid, &status, 0, &usage) != pid)
        fail("wait4", errno);
    const double wall = now_us() - start;
    posix_spawn_file_actions_destroy(&actions);
    std::printf("{\"exit\": %d, \"wall_us\": %.0f, \"user_us\": %.0f, \"sys_us\": %.0f}\n", exit_code(status), wall,
                microseconds(usage.ru_utime), microseconds(usage.ru_stime));
    return 0;
}

[[noreturn]] void exec_traced(const Options &options) {
    const int input = open(options.input.c_str(), O_RDONLY);
    const int output = open(options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (input < 0 || output < 0 || dup2(input, 0) < 0 || dup2(output, 1) < 0)
        fail("standard input and output", errno);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0)
        fail("PTRACE_TRACEME", errno);
    execve(options.command[0], options.command, environ);
    fail(options.command[0], errno);
}

long peak_kb(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:"))
            return std::atol(line.c_str() + std::strlen("VmHWM:"));
    return -1;
}

// The signal a stopped tracee is to go on with: its own stops are not signals.
int signal_to_pass(int status) {
    const bool event = status >> 16 != 0;
    return event || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
}

int measure_memory(const Options &options) {
    const pid_t pid = fork();
    if (pid == 0)
        exec_traced(options);
    int status = 0;
    long peak = -1;
    bool traced = false;
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
        if (!traced)
            ptrace(PTRACE_SETOPTIONS, pid, nullptr, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL);
        traced = true;
        if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8)))
            peak = peak_kb(pid);
        ptrace(PTRACE_CONT, pid, nullptr, signal_to_pass(status));
    }
    std::printf("{\"exit\": %d, \"peak_kb\": %ld}\n", exit_code(status), peak);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    if (const auto code = bench::read_options(argc, argv, kHelp,
                                              {{"netns", bench::into(options.netns)},
                                               {"stdin", bench::into(options.input)},
                                               {"stdout", bench::into(options.output)},
                                               {"memory", {}, &options.memory}}))
        return *code;
    if (optind == argc)
        return std::fputs(kHelp, stderr), 2;
    options.command = argv + optind;
    if (!options.netns.empty())
        bench::enter(options.netns);
    return options.memory ? measure_memory(options) : measure_time(options);
}
