// SPDX-License-Identifier: MIT
#include "loader/state_file.hpp"

#include "maps/fd.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

namespace podlane {
namespace {

constexpr std::size_t kLargestFile = std::size_t{4} << 20U; // a configuration and a lease are at most 1 MiB each

Error failed(const std::string &doing, int system_errno) {
    Error error = system_error(ErrorCode::io_failure, doing, system_errno);
    error.hint = "set \"stateDir\" to a directory that root can write to";
    return error;
}

Result<void> write_all(const Fd &file, const std::string &path, std::string_view text) {
    while (!text.empty()) {
        const ssize_t sent = ::write(file.get(), text.data(), text.size());
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return failed("writing " + path, sent < 0 ? errno : ENOSPC);
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
}

} // namespace

Result<std::optional<std::string>> read_file(const std::string &path) {
    int fd = -1;
    do
        fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    while (fd < 0 && errno == EINTR);
    const Fd file(fd);
    if (!file && (errno == ENOENT || errno == ENOTDIR))
        return std::optional<std::string>{};
    if (!file)
        return system_error(ErrorCode::io_failure, "opening " + path, errno);
    std::string text;
    std::array<char, 8192> chunk{};
    while (text.size() < kLargestFile) {
        const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return system_error(ErrorCode::io_failure, "reading " + path, errno);
        if (got == 0)
            break;
        text.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return std::optional(std::move(text));
}

Result<void> make_directory(const std::string &path) {
    if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST)
        return {};
    const auto parent = path.rfind('/');
    if (errno != ENOENT || parent == 0 || parent == std::string::npos)
        return failed("creating " + path, errno);
    TRY(make_directory(path.substr(0, parent)));
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
        return failed("creating " + path, errno);
    return {};
}

Result<void> replace_file(const std::string &directory, const std::string &name, const std::string &text) {
    const std::string path = directory + "/" + name;
    const std::string fresh = directory + "/." + name; // one name: what a killed call left is written over
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW;
    Fd file(open(fresh.c_str(), kFlags, 0600));
    if (!file && errno == ENOENT) {
        TRY(make_directory(directory));
        file = Fd(open(fresh.c_str(), kFlags, 0600));
    }
    if (!file)
        return failed("creating " + fresh, errno);
    TRY(write_all(file, fresh, text));
    // Not an fsync(2): it begins to write and does not wait. A file system that cannot do it writes later.
    static_cast<void>(sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
    if (rename(fresh.c_str(), path.c_str()) == 0)
        return {};
    const int code = errno;
    // Two calls at once wrote into one file: the first to rename it has put what both wrote in its place.
    if (code == ENOENT && access(path.c_str(), F_OK) == 0)
        return {};
    return failed("renaming " + fresh + " to " + name, code);
}

} // namespace podlane
