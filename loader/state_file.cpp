// SPDX-License-Identifier: MIT
#include "loader/state_file.hpp"

#include "loader/lock_file.hpp"
#include "maps/fd.hpp"
#include "maps/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>
#include <utility>

namespace podlane {
namespace {

constexpr std::size_t kLargestFile = std::size_t{4} << 20U; // a configuration and a lease are at most 1 MiB each

Error with_hint(Error error) {
    const bool is_full = error.system_errno == ENOSPC || error.system_errno == EDQUOT;
    error.hint = error.system_errno == EISDIR ? "remove that directory, which is none of Podlane's"
                 : error.system_errno == ENOTDIR
                     ? "remove the file that is in a directory's place, or set \"stateDir\" to another"
                 : error.system_errno == EFBIG
                     ? "raise the caller's limit of a file's size (`ulimit -f`; LimitFSIZE= of a unit of systemd)"
                 : is_full ? "make room on its file system (`df` and `df -i` show it), or set \"stateDir\" to another"
                           : "set \"stateDir\" to a directory that root can write to";
    return error;
}

Error failed(const std::string &doing, int system_errno) {
    return with_hint(system_error(ErrorCode::io_failure, doing, system_errno));
}

Result<void> write_text(const Fd &file, const std::string &path, std::string_view text) {
    Result<void> written = write_all(file.get(), path, text);
    return written ? written : with_hint(written.error());
}

Result<Fd> open_locked(const std::string &path) {
    Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (!file)
        return failed("creating " + path, errno);
    if (auto locked = lock_file(file, LOCK_EX, path, ErrorCode::io_failure); !locked)
        return locked.error().hint.empty() ? with_hint(std::move(locked).error()) : std::move(locked).error();
    return file;
}

Result<bool> is_at(const Fd &file, const std::string &path, struct stat &own) {
    struct stat there {};
    if (fstat(file.get(), &own) != 0)
        return failed("reading " + path, errno);
    if (lstat(path.c_str(), &there) == 0)
        return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
    return errno == ENOENT ? Result<bool>(false) : failed("reading " + path, errno);
}

// An empty file that no other call writes into: each waits for those before it, which rename theirs away.
Result<Fd> open_fresh(const std::string &directory, const std::string &path) {
    for (;;) {
        auto file = open_locked(path);
        if (!file && file.error().system_errno == ENOENT) {
            TRY(make_directory(directory));
            file = open_locked(path);
        }
        if (!file)
            return file;
        struct stat facts {};
        if (!TRY(is_at(*file, path, facts)))
            continue;
        // Only what a killed call left: at the close of a file that was truncated ext4 begins to write again.
        if (facts.st_size != 0 && ftruncate(file->get(), 0) != 0)
            return failed("writing " + path, errno);
        return file;
    }
}

} // namespace

Result<std::optional<std::string>> read_state_file(const std::string &path) {
    struct stat facts {};
    if (lstat(path.c_str(), &facts) != 0 && errno != ENOENT && errno != ENOTDIR)
        return system_error(ErrorCode::io_failure, "reading " + path, errno);
    if (!S_ISREG(facts.st_mode)) // a link, a pipe, a directory: none that this module has written
        return std::optional<std::string>{};
    auto text = read_file(path, kLargestFile, O_NOFOLLOW | O_NONBLOCK);
    if (text)
        return std::optional(*std::move(text));
    return text.error().code == ErrorCode::missing ? Result<std::optional<std::string>>(std::nullopt) : text.error();
}

Result<std::optional<std::string>> read_own_state_file(const std::string &path) {
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file && errno == ENOENT)
        return std::optional<std::string>{};
    struct stat facts {};
    if (!file || fstat(file.get(), &facts) != 0)
        return system_error(ErrorCode::io_failure, "reading " + path, errno);
    if (!S_ISREG(facts.st_mode) || facts.st_uid != geteuid() || (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return Error{ErrorCode::io_failure, "reading " + path + ": others can have written it"};
    return std::optional(TRY(read_all(file.get(), path, kLargestFile)));
}

Result<std::vector<std::string>> names_in(const std::string &directory, Hidden hidden) {
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
        const std::string_view name = entry->d_name;
        if (hidden == Hidden::too ? name != "." && name != ".." : !name.starts_with('.'))
            names.emplace_back(name);
    }
    std::ranges::sort(names);
    return names;
}

Error leads_to_nothing(const std::string &path) {
    return {ErrorCode::io_failure, path + " is a link that leads to nothing",
            "mount or create what it leads to, or remove it", ENOENT};
}

Result<void> make_directory(const std::string &path) {
    const auto make = [&] { return mkdir(path.c_str(), 0700) == 0 && chmod(path.c_str(), 0700) == 0; };
    if (make()) // whatever the umask is
        return {};
    if (errno == EEXIST)
        return access(path.c_str(), F_OK) == 0 || errno != ENOENT ? Result<void>{} : leads_to_nothing(path);
    const auto parent = path.rfind('/');
    if (errno != ENOENT || parent == 0 || parent == std::string::npos)
        return failed("creating " + path, errno);
    TRY(make_directory(path.substr(0, parent)));
    if (!make() && errno != EEXIST)
        return failed("creating " + path, errno);
    return {};
}

Result<void> check_writable(const std::string &directory) {
    const std::string doing = "writing to " + directory;
    struct stat facts {};
    struct statvfs space {};
    if (access(directory.c_str(), W_OK) != 0 || stat(directory.c_str(), &facts) != 0 ||
        statvfs(directory.c_str(), &space) != 0)
        return failed(doing, errno);
    if (!S_ISDIR(facts.st_mode))
        return failed(doing, ENOTDIR);
    const bool is_full = space.f_blocks != 0 && space.f_bfree == 0; // both are 0 if there is no bound
    const bool has_no_inode = space.f_files != 0 && space.f_ffree == 0;
    return is_full || has_no_inode ? failed(doing, ENOSPC) : Result<void>{};
}

Result<void> check_replaceable(const std::string &directory, const std::string &name) {
    for (const std::string &path : {directory + "/" + name, directory + "/." + name})
        if (struct stat facts{}; lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode))
            return failed("writing " + path, EISDIR);
    return {};
}

