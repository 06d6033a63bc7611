// SPDX-License-Identifier: MIT
#include "loader/settings.hpp"

#include "loader/pace.hpp"
#include "loader/record.hpp"
#include "maps/fd.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <sstream>

namespace podlane {
namespace {

constexpr std::size_t kLargestFile = 65536;

std::string joined(const net::SysctlPath &path) {
    std::string name;
    for (const std::string &component : path)
        name += (name.empty() ? "" : "/") + component;
    return name;
}

// The file, locked against other calls until the descriptor is closed.
Result<Fd> open_locked(const std::string &file, int flags) {
    Fd fd(::open(file.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd)
        return system_error(errno == ENOENT ? ErrorCode::missing : ErrorCode::io_failure, "opening " + file, errno);
    if (flock(fd.get(), (flags & O_ACCMODE) == O_RDONLY ? LOCK_SH : LOCK_EX) != 0)
        return system_error(ErrorCode::io_failure, "locking " + file, errno);
    return fd;
}

Result<std::string> text_of(const Fd &fd, const std::string &file) {
    std::string text(kLargestFile, '\0');
    const ssize_t size = pread(fd.get(), text.data(), text.size(), 0);
    if (size < 0)
        return system_error(ErrorCode::io_failure, "reading " + file, errno);
    text.resize(static_cast<std::size_t>(size));
    return text;
}

Result<void> replace_text(const Fd &fd, const std::string &file, const std::string &text) {
    const bool done = ftruncate(fd.get(), 0) == 0 &&
                      pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
    return done ? Result<void>{} : system_error(ErrorCode::io_failure, "writing " + file, errno);
}

// Lines "NAME<tab>BEFORE<tab>SET" behind one with the boot; none of another boot.
std::vector<ChangedSetting> parse(const std::string &text, const std::string &boot) {
    std::istringstream lines(text);
    std::string line;
    std::vector<ChangedSetting> all;
    if (!std::getline(lines, line) || line != boot)
        return all;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        ChangedSetting one;
        if (std::getline(fields, one.name, '\t') && std::getline(fields, one.before, '\t') &&
            std::getline(fields, one.set, '\t'))
            all.push_back(std::move(one));
    }
    return all;
}

std::string to_text(const std::vector<ChangedSetting> &all, const std::string &boot) {
    std::string text = boot + "\n";
    for (const ChangedSetting &one : all)
        text.append(one.name).append("\t").append(one.before).append("\t").append(one.set).append("\n");
    return text;
}

// A number of the calling thread's network namespace that no other one of this boot gets (Linux 5.14). An inode number
// is used again: what is on disk would be taken for that of the namespace before.
Result<std::uint64_t> netns_number() {
    const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    std::uint64_t cookie = 0;
    socklen_t size = sizeof cookie;
    if (any && getsockopt(any.get(), SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &size) == 0)
        return cookie;
    return TRY(own_netns());
}

auto find(std::vector<ChangedSetting> &all, const std::string &name) {
    return std::ranges::find(all, name, &ChangedSetting::name);
}

} // namespace

net::SysctlPath ChangedSetting::path() const {
    net::SysctlPath components;
    std::istringstream parts(name);
    for (std::string part; std::getline(parts, part, '/');)
        components.push_back(part);
    return components;
}

Result<NodeSettings> NodeSettings::open(const std::string &state_directory) {
    return NodeSettings(state_directory + "/settings-" + std::to_string(TRY(netns_number())), TRY(boot_id()));
}

Result<std::vector<ChangedSetting>> NodeSettings::list() const {
    auto fd = open_locked(file_, O_RDONLY);
    if (!fd && fd.error().code == ErrorCode::missing)
        return std::vector<ChangedSetting>{};
    return parse(TRY(text_of(TRY(std::move(fd)), file_)), boot_);
}

Result<void> NodeSettings::record(const ChangedSetting &setting) const {
    auto fd = open_locked(file_, O_RDWR | O_CREAT);
    if (!fd && fd.error().code == ErrorCode::missing) {
        std::error_code failed;
        std::filesystem::create_directories(std::filesystem::path(file_).parent_path(), failed);
        fd = open_locked(file_, O_RDWR | O_CREAT);
    }
    const Fd file = TRY(std::move(fd));
    auto all = parse(TRY(text_of(file, file_)), boot_);
    if (find(all, setting.name) == all.end())
        all.push_back(setting);
    return replace_text(file, file_, to_text(all, boot_));
}

Result<void> NodeSettings::forget(const std::string &name) const {
    const Fd file = TRY(open_locked(file_, O_RDWR));
    auto all = parse(TRY(text_of(file, file_)), boot_);
    std::erase_if(all, [&](const ChangedSetting &one) { return one.name == name; });
    if (all.empty() && unlink(file_.c_str()) != 0)
        return system_error(ErrorCode::io_failure, "removing " + file_, errno);
    return all.empty() ? Result<void>{} : replace_text(file, file_, to_text(all, boot_));
}

Result<Change> NodeSettings::enforce(const net::SysctlPath &path, const std::string &value) const {
    const auto before = TRY(net::read_sysctl(path));
    if (!before || *before == value)
        return Change::none;
    TRY(record({joined(path), *before, value})); // before it is true: a killed call leaves a value that can be restored
    TRY(net::write_sysctl_if_different(path, value));
    return Change::changed;
}

Result<Change> NodeSettings::change(const net::SysctlPath &path, const std::string &value) const {
    const auto now = TRY(net::read_sysctl(path));
    if (!now || *now == value)
        return Change::none;
    auto all = TRY(list());
    return find(all, joined(path)) != all.end() ? Change::kept : TRY(enforce(path, value));
}

Result<bool> NodeSettings::restore(const ChangedSetting &setting) const {
    const bool is_ours = TRY(net::read_sysctl(setting.path())) == setting.set;
    if (is_ours)
        TRY(net::write_sysctl_if_different(setting.path(), setting.before));
    TRY(forget(setting.name));
    return is_ours;
}

} // namespace podlane
