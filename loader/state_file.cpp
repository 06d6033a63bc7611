// SPDX-License-Identifier: MIT
#include "loader/state_file.hpp"

#include "maps/fd.hpp"
#include "maps/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
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
    const bool is_none = text.error().code == ErrorCode::missing || text.error().system_errno == EISDIR;
    return is_none ? Result<std::optional<std::string>>(std::nullopt) : text.error();
}

Result<std::vector<std::string>> names_in(const std::string &directory) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR *)> listing(opendir(directory.c_str()), &closedir);
    if (!listing && (errno == ENOENT || errno == ENOTDIR))
        return names;
    if (!listing)
        return system_error(ErrorCode::io_failure, "listing " + directory, errno);
    for (;;) {
        errno = 0;
        const dirent *entry = readdir(listing.get());
        if (entry == nullptr && errno != 0)
            return system_error(ErrorCode::io_failure, "listing " + directory, errno);
        if (entry == nullptr)
            break;
        if (entry->d_name[0] != '.')
            names.emplace_back(entry->d_name);
    }
    std::ranges::sort(names);
    return names;
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
