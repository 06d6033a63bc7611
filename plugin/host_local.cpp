// SPDX-License-Identifier: MIT
#include "plugin/host_local.hpp"

#include "loader/lock_file.hpp"
#include "loader/state_file.hpp"
#include "maps/clock.hpp"
#include "maps/fd.hpp"
#include "maps/ip.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace podlane {
namespace {

constexpr const char *kDefaultDirectory = "/var/lib/cni/networks";

// Held until the descriptor is closed. None if host-local has never been there.
Result<std::optional<Fd>> lock(const std::string &directory, std::uint64_t most_seconds) {
    const std::string path = directory + "/lock";
    Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && errno == ENOENT)
        return std::optional<Fd>{};
    if (!file)
        return system_error(ErrorCode::io_failure, "opening " + path, errno);
    const auto locked = lock_file(file, LOCK_EX, path, ErrorCode::io_failure, std::chrono::seconds(most_seconds));
    if (!locked && locked.error().code == ErrorCode::try_again_later)
        return Error{ErrorCode::try_again_later, "a program holds the lock of host-local, " + path,
                     "see `fuser " + path + "`"};
    TRY(locked);
    return std::optional(std::move(file));
}

// The empty files of a lease's name.
struct EmptyLease {
    std::string name;
    std::uint64_t modified_ns; // CLOCK_REALTIME at the last tick
};
Result<std::vector<EmptyLease>> list_empty(const std::string &directory) {
    std::vector<EmptyLease> found;
    for (const std::string &name : TRY(names_in(directory))) {
        const std::string path = directory + "/" + name;
        struct stat facts {};
        if (!parse_ip(name))
            continue;
        if (lstat(path.c_str(), &facts) != 0)
            return system_error(ErrorCode::io_failure, path, errno);
        if (S_ISREG(facts.st_mode) && facts.st_size == 0)
            found.push_back({name, static_cast<std::uint64_t>(facts.st_mtim.tv_sec) * kNsPerSecond +
                                       static_cast<std::uint64_t>(facts.st_mtim.tv_nsec)});
    }
    return found;
}

bool is_lease_of(const AttachmentRecord &record, const EmptyLease &file) {
    constexpr std::uint64_t kTick = kNsPerSecond / 50; // the file's time is up to a tick behind
    if (record.lease.empty())
        return file.modified_ns + kTick >= record.created_ns;
    const auto lease = cni::parse_attachment(record.lease);
    const auto addr = parse_ip(file.name);
    return lease && addr &&
           std::ranges::any_of(lease->addresses, [&](const cni::Address &one) { return one.prefix.addr == *addr; });
}

// Looked for by name, so that no DEL of a whole lease waits for the lock.
Result<bool> has_empty_file(const AttachmentRecord &record, const std::string &directory) {
    const auto lease = cni::parse_attachment(record.lease);
    if (!lease)
        return false;
    for (const cni::Address &one : lease->addresses) {
        const std::string path = directory + "/" + to_string(one.prefix.addr);
        struct stat facts {};
        const bool is_there = lstat(path.c_str(), &facts) == 0;
        if (!is_there && errno != ENOENT && errno != ENOTDIR)
            return system_error(ErrorCode::io_failure, "looking at the lease " + path, errno);
        if (is_there && facts.st_size == 0)
            return true;
    }
    return false;
}

} // namespace

std::optional<std::string> lease_directory(const AttachmentRecord &record) {
    const auto ipam = cni::find_ipam(record.config);
    if (!ipam || ipam->type != "host-local")
        return std::nullopt;
    return (ipam->data_dir.empty() ? kDefaultDirectory : ipam->data_dir) + "/" + record.network;
}

Result<void> check_released(const AttachmentRecord &record) {
    const auto directory = lease_directory(record);
    const auto lease = cni::parse_attachment(record.lease);
    if (!directory || !lease)
        return {};
    for (const cni::Address &one : lease->addresses) {
        const std::string path = *directory + "/" + to_string(one.prefix.addr);
        if (TRY(read_state_file(path)).value_or("") == record.container_id + "\r\n" + record.ifname)
            return Error{ErrorCode::io_failure, "IPAM plugin host-local has not removed the lease " + path,
                         "see whether files in its directory can be removed: is it mounted read-only?"};
    }
    return {};
}

Result<void> remove_empty_leases(const AttachmentRecord &record, std::uint64_t most_seconds) {
    const auto directory = lease_directory(record);
    if (!directory)
        return {};
    if (!record.lease.empty() && TRY(is_of_this_boot(record)) && !TRY(has_empty_file(record, *directory)))
        return {};
    const auto held = TRY(lock(*directory, most_seconds));
    if (!held)
        return {};
    for (const EmptyLease &file : TRY(list_empty(*directory))) {
        const std::string path = *directory + "/" + file.name;
        if (is_lease_of(record, file) && unlink(path.c_str()) != 0 && errno != ENOENT)
            return system_error(ErrorCode::io_failure, "removing the empty lease " + path, errno);
    }
    return {};
}

} // namespace podlane
