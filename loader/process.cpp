// SPDX-License-Identifier: MIT
#include "loader/process.hpp"

#include "maps/clock.hpp"
#include "maps/fd.hpp"
#include "maps/file.hpp"
#include "maps/text.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace podlane {
namespace {

using Time = std::chrono::steady_clock;

constexpr std::size_t kMostOutput = std::size_t{1} << 20U;
constexpr std::size_t kMostError = std::size_t{1} << 12U;

struct Pipe {
    Fd read;
    Fd write;
};

Result<Pipe> make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return system_error(ErrorCode::io_failure, "creating a pipe", errno);
    return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<char *> pointers(const std::vector<std::string> &texts) {
    std::vector<char *> all;
    all.reserve(texts.size() + 1);
    for (const std::string &text : texts)
        all.push_back(const_cast<char *>(text.c_str())); // NOLINT(cppcoreguidelines-pro-type-const-cast): execve(2)
    all.push_back(nullptr);
    return all;
}

// The child's arguments between vfork(2) and execve(2), when it may only make system calls.
struct Start {
    const char *path;
    char **words;
    char **environment;
    std::array<int, 3> streams;
    int life;
    pid_t parent;
    volatile int failed = 0; // errno of the call that failed, written by the child
};

// The kernel kills the whole group when the parent's end of the pipe is closed, also by the parent's death, as long as
// one process of the group has this end. Where it refuses, PR_SET_PDEATHSIG reaches the child alone. A PID namespace
// would reach those that leave the group too, but in it "$$" and /proc/PID of the plugin are another process's.
void bind_group(int life) {
    fcntl(life, F_SETFD, 0);
    fcntl(life, F_SETSIG, SIGKILL);
    if (fcntl(life, F_SETOWN, -getpid()) == 0)
        fcntl(life, F_SETFL, O_ASYNC);
}

[[noreturn]] void start_child(Start &start) {
    constexpr int kNotStarted = 127;
    if (setpgid(0, 0) == 0) // a script's children are killed with it; without a group of its own it is killed alone
        bind_group(start.life);
    const bool bound = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (getppid() != start.parent) // it died before the signal was requested
        _exit(kNotStarted);
    bool ready = bound && signal(SIGPIPE, SIG_DFL) != SIG_ERR && signal(SIGXFSZ, SIG_DFL) != SIG_ERR;
    for (int stream = 0; ready && stream < static_cast<int>(start.streams.size()); ++stream)
        ready = dup2(start.streams[static_cast<std::size_t>(stream)], stream) >= 0;
    if (ready)
        execve(start.path, start.words, start.environment);
    start.failed = errno;
    _exit(kNotStarted);
}

// Of a script, as its first line names it; none of another program.
std::string interpreter_of(const std::string &path) {
    std::array<char, 256> start{}; // as much as the kernel reads
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t got = file ? read(file.get(), start.data(), start.size()) : 0;
    std::string_view line(start.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (!line.starts_with("#!"))
        return {};
    line.remove_prefix(std::min(line.find_first_not_of(" \t", 2), line.size()));
    const std::string name(line.substr(0, line.find_first_of(" \t\n")));
    return name.ends_with('\r') ? name.substr(0, name.size() - 1) + "\\r" : name; // of a file with CR LF
}

// execve(2) reports ENOENT also if the file exists, and its interpreter or dynamic loader does not.
Error not_started(const std::string &path, int system_errno) {
    Error error = system_error(ErrorCode::ipam, "starting " + path, system_errno);
    if (system_errno == ENOEXEC)
        error.hint = "install a build of it for this machine, or begin the script with a line such as \"#!/bin/sh\"";
    if (system_errno != ENOENT || access(path.c_str(), F_OK) != 0)
        return error;
    const std::string interpreter = interpreter_of(path);
    if (interpreter.empty())
        return {ErrorCode::ipam, "starting " + path + ": its dynamic loader is missing",
                "install a build of it for this node's C library, or a static one", system_errno};
    return {ErrorCode::ipam, "starting " + path + ": its interpreter " + interpreter + " is missing",
            "install the interpreter, or correct the first line of " + path, system_errno};
}

// Another PID namespace's numbers are those of other processes here.
bool is_proc_of_own_namespace() {
    std::error_code failed;
    return std::filesystem::read_symlink("/proc/self", failed) == std::to_string(getpid());
}

// The process and what it and they have started, those that left its process group too; all are stopped. Not those
// whose parent has ended, such as daemons: nothing leads to them.
std::vector<pid_t> with_descendants(pid_t pid) {
    std::vector<pid_t> all{pid};
    if (!is_proc_of_own_namespace())
        return all;
    for (std::size_t i = 0; i < all.size(); ++i) {
        kill(all[i], SIGSTOP); // it starts no more, and waits for none
        std::error_code failed;
        const std::filesystem::path tasks = "/proc/" + std::to_string(all[i]) + "/task";
        for (std::filesystem::directory_iterator thread(tasks, failed), end; thread != end; thread.increment(failed)) {
            const auto children = read_file(thread->path() / "children");
            for (const std::string &child : split<std::string>(children ? *children : std::string(), " "))
                if (const auto number = parse_number<pid_t>(child))
                    all.push_back(*number);
        }
    }
    return all;
}

// A started program, killed and reaped when the object dies.
class Child {
  public:
    static Result<Child> start(const std::vector<std::string> &words, const std::vector<std::string> &environment,
                               std::array<int, 3> streams) {
        const std::string doing = "starting " + words.front();
        Pipe life = TRY(make_pipe());
        std::vector<char *> argv = pointers(words);
        std::vector<char *> envp = pointers(environment);
        Start how{words.front().c_str(), argv.data(), envp.data(), streams, life.read.get(), getpid()};
        std::signal(SIGPIPE, SIG_IGN);
        std::signal(SIGCHLD, SIG_DFL); // ignored, it would leave no exit status
        // posix_spawn(3) cannot tie the child to its parent's life.
        const pid_t pid = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork)
        if (pid == 0)
            // NOLINTNEXTLINE(clang-analyzer-unix.Vfork): it writes to this stack only
            start_child(how);
        if (pid < 0)
            return system_error(ErrorCode::ipam, doing, errno);
        Child child(pid, std::move(life));
        if (how.failed != 0)
            return not_started(words.front(), how.failed);
        child.exited_ = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
        if (!child.exited_)
            return system_error(ErrorCode::io_failure, doing, errno);
        return child;
    }
    Child(Child &&other) noexcept
        : pid_(std::exchange(other.pid_, -1)), life_(std::move(other.life_)), exited_(std::move(other.exited_)) {}
    Child &operator=(Child &&) = delete;
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;
    ~Child() {
        if (pid_ < 0)
            return;
        if (kill(-pid_, SIGKILL) != 0)
            kill(pid_, SIGKILL);
        // A child stuck in the kernel is left to init rather than waited for.
        constexpr int kPatience = 1000; // ms
        pollfd gone{exited_.get(), POLLIN, 0};
        if (!exited_ || poll(&gone, 1, kPatience) > 0)
            (void)reap();
    }

    [[nodiscard]] int exited() const { return exited_.get(); } // readable once it has exited
    // The group is stopped first: when what it runs is killed, a script would run more.
    void kill_with_descendants() const {
        kill(-pid_, SIGSTOP);
        const std::vector<pid_t> all = with_descendants(pid_);
        std::for_each(all.rbegin(), all.rend(), [](pid_t one) { kill(one, SIGKILL); });
    }
    Result<int> reap() {
        int status = 0;
        while (waitpid(pid_, &status, 0) < 0)
            if (errno != EINTR)
                return system_error(ErrorCode::io_failure, "waiting for a child process", errno);
        pid_ = -1;
        fcntl(life_.read.get(), F_SETFL, 0); // a daemon that it has started lives on
        return status;
    }

  private:
    Child(pid_t pid, Pipe life) : pid_(pid), life_(std::move(life)) {}
    pid_t pid_;
    Pipe life_;
    Fd exited_;
};

// Feeds and drains the pipes of a program.
class Conversation {
  public:
    Conversation(const std::string &path, const std::string &input, Fd in, Fd out, Fd err)
        : path_(path), input_(input), in_(std::move(in)), out_(std::move(out)), err_(std::move(err)) {}

