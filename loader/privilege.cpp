// SPDX-License-Identifier: MIT
#include "loader/privilege.hpp"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

namespace podlane {

Result<void> keep_capabilities(std::span<const int> kept) {
    std::array<std::uint32_t, _LINUX_CAPABILITY_U32S_3> mask{};
    for (const int capability : kept)
        mask.at(CAP_TO_INDEX(capability)) |= CAP_TO_MASK(capability);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
    bool done = syscall(SYS_capget, &header, sets.data()) == 0;
    for (std::size_t i = 0; i < sets.size(); ++i) {
        sets[i].permitted &= mask[i];
        sets[i].effective &= mask[i];
        sets[i].inheritable &= mask[i];
    }
    done = done && syscall(SYS_capset, &header, sets.data()) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    if (!done)
        return system_error(ErrorCode::io_failure, "dropping capabilities", errno);
    return {};
}

} // namespace podlane
