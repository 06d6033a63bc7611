// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/installed.hpp"

#include "loader/lock_file.hpp"
#include "maps/fd.hpp"
#include "maps/file.hpp"
#include "maps/hash.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
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

// name → fingerprints: two while a file takes another's place, so that a killed call leaves none that is not listed.
using List = std::map<std::string, std::set<std::string>, std::less<>>;

// One install at a time: a killed one's temporary files are the next one's.
Result<Fd> lock(const std::string &directory) {
    Fd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd && errno == ENOENT)
        return fd;
    if (!fd)
        return system_error(ErrorCode::io_failure, "opening " + directory, errno);
    TRY(lock_file(fd, LOCK_EX, directory, ErrorCode::io_failure));
    return fd;
}

std::string temporary_of(const std::string &directory, std::string_view name) {
    return directory + (name.starts_with('.') ? "/" : "/.") + std::string(name) + ".new";
}

Result<List> read_list(const std::string &directory) {
    List list;
    const auto text = read_regular_file(directory + "/" + std::string(kList));
    if (!text)
        return text.error().code == ErrorCode::missing ? Result<List>(list) : text.error();
    std::istringstream lines(*text);
    for (std::string name, print; lines >> name >> print;)
        list[name].insert(print);
    return list;
}

// Written under a temporary name, then renamed. Unlike a record it has to outlive a power cut at once, and has its
// mode.
Result<void> put_file(const std::string &directory, std::string_view name, std::string_view content, unsigned mode) {
    const std::string path = directory + "/" + std::string(name);
    const std::string temporary = temporary_of(directory, name);
    const Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
    if (!fd)
        return system_error(ErrorCode::io_failure, "creating " + temporary, errno);
    Result<void> done = write_all(fd.get(), temporary, content);
    if (done && (fchmod(fd.get(), mode) != 0 || fsync(fd.get()) != 0 || rename(temporary.c_str(), path.c_str()) != 0))
        done = system_error(ErrorCode::io_failure, "renaming " + temporary + " to " + path, errno);
    if (!done)
        unlink(temporary.c_str());
    return done;
}

Result<void> write_list(const std::string &directory, const List &list) {
    if (list.empty())
        return remove_if_present(directory + "/" + std::string(kList));
    std::string text;
    for (const auto &[name, prints] : list)
        for (const std::string &print : prints)
            text.append(name).append(" ").append(print).append("\n");
    return put_file(directory, kList, text, 0644);
}

bool is_ours(const List &list, std::string_view name, std::string_view content) {
    const auto entry = list.find(name);
    return entry != list.end() && entry->second.contains(fingerprint(content));
}

} // namespace

Result<bool> is_program(const std::string &path) {
    if (access(path.c_str(), X_OK) == 0)
        return true;
    if (errno == ENOENT || errno == ENOTDIR)
        return false;
    Error error = system_error(ErrorCode::io_failure, "running " + path, errno);
    if (error.system_errno == EACCES)
        error.hint = "chmod 755 " + path + (geteuid() == 0 ? "" : ", or run this as root");
    return error;
}

Result<void> check_file(const std::string &directory, std::string_view name, std::string_view content) {
    const std::string path = directory + "/" + std::string(name);
    const auto there = read_regular_file(path, kLargestInstalled);
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
    const Fd locked = TRY(lock(directory));
    TRY(check_file(directory, name, content));
    List list = TRY(read_list(directory));
    const auto there = read_regular_file(directory + "/" + std::string(name), kLargestInstalled);
    const bool same = there && *there == content;
    if (same && !is_ours(list, name, content)) // a package's, for example
        return Written::unchanged;
    const std::set<std::string> own{fingerprint(content)};
    std::set<std::string> &listed = list[std::string(name)];
    if (!same) {
        listed = own;
        if (there)
            listed.insert(fingerprint(*there));
        TRY(write_list(directory, list));
        TRY(put_file(directory, name, content, mode));
    }
    if (listed != own) {
        listed = own;
        TRY(write_list(directory, list));
    }
    return same ? Written::unchanged : Written::written;
}

Result<Removed> remove_file(const std::string &directory, std::string_view name) {
    const Fd locked = TRY(lock(directory));
    for (const std::string_view one : {name, kList}) // of a killed call
        TRY(remove_if_present(temporary_of(directory, one)));
    const std::string path = directory + "/" + std::string(name);
    List list = TRY(read_list(directory));
    const auto there = read_regular_file(path, kLargestInstalled);
    if (!there && there.error().code != ErrorCode::missing)
        return there.error();
    if (there && !is_ours(list, name, *there))
        return Removed::foreign;
    TRY(remove_if_present(path));
    if (list.erase(std::string(name)) != 0)
        TRY(write_list(directory, list));
    return there ? Removed::removed : Removed::missing;
}

} // namespace podlane::ctl