    Result<void> run(const Child &child, std::chrono::milliseconds limit, Finished &finished) {
        for (const Fd *end : {&in_, &out_, &err_})
            if (fcntl(end->get(), F_SETFL, O_NONBLOCK) != 0)
                return failed("preparing the pipes of ", errno);
        const Time::time_point deadline = Time::now() + limit;
        for (bool exited = false; !exited;) {
            const int left = milliseconds_until(deadline);
            if (left == 0)
                return Error{ErrorCode::try_again_later,
                             path_ + " did not finish within " + std::to_string(limit.count()) + " ms and was killed"};
            std::array<pollfd, 4> waits = {{{in_.get(), POLLOUT, 0},
                                            {out_.get(), POLLIN, 0},
                                            {err_.get(), POLLIN, 0},
                                            {child.exited(), POLLIN, 0}}};
            if (poll(waits.data(), waits.size(), left) < 0) {
                if (errno == EINTR)
                    continue;
                return failed("waiting for ", errno);
            }
            // Its last output is in the pipes by then.
            exited = waits[3].revents != 0;
            if (waits[0].revents != 0)
                TRY(feed());
            TRY(drain(out_, finished.out, kMostOutput));
            TRY(drain(err_, finished.err, kMostError));
            if (finished.out.size() > kMostOutput)
                return Error{ErrorCode::ipam, path_ + " printed more than " + std::to_string(kMostOutput) + " bytes"};
        }
        return {};
    }

