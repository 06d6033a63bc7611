// SPDX-License-Identifier: MIT
#include "file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace podlane {

Result<std::string> read_all(int fd, const std::string &name, std::size_t most) {
    std::string text;
    std::array<char, 16384> chunk{};
    while (text.size() < most) {
        const ssize_t got = ::read(fd, chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return system_error(ErrorCode::io_failure, "reading " + name, errno);
        if (got == 0)
            break;
        text.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return text;
}

Result<void> write_all(int fd, const std::string &name, std::string_view text) {
    while (!text.empty()) {
        const ssize_t sent = ::write(fd, text.data(), text.size());
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return system_error(ErrorCode::io_failure, "writing " + name, sent < 0 ? errno : ENOSPC);
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
}

Result<std::string> read_file(const std::string &path, std::size_t most, int flags) {
    int fd = -1;
    do
        fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
    while (fd < 0 && errno == EINTR);
    const Fd file(fd);
    if (file)
        return read_all(file.get(), path, most);
    const bool is_missing = errno == ENOENT || errno == ENOTDIR;
    return system_error(is_missing ? ErrorCode::missing : ErrorCode::io_failure, "reading " + path, errno);
}

Result<std::string> read_regular_file(const std::string &path, std::size_t most) {
    struct stat facts {};
    if (stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
        return Error{ErrorCode::io_failure, "reading " + path + ": it is not a regular file",
                     "move it away, or name a regular file"};
    std::string text = TRY(read_file(path, most + 1, O_NONBLOCK));
    if (text.size() > most)
        return Error{ErrorCode::io_failure,
                     "reading " + path + ": it is larger than " + std::to_string(most >> 20U) + " MiB"};
    return text;
}

std::string plain_path(std::string path) {
    if (!path.starts_with('/'))
        return path;
    std::string plain;
    std::string_view rest = path;
    while (!rest.empty()) {
        rest.remove_prefix(1);
        const std::string_view part = rest.substr(0, rest.find('/'));
        if (!part.empty() && part != ".")
            plain.append("/").append(part);
        rest.remove_prefix(part.size());
    }
    return plain.empty() ? "/" : plain;
}

Result<bool> exists(const std::string &path, ErrorCode code) {
    if (access(path.c_str(), F_OK) == 0)
        return true;
    if (errno == ENOENT || errno == ENOTDIR)
        return false;
    return system_error(code, "looking for " + path, errno);
}

Result<void> remove_if_present(const std::string &path) {
    if (unlink(path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR)
        return {};
    const int error = errno;
    struct stat facts {};
    if (error == EROFS && lstat(path.c_str(), &facts) != 0 && errno == ENOENT) // the kernel has not looked for it
        return {};
    Error failed = system_error(ErrorCode::io_failure, "removing " + path, error);
    if (error == EROFS)
        failed.hint = "mount its file system for writing, and repeat the call";
    return failed;
}

} // namespace podlane