Result<void> replace_file(const std::string &directory, const std::string &name, const std::string &text, Begin begin) {
    const std::string path = directory + "/" + name;
    const std::string fresh = directory + "/." + name; // one name: what a killed call left is written over
    const Fd file = TRY(open_fresh(directory, fresh));
    Result<void> done = write_text(file, fresh, text);
    // Not an fsync(2): it begins to write and does not wait. A file system that cannot do it writes later.
    if (done && begin == Begin::at_once)
        static_cast<void>(sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
    if (done && rename(fresh.c_str(), path.c_str()) != 0)
        done = failed("renaming " + fresh + " to " + name, errno);
    if (!done)
        static_cast<void>(unlink(fresh.c_str())); // still locked: whoever waits for it creates another
    return done;
}

Result<bool> append_to_file(const std::string &path, const std::string &text) {
    const Fd file(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat facts {};
    if (!file || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
        return false;
    const off_t before = facts.st_size;
    if (auto written = write_text(file, path, text); !written) {
        // Nobody would read what is added behind a part of it.
        if (ftruncate(file.get(), before) != 0)
            written.error().message += "; and " + failed("cutting it off", errno).message;
        return std::move(written).error();
    }
    return fstat(file.get(), &facts) == 0 && facts.st_nlink > 0;
}

Result<bool> cut_file(const std::string &path, std::size_t from, std::size_t to) {
    const Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat facts {};
    if (!file && errno != ENOENT)
        return failed("writing " + path, errno);
    if (!file || fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode) || std::cmp_not_equal(facts.st_size, from))
        return false;
    return ftruncate(file.get(), static_cast<off_t>(to)) == 0 ? Result<bool>(true) : failed("writing " + path, errno);
}

Result<void> remove_unfinished(const std::string &path) {
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat facts {};
    if (!file || fstat(file.get(), &facts) != 0)
        return errno == ENOENT || errno == ELOOP ? Result<void>{} : failed("reading " + path, errno);
    if (!S_ISREG(facts.st_mode))
        return {};
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? Result<void>{} : failed("locking " + path, errno);
    // Under the lock: whoever waits for it sees that the file is gone, and creates another.
    return TRY(is_at(file, path, facts)) ? remove_if_present(path) : Result<void>{};
}

} // namespace podlane
