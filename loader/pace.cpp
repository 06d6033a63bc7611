// SPDX-License-Identifier: MIT
#include "loader/pace.hpp"

#include "loader/net/mount.hpp"
#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "maps/abi/names.h"
#include "maps/fd.hpp"
#include "maps/tables.hpp"

#include <bpf/bpf.h>
#include <unistd.h>

#include <cerrno>

namespace podlane {
namespace {

// The root of the hierarchy, whether or not it is mounted anywhere.
Result<Fd> open_cgroup_root() {
    Fd root = net::mount_unseen("cgroup2");
    if (!root)
        return system_error(ErrorCode::plugin_not_available, "kernel: cgroup v2", errno);
    return root;
}

Result<void> attach_pacing(int program_fd, const Fd &root, const std::string &directory) {
    const Fd link(bpf_link_create(program_fd, root.get(), BPF_CGROUP_SOCK_OPS, nullptr));
    if (!link)
        return system_error(ErrorCode::plugin_not_available, "attaching to cgroup v2", errno);
    if (bpf_obj_pin(link.get(), (directory + "/" PODLANE_PIN_PACING).c_str()) != 0)
        return system_error(ErrorCode::bpf, "pinning " PODLANE_PIN_PACING, errno);
    return {};
}

} // namespace

Result<std::uint32_t> own_netns() { return static_cast<std::uint32_t>(TRY(net::Namespace::current()).inode()); }

Result<void> start_pacing(int program_fd, const std::string &directory) {
    return attach_pacing(program_fd, TRY(open_cgroup_root()), directory);
}

Result<void> resume_pacing(const std::string &root) {
    if (TRY(is_pacing(root)))
        return {};
    const std::string pin = pin_path(root, PODLANE_PROGRAM_PACE);
    const Fd program(bpf_obj_get(pin.c_str()));
    if (!program && errno == ENOENT)
        return {};
    if (!program)
        return system_error(ErrorCode::bpf, "opening program " + pin, errno);
    const auto cgroup = open_cgroup_root();
    if (!cgroup && cgroup.error().system_errno == ENODEV)
        return {};
    if (!cgroup)
        return cgroup.error();
    const Lock lock = TRY(Lock::exclusive(root));
    return TRY(is_pacing(root)) ? Result<void>{} : attach_pacing(program.get(), *cgroup, live_directory(root));
}

Result<bool> is_pacing(const std::string &root) { return is_pinned(pin_path(root, PODLANE_PIN_PACING)); }

Result<bool> is_pacing_lost(const std::string &root) {
    return TRY(is_pinned(pin_path(root, PODLANE_PROGRAM_PACE))) && !TRY(is_pacing(root));
}

} // namespace podlane
