// SPDX-License-Identifier: MIT
// A flock(2) that is waited for in the kernel, but not for ever: its holder may be stopped, or its cgroup frozen. There
// is no queue between the kinds: LOCK_SH is granted beside others of its kind while a LOCK_EX waits.
#pragma once

#include "maps/fd.hpp"
#include "maps/result.hpp"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace podlane {

constexpr std::chrono::seconds kLongestLockWait{30};

// LOCK_SH or LOCK_EX, held until the descriptor is closed. ErrorCode::try_again_later after `most`: it names `path` and
// the processes that hold the lock. It is not waited for a second time: a rollback, or the removal of a hundred pods,
// is to end as well. `code`: of all other errors.
Result<void> lock_file(const Fd &file, int operation, const std::string &path, ErrorCode code,
                       std::chrono::seconds most = kLongestLockWait);

// The numbers of the processes that hold a flock(2) on the file, by the text of /proc/locks, which names it by device
// and inode; none of other PID namespaces.
std::vector<std::string> lock_holders_in(const std::string &locks, std::string_view file);
// The name of a process by the text of its /proc/PID/comm, made safe to print: it chooses its name.
std::string command_in(std::string_view comm);

} // namespace podlane
