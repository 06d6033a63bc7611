#include "loader/process.hpp"

#include "maps/fd.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace podlane {
namespace {

constexpr std::size_t kMostOutput = std::size_t{1} << 20U;
constexpr std::size_t kMostError = std::size_t{1} << 12U;

struct Pipe {
    Fd read;
    Fd write;
};

Result<Pipe> make_pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return system_error(ErrorCode::io_failure, "making a pipe", errno);
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

Result<pid_t> spawn(const std::vector<std::string> &words, const std::vector<std::string> &environment, const Pipe &in,
                    const Pipe &out, const Pipe &err) {
    const std::string &path = words.front();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
    pid_t child = -1;
    const int failed =
        posix_spawn(&child, path.c_str(), &actions, nullptr, pointers(words).data(), pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0)
        return system_error(ErrorCode::ipam, "starting " + path, failed);
    return child;
}

// Reads what is there into `into`, keeping at most `most` bytes; false at the end of the stream.
bool drain(int fd, std::string &into, std::size_t most) {
    std::array<char, 4096> chunk{};
    const ssize_t got = read(fd, chunk.data(), chunk.size());
    if (got > 0 && into.size() <= most)
        into.append(chunk.data(), static_cast<std::size_t>(got));
    return got > 0 || (got < 0 && errno == EINTR);
}

// Feeds and drains the pipes until both outputs end; false where the program prints too much.
bool talk(Pipe &in, Pipe &out, Pipe &err, const std::string &input, Finished &finished) {
    std::size_t written = 0;
    fcntl(in.write.get(), F_SETFL, O_NONBLOCK);
    while (out.read || err.read) {
        std::array<pollfd, 3> waits = {
            {{in.write.get(), POLLOUT, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}}};
        if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR)
            return false;
        if (waits[0].revents != 0) {
            const ssize_t sent = write(in.write.get(), input.data() + written, input.size() - written);
            if (sent > 0)
                written += static_cast<std::size_t>(sent);
            if (written == input.size() || (sent < 0 && errno != EAGAIN && errno != EINTR))
                in.write.reset();
        }
        if (waits[1].revents != 0 && !drain(out.read.get(), finished.out, kMostOutput))
            out.read.reset();
        if (waits[2].revents != 0 && !drain(err.read.get(), finished.err, kMostError))
            err.read.reset();
        if (finished.out.size() > kMostOutput)
            return false;
    }
    return true;
}

} // namespace

Result<Finished> run_process(const std::string &path, const std::vector<std::string> &environment,
                             const std::string &input, const std::vector<std::string> &arguments) {
    Pipe in = TRY(make_pipe());
    Pipe out = TRY(make_pipe());
    Pipe err = TRY(make_pipe());
    std::signal(SIGPIPE, SIG_IGN);
    std::vector<std::string> words{path};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const pid_t child = TRY(spawn(words, environment, in, out, err));
    in.read.reset();
    out.write.reset();
    err.write.reset();
    Finished finished;
    const bool understood = talk(in, out, err, input, finished);
    if (!understood)
        kill(child, SIGKILL);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!understood)
        return Error{ErrorCode::ipam, path + " printed more than " + std::to_string(kMostOutput) + " bytes"};
    finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return finished;
}

} // namespace podlane
