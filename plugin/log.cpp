// SPDX-License-Identifier: MIT
#include "plugin/log.hpp"

#include "maps/clock.hpp"
#include "maps/fd.hpp"
#include "maps/printable.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

namespace podlane {
namespace {

struct Destination {
    Fd file;
    std::string name; // of the file
    cni::Log::Level level = cni::Log::Level::error;
    std::string identity;
    bool open = false;
};

Destination &destination() {
    static Destination one;
    return one;
}

constexpr std::array<std::string_view, 4> kLevels = {"error", "warning", "info", "debug"};
constexpr std::array<std::string_view, 6> kCommands = {"ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"};

std::string now() {
    const std::uint64_t time = realtime_ns();
    const auto seconds = static_cast<std::time_t>(time / kNsPerSecond);
    tm parts{};
    gmtime_r(&seconds, &parts);
    std::array<char, 40> text{};
    const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::snprintf(text.data() + length, text.size() - length, ".%03uZ",
                  static_cast<unsigned>(time % kNsPerSecond / kNsPerMs));
    return text.data();
}

std::string identity_of(const cni::Request &request) {
    std::string text{kCommands.at(static_cast<std::size_t>(request.command))};
    if (!request.pod.name.empty())
        text += " pod=" + request.pod.ns + "/" + request.pod.name;
    if (!request.container_id.empty())
        text += " container=" + request.container_id;
    if (!request.ifname.empty())
        text += " interface=" + request.ifname;
    if (!request.config.name.empty())
        text += " network=" + request.config.name;
    return text;
}

// open(2) and write(2) name no reason for what is no file.
std::string reason_of(const std::string &file, int code) {
    struct stat facts {};
    if (code == ENXIO && lstat(file.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode))
        return "it is a socket, and has to be a file";
    if (code == ENXIO && lstat(file.c_str(), &facts) == 0 && S_ISFIFO(facts.st_mode))
        return "it is a pipe that nobody reads, and has to be a file";
    return std::strerror(code);
}

void give_up_file(Destination &to, int code) {
    to.file.reset();
    log(cni::Log::Level::warning,
        "log.file " + to.name + ": " + reason_of(to.name, code) + "; the log goes to standard error");
}

// One write a line, so that lines of parallel calls do not mix. false: a part of it may be there.
bool write_line(int file, const std::string &line) {
    errno = ENOSPC; // of a part
    return write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

} // namespace

void log_to(const cni::Request &request) {
    Destination &to = destination();
    to.level = request.config.log.level;
    to.identity = identity_of(request);
    to.open = true;
    const std::string &file = request.config.log.file;
    if (file.empty())
        return;
    // A pipe that nobody reads would hold up the call.
    to.file = Fd(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    to.name = file;
    if (!to.file)
        give_up_file(to, errno);
}

bool is_logged(cni::Log::Level level) { return destination().open && level <= destination().level; }

void log(cni::Log::Level level, std::string_view text) {
    Destination &to = destination();
    if (!is_logged(level))
        return;
    std::string one_line(text);
    std::ranges::replace(one_line, '\n', ' ');
    const std::string line = now() + " " + std::string(kLevels.at(static_cast<std::size_t>(level))) + " " +
                             printable(to.identity + ": " + one_line) + "\n";
    if (to.file && write_line(to.file.get(), line))
        return;
    if (to.file)
        give_up_file(to, errno);
    (void)write_line(STDERR_FILENO, line);
}

} // namespace podlane
