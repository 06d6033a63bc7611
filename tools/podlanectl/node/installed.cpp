// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/installed.hpp"

#include "maps/fd.hpp"
#include "maps/hash.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <map>
#include <sstream>

namespace podlane::ctl {
namespace {

constexpr std::string_view kList = ".podlane-installed";

// Detects accidental changes; a writer here could change the list as well.
std::string fingerprint(std::string_view content) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%zu-%016" PRIx64, content.size(), fnv1a_64(content));
    return text.data();
}

using List = std::map<std::string, std::string, std::less<>>; // name → fingerprint

Result<List> read_list(const std::string &directory) {
    List list;
    const auto text = read_file(directory + "/" + std::string(kList));
    if (!text)
        return text.error().code == ErrorCode::missing ? Result<List>(list) : text.error();
    std::istringstream lines(*text);
    for (std::string name, print; lines >> name >> print;)
        list[name] = print;
    return list;
}

Result<void> write_all(int fd, std::string_view content, const std::string &path) {
    while (!content.empty()) {
        const ssize_t written = write(fd, content.data(), content.size());
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return system_error(ErrorCode::io_failure, "writing " + path, errno);
        content.remove_prefix(static_cast<std::size_t>(written));
    }
    return {};
}

// Written and synced under a temporary name, then renamed.
Result<void> put_file(const std::string &path, std::string_view content, unsigned mode) {
    const std::string temporary = path + ".new-" + std::to_string(getpid());
    const Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!fd)
        return system_error(ErrorCode::io_failure, "creating " + temporary, errno);
    Result<void> done = write_all(fd.get(), content, temporary);
    if (done && (fchmod(fd.get(), mode) != 0 || fsync(fd.get()) != 0 || rename(temporary.c_str(), path.c_str()) != 0))
        done = system_error(ErrorCode::io_failure, "renaming " + temporary + " to " + path, errno);
    if (!done)
        unlink(temporary.c_str());
    return done;
}

Result<void> write_list(const std::string &directory, const List &list) {
    const std::string path = directory + "/" + std::string(kList);
    if (list.empty()) {
        if (unlink(path.c_str()) != 0 && errno != ENOENT)
            return system_error(ErrorCode::io_failure, "removing " + path, errno);
        return {};
    }
    std::string text;
    for (const auto &[name, print] : list)
        text.append(name).append(" ").append(print).append("\n");
    return put_file(path, text, 0644);
}

bool is_ours(const List &list, std::string_view name, std::string_view content) {
    const auto entry = list.find(name);
    return entry != list.end() && entry->second == fingerprint(content);
}

} // namespace

Result<std::string> read_file(const std::string &path) {
    const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd)
        return system_error(errno == ENOENT ? ErrorCode::missing : ErrorCode::io_failure, "reading " + path, errno);
    std::string content;
    std::array<char, 65536> chunk{};
    while (true) {
        const ssize_t got = read(fd.get(), chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return system_error(ErrorCode::io_failure, "reading " + path, errno);
        if (got == 0)
            return content;
        content.append(chunk.data(), static_cast<std::size_t>(got));
    }
}

Result<void> check_file(const std::string &directory, std::string_view name, std::string_view content) {
    const std::string path = directory + "/" + std::string(name);
    const auto there = read_file(path);
    if (!there)
        return there.error().code == ErrorCode::missing ? Result<void>() : there.error();
    if (*there == content)
        return {};
    const List list = TRY(read_list(directory));
    if (is_ours(list, name, *there))
        return {};
    return Error{ErrorCode::already_exists,
                 path + " is there, and " +
                     (list.contains(name) ? "was changed since podlanectl wrote it" : "was not written by podlanectl"),
                 "move it away, or choose another directory"};
}

Result<Written> install_file(const std::string &directory, std::string_view name, std::string_view content,
                             unsigned mode) {
    TRY(check_file(directory, name, content));
    const std::string path = directory + "/" + std::string(name);
    List list = TRY(read_list(directory));
    const auto there = read_file(path);
    const bool same = there && *there == content;
    if (!same) {
        TRY(put_file(path, content, mode));
        list[std::string(name)] = fingerprint(content);
        TRY(write_list(directory, list));
    }
    return same ? Written::unchanged : Written::written;
}

Result<Removed> remove_file(const std::string &directory, std::string_view name) {
    const std::string path = directory + "/" + std::string(name);
    List list = TRY(read_list(directory));
    const auto there = read_file(path);
    if (!there && there.error().code != ErrorCode::missing)
        return there.error();
    if (there && !is_ours(list, name, *there))
        return Removed::foreign;
    if (there && unlink(path.c_str()) != 0)
        return system_error(ErrorCode::io_failure, "removing " + path, errno);
    if (list.erase(std::string(name)) != 0)
        TRY(write_list(directory, list));
    return there ? Removed::removed : Removed::missing;
}

} // namespace podlane::ctl
