// SPDX-License-Identifier: MIT
#include "tests/harness/process.hpp"

#include "maps/fd.hpp"
#include "tests/harness/talk.hpp"
#include "tests/harness/throw_errno.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace podlane::test {
namespace {

constexpr std::array<const char *, 4> kDirectories = {"/usr/sbin", "/usr/bin", "/sbin", "/bin"};
constexpr int kCannotRun = 127;

struct Pipe {
    Fd read;
    Fd write;
};

Pipe make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        throw_errno("pipe2");
    return {Fd(ends[0]), Fd(ends[1])};
}

std::string find_program(const std::string &name) {
    if (name.find('/') != std::string::npos)
        return name;
    for (const std::string directory : kDirectories)
        if (access((directory + "/" + name).c_str(), X_OK) == 0)
            return directory + "/" + name;
    throw std::runtime_error("there is no program " + name);
}

std::vector<char *> pointers(std::vector<std::string> &texts) {
    std::vector<char *> all;
    for (std::string &text : texts)
        all.push_back(text.data());
    all.push_back(nullptr);
    return all;
}

// Between vfork(2) and execve(2), when it may only make system calls.
[[noreturn]] void become(int netns, const Pipe &in, const Pipe &out, const Pipe &err, const char *program,
                         char *const *argv, char *const *environment) {
    std::signal(SIGPIPE, SIG_DFL);
    if (setns(netns, CLONE_NEWNET) == 0 && dup2(in.read.get(), 0) == 0 && dup2(out.write.get(), 1) == 1 &&
        dup2(err.write.get(), 2) == 2)
        execve(program, argv, environment);
    _exit(kCannotRun);
}

bool drain(int fd, std::string &into) {
    std::array<char, 16384> part{};
    const ssize_t got = read(fd, part.data(), part.size());
    if (got > 0)
        into.append(part.data(), static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
}

void talk(Pipe &in, Pipe &out, Pipe &err, const std::string &input, Output &output) {
    std::size_t written = 0;
    fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
    if (input.empty())
        in.write.reset();
    while (out.read || err.read) {
        std::array<pollfd, 3> waits = {
            {{in.write.get(), POLLOUT, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
        if (poll(waits.data(), waits.size(), -1) < 0)
            continue;
        if (waits[0].revents != 0) {
            const ssize_t sent = write(in.write.get(), input.data() + written, input.size() - written);
            written += sent > 0 ? static_cast<std::size_t>(sent) : 0;
            if (written == input.size() || (sent < 0 && errno != EAGAIN && errno != EINTR))
                in.write.reset();
        }
        if (waits[1].revents != 0 && !drain(out.read.get(), output.out))
            out.read.reset();
        if (waits[2].revents != 0 && !drain(err.read.get(), output.err))
            err.read.reset();
    }
}

} // namespace

Output run(const net::Namespace &where, const std::vector<std::string> &argv, const std::string &input,
           const Variables &variables) {
    std::signal(SIGPIPE, SIG_IGN);
    const std::string program = find_program(argv.at(0));
    std::vector<std::string> arguments = argv;
    std::vector<std::string> environment = {"LC_ALL=C"};
    if (!variables.contains("PATH"))
        environment.emplace_back("PATH=/usr/sbin:/usr/bin:/sbin:/bin");
    for (const auto &[name, value] : variables)
        environment.push_back(name + "=" + value);
    const std::vector<char *> argument_pointers = pointers(arguments);
    const std::vector<char *> environment_pointers = pointers(environment);
    Pipe in = make_pipe();
    Pipe out = make_pipe();
    Pipe err = make_pipe();
    // fork(2) would copy the page tables, for thousands of children, which is slow on some virtual machines.
    const pid_t child = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork)
    if (child < 0)
        throw_errno("vfork");
    if (child == 0)
        // NOLINTNEXTLINE(clang-analyzer-unix.Vfork): it writes to nothing that the parent reads
        become(where.fd(), in, out, err, program.c_str(), argument_pointers.data(), environment_pointers.data());
    in.read.reset();
    out.write.reset();
    err.write.reset();
    Output output;
    talk(in, out, err, input, output);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    constexpr int kSignalled = 128;
    output.rc = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
    return output;
}

std::string must_run(const net::Namespace &where, const std::vector<std::string> &argv, const std::string &input) {
    Output output = run(where, argv, input);
    if (output.rc != 0) {
        std::string command;
        for (const std::string &word : argv)
            command += word + " ";
        throw std::runtime_error(command + "ended with " + std::to_string(output.rc) + ": " + output.out + output.err);
    }
    return std::move(output.out);
}

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    if (!file)
        throw std::runtime_error("cannot read " + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string variable(const char *name) {
    const char *value = std::getenv(name);
    if (value == nullptr)
        throw std::runtime_error(std::string(name) + " is not set; ctest sets it");
    return value;
}

bool slow() { return std::getenv("PODLANE_TEST_SLOW") != nullptr; }

std::vector<std::string> words(const std::string &text) {
    std::istringstream stream(text);
    std::vector<std::string> all;
    for (std::string word; stream >> word;)
        all.push_back(word);
    return all;
}

bool wait_until(const std::function<bool()> &condition, std::chrono::milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
}

bool wait_until(const std::function<bool()> &condition) { return wait_until(condition, patience()); }

bool ping(const net::Namespace &from, const std::string &to, int count) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience()).count();
    return run(from, {"ping", "-n", "-q", "-c", std::to_string(count), "-i", "0.2", "-W", std::to_string(seconds), to})
               .rc == 0;
}

} // namespace podlane::test
