// SPDX-License-Identifier: MIT
#include "tools/podlanectl/views/reader.hpp"

#include "loader/pins.hpp"
#include "loader/state_file.hpp"
#include "maps/tables.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace podlane::ctl {
namespace {

Error denied(std::string_view what, int system_errno) {
    return {ErrorCode::bpf, "no permission to read " + std::string(what), {}, system_errno}; // cli/run.cpp has the hint
}

// The nearest directory at or above `path` that exists.
Result<std::string> existing_ancestor(std::string path) {
    struct stat facts {};
    while (path.size() > 1 && stat(path.c_str(), &facts) != 0) {
        if (errno == EACCES)
            return denied(path, errno);
        if (errno != ENOENT && errno != ENOTDIR)
            return system_error(ErrorCode::bpf, "looking for " + path, errno);
        const std::size_t slash = path.find_last_of('/');
        path = slash == 0 || slash == std::string::npos ? "/" : path.substr(0, slash);
    }
    return path;
}

// A root is a directory below the mount, so that pins of other programs have room beside it.
std::string mount_command(const std::string &root) {
    const std::size_t slash = root.find_last_of('/');
    return "mount -t bpf bpf " + (slash == 0 || slash == std::string::npos ? root : root.substr(0, slash));
}

Error explain_missing(const std::string &root, std::string_view name) {
    if (const Result<void> live = check_live_directory(root); !live)
        return live.error();
    Error error{ErrorCode::missing, "map " + pin_path(root, name) + " is not there", {}, ENOENT};
    const auto other = other_version(root, name);
    if (!other)
        return other.error();
    error.hint = other->empty() ? "its pin was removed; podlanectl repair restores it"
                                : "there is " + *other + ": use the podlanectl of the installed podlane";
    return error;
}

} // namespace

Result<OpenMap> open_pinned_map(const std::string &path) {
    Fd fd = detail::open_pin(path, true);
    if (!fd) {
        const int error = errno;
        if (error == EPERM || error == EACCES)
            return denied("map " + path, error);
        return system_error(error == ENOENT ? ErrorCode::missing : ErrorCode::bpf, "opening map " + path, error);
    }
    if (!TRY(detail::is_map(fd)))
        return Error{ErrorCode::bpf, path + " is not a map"};
    const MapFacts facts = TRY(map_facts(fd.get()));
    return OpenMap{std::move(fd), path, facts};
}

Result<OpenMap> open_live_map(const std::string &root, std::string_view name, std::size_t key_size,
                              std::size_t value_size) {
    Result<OpenMap> map = open_pinned_map(pin_path(root, name));
    if (!map)
        return map.error().code == ErrorCode::missing ? explain_missing(root, name) : std::move(map).error();
    if (map->facts.key_size != key_size || map->facts.value_size != value_size)
        return Error{ErrorCode::bpf,
                     "map " + map->path + " has keys of " + std::to_string(map->facts.key_size) + " and values of " +
                         std::to_string(map->facts.value_size) + " bytes, this podlanectl knows " +
                         std::to_string(key_size) + " and " + std::to_string(value_size),
                     "use the podlanectl of the installed podlane"};
    return map;
}

Result<std::vector<Bytes>> walk_keys(const OpenMap &map) { return detail::keys(map.fd.get(), map.path); }

Result<std::uint64_t> count_entries(const OpenMap &map) { return TRY(walk_keys(map)).size(); }

std::uint64_t map_memory(const OpenMap &map) {
    const std::string path = "/proc/self/fdinfo/" + std::to_string(map.fd.get());
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> file(std::fopen(path.c_str(), "re"), &std::fclose);
    std::array<char, 256> line{};
    std::uint64_t bytes = 0;
    while (file != nullptr && std::fgets(line.data(), line.size(), file.get()) != nullptr)
        if (std::string_view(line.data()).starts_with("memlock:"))
            bytes = std::strtoull(line.data() + sizeof "memlock:" - 1, nullptr, 10);
    return bytes;
}

bool is_no_object(const Error &error) {
    constexpr std::array kOfOthers = {0, EACCES, ENOTDIR, EINVAL}; // EINVAL: a BPF link is not opened to be read
    return error.code == ErrorCode::missing || std::ranges::find(kOfOthers, error.system_errno) != kOfOthers.end();
}

Result<void> check_live_directory(const std::string &root) {
    struct statfs facts {};
    const std::string ancestor = TRY(existing_ancestor(root));
    if (statfs(ancestor.c_str(), &facts) != 0)
        return errno == EACCES ? denied(root, errno)
                               : system_error(errno == ENOENT ? ErrorCode::missing : ErrorCode::bpf,
                                              "looking at " + ancestor, errno);
    if (facts.f_type != BPF_FS_MAGIC)
        return Error{ErrorCode::missing, "no bpffs is mounted at " + root,
                     "mount it (" + mount_command(root) + "), or name another directory with --bpffs"};
    struct stat live {};
    if (stat(live_directory(root).c_str(), &live) == 0)
        return {};
    if (errno == EACCES)
        return denied(root, errno);
    if (errno != ENOENT && errno != ENOTDIR)
        return system_error(ErrorCode::bpf, "looking for " + live_directory(root), errno);
    return Error{ErrorCode::missing, "Podlane has no maps below " + root,
                 "no pod was attached since the node booted; if its configuration has another \"bpffs\", name that "
                 "directory with --bpffs",
                 ENOENT};
}

Result<bool> is_live(const std::string &root) {
    auto live = check_live_directory(root);
    if (!live && live.error().code != ErrorCode::missing)
        return std::move(live).error();
    return static_cast<bool>(live);
}

Result<std::vector<std::string>> pin_names(const std::string &directory) {
    std::vector<std::string> names = TRY(names_in(directory, Hidden::too));
    std::erase_if(names, [&](const std::string &name) {
        struct stat facts {};
        return lstat((directory + "/" + name).c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
    });
    return names;
}

} // namespace podlane::ctl
