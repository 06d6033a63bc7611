// SPDX-License-Identifier: MIT
#include "loader/net/sysctl.hpp"

#include "loader/net/mount.hpp"
#include "maps/fd.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace podlane::net {
namespace {

Result<std::string> file_of(const SysctlPath &path) {
    std::string file = "/proc/sys";
    for (const std::string &component : path) {
        const bool refused = component.empty() || component == "." || component == ".." ||
                             component.find('/') != std::string::npos || component.find('\0') != std::string::npos;
        if (refused)
            return Error{ErrorCode::internal, "\"" + component + "\" is not a component of a sysctl's path"};
        file += "/" + component;
    }
    return file;
}

// In the procfs at /proc the kernel finds net/ipv4 in one list of all namespaces whose settings anybody has looked at,
// which takes a millisecond among 1,000 pods. One of this process has only those it looks at itself. Settings of the
// whole kernel are read where the administrator sees them, mounts included.
Fd open_setting(const std::string &file, int how) {
    constexpr std::string_view kProc = "/proc/";
    if (!file.starts_with("/proc/sys/net/ipv4/") && !file.starts_with("/proc/sys/net/ipv6/"))
        return Fd(open(file.c_str(), how | O_CLOEXEC));
    static const Fd own = mount_unseen("proc");
    return Fd(own ? openat(own.get(), file.c_str() + kProc.size(), how | O_CLOEXEC)
                  : open(file.c_str(), how | O_CLOEXEC));
}

// ENOENT, ENOTDIR: no such setting or interface.
bool is_absence(int error) { return error == ENOENT || error == ENOTDIR; }

} // namespace

Result<std::optional<std::string>> read_sysctl(const SysctlPath &path) {
    const std::string file = TRY(file_of(path));
    const Fd fd = open_setting(file, O_RDONLY);
    if (!fd) {
        if (is_absence(errno))
            return std::optional<std::string>{};
        return system_error(ErrorCode::io_failure, "reading " + file, errno);
    }
    std::array<char, 4096> text{};
    const ssize_t size = read(fd.get(), text.data(), text.size());
    if (size < 0)
        return system_error(ErrorCode::io_failure, "reading " + file, errno);
    std::string value(text.data(), static_cast<std::size_t>(size));
    while (!value.empty() && value.back() == '\n')
        value.pop_back();
    return std::optional(std::move(value));
}

Result<bool> write_sysctl_if_different(const SysctlPath &path, std::string_view value) {
    const std::string file = TRY(file_of(path));
    const auto old = TRY(read_sysctl(path));
    if (!old)
        return Error{ErrorCode::missing, "writing " + file + ": this kernel or interface has no such setting"};
    if (*old == value)
        return false;
    const Fd fd = open_setting(file, O_WRONLY);
    const ssize_t written = fd ? write(fd.get(), value.data(), value.size()) : -1;
    if (written != static_cast<ssize_t>(value.size()))
        return system_error(ErrorCode::io_failure, "writing " + std::string(value) + " to " + file,
                            written < 0 ? errno : EIO);
    return true;
}

} // namespace podlane::net
