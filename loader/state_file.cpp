// SPDX-License-Identifier: MIT
#include "loader/state_file.hpp"

#include "maps/fd.hpp"
#include "maps/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

namespace podlane {
namespace {

constexpr std::size_t kLargestFile = std::size_t{4} << 20U; // a configuration and a lease are at most 1 MiB each

Error with_hint(Error error) {
    error.hint = "set \"stateDir\" to a directory that root can write to";
    return error;
}

Error failed(const std::string &doing, int system_errno) {
    return with_hint(system_error(ErrorCode::io_failure, doing, system_errno));
}

Result<void> write_text(const Fd &file, const std::string &path, std::string_view text) {
    Result<void> written = write_all(file.get(), path, text);
    return written ? written : with_hint(written.error());
}

} // namespace

Result<std::optional<std::string>> read_state_file(const std::string &path) {
    auto text = read_file(path, kLargestFile, O_NOFOLLOW);
    if (text)
        return std::optional(*std::move(text));
    return text.error().code == ErrorCode::missing ? Result<std::optional<std::string>>(std::nullopt) : text.error();
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
    TRY(write_text(file, fresh, text));
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
