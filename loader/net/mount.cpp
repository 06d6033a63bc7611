// SPDX-License-Identifier: MIT
#include "loader/net/mount.hpp"

#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace podlane::net {

Fd mount_unseen(const char *type) {
    const Fd context(static_cast<int>(syscall(SYS_fsopen, type, FSOPEN_CLOEXEC)));
    if (!context || syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
        return {};
    return Fd(static_cast<int>(syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, 0)));
}

} // namespace podlane::net
