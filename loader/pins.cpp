// SPDX-License-Identifier: MIT
#include "loader/pins.hpp"

#include "loader/lock_file.hpp"
#include "loader/state_file.hpp"
#include "maps/file.hpp"
#include "maps/tables.hpp"
#include "maps/text.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace podlane {
namespace {

constexpr std::string_view kStandardMount = "/sys/fs/bpf";
constexpr const char *kLoading = "loading"; // the names of directories for what is being loaded begin with it

// False if there is nothing at `path`.
Result<bool> is_bpffs(const std::string &path) {
    struct statfs facts {};
    while (statfs(path.c_str(), &facts) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return false;
        if (errno != EINTR)
            return system_error(ErrorCode::plugin_not_available, "bpffs: reading " + path, errno);
    }
    return facts.f_type == BPF_FS_MAGIC;
}

std::string parent_of(const std::string &path) { return path.substr(0, path.rfind('/')); }

Error no_bpffs(const std::string &root, int system_errno) {
    return {ErrorCode::plugin_not_available, "bpffs: " + root + " is not on a mounted bpffs",
            "mount -t bpf bpf " + parent_of(root) + ", or set \"bpffs\" to a directory on one", system_errno};
}

// Several first ADDs may run at once: the directory below the mount is the lock, and those that waited check again.
Result<void> mount_bpffs(const std::string &root) {
    const std::string mount_point(kStandardMount);
    const Fd below(open(mount_point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!below)
        return no_bpffs(root, errno);
    TRY(lock_file(below, LOCK_EX, mount_point, ErrorCode::bpf));
    if (TRY(is_bpffs(mount_point)))
        return {};
    if (mount("bpf", mount_point.c_str(), "bpf", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RELATIME, "mode=0700") != 0)
        return system_error(ErrorCode::plugin_not_available, "bpffs: mounting " + mount_point, errno);
    return {};
}

Result<void> check_root(const std::string &root, const struct stat &facts) {
    if (!S_ISDIR(facts.st_mode))
        return Error{ErrorCode::plugin_not_available, "bpffs: " + root + " is not a directory",
                     "set \"bpffs\" to another directory"};
    if (facts.st_uid != geteuid())
        return Error{ErrorCode::plugin_not_available,
                     "bpffs: " + root + " belongs to user " + std::to_string(facts.st_uid) + ", and this is user " +
                         std::to_string(geteuid()),
                     facts.st_uid == 0 ? "run podlane as root" : "set \"bpffs\" to another directory"};
    if ((facts.st_mode & 077U) != 0)
        return Error{ErrorCode::plugin_not_available, "bpffs: users other than its owner have access to " + root,
                     "chmod 0700 " + root};
    return {};
}

Result<bool> is_still_at(const Fd &directory, const std::string &path) {
    struct stat opened {};
    struct stat there {};
    if (fstat(directory.get(), &opened) != 0)
        return system_error(ErrorCode::bpf, "reading " + path, errno);
    if (stat(path.c_str(), &there) != 0)
        return errno == ENOENT || errno == ENOTDIR ? Result<bool>(false)
                                                   : system_error(ErrorCode::bpf, "reading " + path, errno);
    return opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

} // namespace

Result<void> prepare_root(const std::string &root) {
    const std::string parent = parent_of(root);
    if (!TRY(is_bpffs(parent))) {
        if (TRY(is_bpffs(root)))
            return Error{ErrorCode::plugin_not_available,
                         "bpffs: on " + root + " a bpffs is mounted, where pins of other programs lie",
                         "set \"bpffs\" to a directory below it, such as " + root + "/podlane"};
        if (parent != kStandardMount)
            return no_bpffs(root, 0);
        TRY(mount_bpffs(root));
    }
    if (mkdir(root.c_str(), 0700) == 0 ? chmod(root.c_str(), 0700) != 0 : errno != EEXIST) // whatever the umask is
        return system_error(ErrorCode::plugin_not_available, "bpffs: creating " + root, errno);
    struct stat facts {};
    if (lstat(root.c_str(), &facts) != 0)
        return system_error(ErrorCode::plugin_not_available, "bpffs: reading " + root, errno);
    return check_root(root, facts);
}

Result<Lock> Lock::take(const std::string &root, int operation) {
    for (;;) {
        Fd fd(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!fd)
            return system_error(errno == ENOENT || errno == ENOTDIR ? ErrorCode::missing : ErrorCode::bpf,
                                "opening " + root, errno);
        TRY(lock_file(fd, operation, root, ErrorCode::bpf));
        if (TRY(is_still_at(fd, root))) // it may have been removed, and made again, meanwhile
            return Lock(std::move(fd));
    }
}

bool is_of_missing_root(const std::string &root, const Error &error) {
    return error.code == ErrorCode::missing && error.message.find("opening " + root + ": ") != std::string::npos;
}

Result<Lock> Lock::exclusive(const std::string &root) { return take(root, LOCK_EX); }
Result<Lock> Lock::shared(const std::string &root) { return take(root, LOCK_SH); }
Result<bool> Lock::is_of(const std::string &root) const { return is_still_at(fd_, root); }

std::string replaced_directory(const std::string &root) { return root + "/replaced"; }

Result<bool> is_pinned(const std::string &path) { return exists(path, ErrorCode::bpf); }

Result<std::string> make_loading_directory(const std::string &root) {
    TRY(remove_leftovers(root));
    std::string loading = root + "/" + kLoading + "-XXXXXX";
    if (mkdtemp(loading.data()) == nullptr)
        return system_error(ErrorCode::bpf, "creating " + loading, errno);
    return loading;
}

Result<std::vector<std::string>> leftovers(const std::string &root) {
    std::vector<std::string> left;
    for (const std::string &name : TRY(names_in(root, Hidden::too)))
        if (std::string path = root + "/" + name; name.starts_with(kLoading) || path == replaced_directory(root))
            left.push_back(std::move(path));
    return left;
}

Result<void> remove_leftovers(const std::string &root) {
    for (const std::string &directory : TRY(leftovers(root)))
        TRY(remove_pins(directory));
    return {};
}

Result<void> publish(const std::string &root, const std::string &loading) {
    const std::string live = live_directory(root);
    // bpffs can exchange since Linux 5.17; before, the live directory is missing for a moment, which ensure_loaded()
    // ends.
    if (renameat2(AT_FDCWD, loading.c_str(), AT_FDCWD, live.c_str(), RENAME_EXCHANGE) == 0) {
        static_cast<void>(remove_pins(loading)); // else the next upgrade does it
        return {};
    }
    if (errno == ENOENT) // the root was removed: `live` may be another call's
        return system_error(ErrorCode::bpf, "publishing " + live, errno);
    const std::string replaced = replaced_directory(root);
    TRY(remove_pins(replaced));
    if (rename(live.c_str(), replaced.c_str()) != 0)
        return system_error(ErrorCode::bpf, "replacing " + live, errno);
    if (rename(loading.c_str(), live.c_str()) != 0) {
        const int error = errno;
        static_cast<void>(rename(replaced.c_str(), live.c_str()));
        return system_error(ErrorCode::bpf, "publishing " + live, error);
    }
    static_cast<void>(remove_pins(replaced));
    return {};
}

Result<std::vector<std::string>> maps_of_other_versions(const std::string &root) {
    std::vector<std::string> others;
    for (const std::string &name : TRY(names_in(live_directory(root), Hidden::too))) {
        const std::string_view base = split_version(name).first;
        if (base == name || std::ranges::find(kMapNames, name) != kMapNames.end())
            continue;
        if (std::ranges::any_of(kMapNames, [&](std::string_view ours) { return split_version(ours).first == base; }))
            others.push_back(name);
    }
    return others;
}

Result<void> refuse_other_versions(const std::string &root) {
    if (TRY(maps_of_other_versions(root)).empty())
        return {};
    return Error{ErrorCode::try_again_later, "the maps below " + root + " are of another version of Podlane",
                 "podlanectl upgrade brings them to this one's"};
}

Result<std::string> other_version(const std::string &root, std::string_view name) {
    for (std::string &other : TRY(maps_of_other_versions(root)))
        if (split_version(other).first == split_version(name).first)
            return std::move(other);
    return std::string{};
}

std::pair<std::string_view, unsigned> split_version(std::string_view name) {
    const std::size_t mark = name.rfind("_v");
    if (mark == std::string_view::npos)
        return {name, 0};
    const auto version = parse_number<unsigned>(name.substr(mark + 2));
    return version ? std::pair(name.substr(0, mark), *version) : std::pair(name, 0U);
}

Result<void> remove_pins(const std::string &directory) {
    for (const std::string &name : TRY(names_in(directory, Hidden::too))) {
        const std::string path = directory + "/" + name;
        if (unlink(path.c_str()) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR)
            return system_error(ErrorCode::bpf, "removing pin " + path, errno);
        TRY(remove_pins(path)); // in the place of a pin
    }
    if (rmdir(directory.c_str()) != 0 && errno != ENOENT)
        return system_error(ErrorCode::bpf, "removing " + directory, errno);
    return {};
}

Result<void> name_netns(const std::string &directory, std::uint32_t netns) {
    const std::string link = directory + "/" + kNetnsLink;
    if (symlink(std::to_string(netns).c_str(), link.c_str()) != 0)
        return system_error(ErrorCode::bpf, "creating " + link, errno);
    return {};
}

Result<std::uint32_t> netns_of(const std::string &root) {
    std::array<char, 16> text{};
    const std::string link = pin_path(root, kNetnsLink);
    const ssize_t size = readlink(link.c_str(), text.data(), text.size());
    if (size < 0 && errno != ENOENT && errno != ENOTDIR && errno != EINVAL) // EINVAL: of what is no link
        return system_error(ErrorCode::bpf, "reading " + link, errno);
    return parse_number<std::uint32_t>({text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))}).value_or(0);
}

Result<void> refuse_other_netns(const std::string &root, std::uint32_t netns) {
    const std::uint32_t there = TRY(netns_of(root));
    if (there == 0 || there == netns)
        return {};
    return Error{ErrorCode::plugin_not_available,
                 "bpffs: " + root + " belongs to network namespace " + std::to_string(there) + ", and this is " +
                     std::to_string(netns) + ": two nodes cannot share it",
                 "set \"bpffs\" to a directory of this node's own; if that namespace is gone: podlanectl uninstall"};
}

} // namespace podlane