  private:
    [[nodiscard]] Error failed(const std::string &doing, int system_errno) const {
        return system_error(ErrorCode::io_failure, doing + path_, system_errno);
    }

    Result<void> feed() {
        const ssize_t sent = write(in_.get(), input_.data() + written_, input_.size() - written_);
        if (sent > 0)
            written_ += static_cast<std::size_t>(sent);
        else if (sent < 0 && errno == EPIPE) // it does not want to read on
            written_ = input_.size();
        else if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return failed("writing to ", errno);
        if (written_ == input_.size())
            in_.reset();
        return {};
    }

    // Empties the pipe and keeps at most a little more than `most` bytes.
    Result<void> drain(Fd &from, std::string &into, std::size_t most) const {
        std::array<char, 4096> chunk{};
        constexpr int kChunks = 256; // as much as a pipe can hold
        for (int i = 0; from && i < kChunks; ++i) {
            const ssize_t got = read(from.get(), chunk.data(), chunk.size());
            if (got > 0 && into.size() <= most)
                into.append(chunk.data(), static_cast<std::size_t>(got));
            else if (got == 0)
                from.reset();
            else if (got < 0 && errno == EAGAIN)
                break;
            else if (got < 0 && errno != EINTR)
                return failed("reading from ", errno);
        }
        return {};
    }

    const std::string &path_;
    const std::string &input_;
    std::size_t written_ = 0;
    Fd in_, out_, err_;
};

} // namespace

std::string exit_words(const Finished &finished) {
    if (finished.signal == 0)
        return "exited with code " + std::to_string(finished.exit_code);
    const char *name = strsignal(finished.signal);
    return "was killed by signal " + std::to_string(finished.signal) + " (" + (name ? name : "unknown") + ")";
}

Result<Finished> run_process(const std::string &path, const std::vector<std::string> &environment,
                             const std::string &input, const std::vector<std::string> &arguments,
                             std::chrono::milliseconds limit) {
    Pipe in = TRY(make_pipe());
    Pipe out = TRY(make_pipe());
    Pipe err = TRY(make_pipe());
    std::vector<std::string> words{path};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Child child = TRY(Child::start(words, environment, {in.read.get(), out.write.get(), err.write.get()}));
    in.read.reset();
    out.write.reset();
    err.write.reset();
    Finished finished;
    Conversation conversation(path, input, std::move(in.write), std::move(out.read), std::move(err.read));
    if (auto talked = conversation.run(child, limit, finished); !talked) {
        child.kill_with_descendants();
        return std::move(talked).error();
    }
    const int status = TRY(child.reap());
    if (WIFSIGNALED(status))
        finished.signal = WTERMSIG(status);
    constexpr int kSignalBase = 128;
    finished.exit_code = finished.signal != 0 ? kSignalBase + finished.signal : WEXITSTATUS(status);
    return finished;
}

Result<std::string> find_program(std::string_view name) {
    const char *path = std::getenv("PATH");
    std::string directories = (path == nullptr ? "" : path) + std::string(":/usr/sbin:/sbin:/usr/bin:/bin");
    while (!directories.empty()) {
        const auto end = std::min(directories.find(':'), directories.size());
        std::string candidate = directories.substr(0, end) + "/" + std::string(name);
        if (candidate.starts_with('/') && access(candidate.c_str(), X_OK) == 0)
            return candidate;
        if (candidate.starts_with('/') && errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return system_error(ErrorCode::io_failure, "looking for " + candidate, errno);
        directories.erase(0, end + 1);
    }
    return std::string{};
}

void reserve_standard_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
        if (fcntl(stream, F_GETFD) < 0)
            (void)open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY); // the lowest free number
}

void survive_file_size_limit() { std::signal(SIGXFSZ, SIG_IGN); }

} // namespace podlane
