// SPDX-License-Identifier: MIT
#include "loader/settings.hpp"

#include "loader/lock_file.hpp"
#include "loader/net/namespace.hpp"
#include "loader/record.hpp"
#include "loader/state_file.hpp"
#include "maps/file.hpp"
#include "maps/fd.hpp"
#include "maps/text.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace podlane {
namespace {

// Other calls wait until the descriptor is closed.
Result<Fd> lock(const std::string &directory) {
    TRY(make_directory(directory));
    Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd)
        return system_error(ErrorCode::io_failure, "locking " + directory, errno);
    TRY(lock_file(fd, LOCK_EX, directory, ErrorCode::io_failure));
    return fd;
}

// A number of the calling thread's network namespace that no other one of this boot gets (Linux 5.14). An inode number
// is used again: what is on disk would be taken for that of the namespace before.
Result<std::uint64_t> netns_number() {
    const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!any)
        return system_error(ErrorCode::io_failure, "opening a socket", errno);
    const std::uint64_t cookie = TRY(net::netns_cookie(any.get()));
    return cookie != 0 ? cookie : TRY(net::own_netns());
}

auto find(std::vector<ChangedSetting> &all, const std::string &name) {
    return std::ranges::find(all, name, &ChangedSetting::name);
}

} // namespace

Result<NodeSettings> NodeSettings::open(const std::string &state_directory) {
    return NodeSettings(state_directory, "settings-" + std::to_string(TRY(netns_number())), TRY(boot_id()));
}

Result<std::vector<ChangedSetting>> NodeSettings::list() const {
    auto text = TRY(read_state_file(path()));
    struct stat facts {};
    if (!text && lstat(path().c_str(), &facts) != 0)
        return std::vector<ChangedSetting>{};
    if (!text) // an ADD has created it meanwhile, or it is no file
        text = TRY(read_state_file(path()));
    auto all = text ? settings_in(*text, boot_) : std::nullopt;
    if (!all)
        return Error{ErrorCode::decode_failure,
                     path() + " cannot be read: the former values of the node's settings are lost",
                     "remove it: the settings stay as they are until the next boot"};
    return *std::move(all);
}

Result<Change> NodeSettings::record(const ChangedSetting &setting) const {
    const Fd locked = TRY(lock(directory_));
    auto listed = list();
    const bool is_damaged = !listed && listed.error().code == ErrorCode::decode_failure;
    auto all = is_damaged ? std::vector<ChangedSetting>{} : TRY(std::move(listed));
    if (find(all, setting.name) == all.end())
        all.push_back(setting);
    TRY(replace_file(directory_, file_, settings_text(all, boot_)));
    return is_damaged ? Change::replaced : Change::changed;
}

Result<void> NodeSettings::discard() const {
    const Fd locked = TRY(lock(directory_));
    return list() ? Result<void>{} : remove_if_present(path());
}

Result<void> NodeSettings::forget(const std::string &name) const {
    const Fd locked = TRY(lock(directory_));
    auto all = TRY(list());
    std::erase_if(all, [&](const ChangedSetting &one) { return one.name == name; });
    if (!all.empty())
        return replace_file(directory_, file_, settings_text(all, boot_));
    return remove_if_present(path());
}

Result<Change> NodeSettings::enforce(const net::SysctlPath &path, const std::string &value) const {
    const auto before = TRY(net::read_sysctl(path));
    if (!before || *before == value)
        return Change::none;
    // Before it is true: a killed call leaves a value that can be restored.
    const Change change = TRY(record({join(path, "/"), *before, value}));
    TRY(net::write_sysctl_if_different(path, value));
    return change;
}

Result<Change> NodeSettings::change(const net::SysctlPath &path, const std::string &value) const {
    const auto now = TRY(net::read_sysctl(path));
    if (!now || *now == value)
        return Change::none;
    auto all = list();
    if (!all && all.error().code != ErrorCode::decode_failure)
        return std::move(all).error();
    return all && find(*all, join(path, "/")) != all->end() ? Change::kept : TRY(enforce(path, value));
}

Result<bool> NodeSettings::restore(const ChangedSetting &setting) const {
    const bool is_ours = TRY(net::read_sysctl(setting.path())) == setting.set;
    if (is_ours)
        TRY(net::write_sysctl_if_different(setting.path(), setting.before));
    auto forgotten = forget(setting.name);
    if (forgotten)
        return is_ours;
    if (is_ours)
        TRY(net::write_sysctl_if_different(setting.path(), setting.set));
    return std::move(forgotten).error();
}

} // namespace podlane
