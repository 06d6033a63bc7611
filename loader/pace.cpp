// SPDX-License-Identifier: MIT
#include "loader/pace.hpp"

#include "loader/net/mount.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/programs.hpp"
#include "maps/abi/names.h"
#include "maps/fd.hpp"
#include "maps/tables.hpp"

#include <bpf/bpf.h>
#include <fcntl.h>
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

// Whether a program that was attached there without BPF_F_ALLOW_MULTI lets none beside it (kernel/bpf/cgroup.c).
bool is_for_one_alone(const Fd &cgroup) {
    __u32 flags = 0;
    __u32 count = 0;
    return bpf_prog_query(cgroup.get(), BPF_CGROUP_SOCK_OPS, 0, &flags, nullptr, &count) == 0 && count != 0 &&
           (flags & BPF_F_ALLOW_MULTI) == 0;
}

Result<void> attach_pacing(int program_fd, const Fd &root, const std::string &directory) {
    const Fd link(bpf_link_create(program_fd, root.get(), BPF_CGROUP_SOCK_OPS, nullptr));
    const int refused = errno;
    if (!link && refused == EPERM && is_for_one_alone(root))
        return Error{ErrorCode::plugin_not_available,
                     "attaching to cgroup v2: another sock_ops program was attached to its root without "
                     "BPF_F_ALLOW_MULTI, and so lets none beside it",
                     "have it attached with that flag, as by bpftool cgroup attach with the word multi"};
    if (!link)
        return system_error(ErrorCode::plugin_not_available, "attaching to cgroup v2", refused);
    if (bpf_obj_pin(link.get(), (directory + "/" PODLANE_PIN_PACING).c_str()) != 0)
        return system_error(ErrorCode::bpf, "pinning " PODLANE_PIN_PACING, errno);
    return {};
}

// On the pinned maps. No descriptor if the kernel cannot pace.
Result<Fd> load_pace(const std::string &root) {
    if (libbpf_probe_bpf_prog_type(BPF_PROG_TYPE_SOCK_OPS, nullptr) == 0)
        return Fd(); // at little cost, as every ADD with a limit is here then
    LoadSettings settings;
    const Fd from_pod = TRY(open_program(root, PODLANE_PROGRAM_FROM_POD));
    TRY(read_constants(from_pod.get(), settings));
    const auto sockets = find_program_map(from_pod.get(), "paced_sockets"); // it has no pin
    if (!sockets)                                                           // programs of before
        return sockets.error().code == ErrorCode::missing ? Result<Fd>(Fd()) : sockets.error();
    keep_libbpf_log();
    const auto all = TRY(open_programs({PODLANE_PROGRAM_PACE}, settings));
    TRY(reuse_maps(all->obj, live_directory(root)));
    if (bpf_map__reuse_fd(all->maps.paced_sockets, sockets->fd.get()) != 0)
        return load_error("sharing map paced_sockets", errno);
    if (auto loaded = load_object(all->obj, "loading " PODLANE_PROGRAM_PACE); !loaded)
        return is_transient(loaded.error().system_errno) ? std::move(loaded).error() : Result<Fd>(Fd());
    const int program = bpf_program__fd(all->progs.pl_pace);
    if (TRY(program_facts(program)).name != PODLANE_PROGRAM_PACE) // see named_program()
        return load_error("loading " PODLANE_PROGRAM_PACE " by its name", EAGAIN);
    Fd own(fcntl(program, F_DUPFD_CLOEXEC, 0));
    if (!own)
        return system_error(ErrorCode::bpf, "keeping " PODLANE_PROGRAM_PACE, errno);
    return own;
}

Result<bool> has_program(const std::string &root) { return is_pinned(pin_path(root, PODLANE_PROGRAM_PACE)); }

} // namespace

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

Result<Fd> pacing_program(const std::string &root) {
    const std::string path = pin_path(root, PODLANE_PIN_PACING);
    const Fd link(bpf_obj_get(path.c_str()));
    bpf_link_info info{};
    __u32 size = sizeof info;
    if (!link || bpf_obj_get_info_by_fd(link.get(), &info, &size) != 0)
        return system_error(ErrorCode::bpf, "opening link " + path, errno);
    Fd program(bpf_prog_get_fd_by_id(info.prog_id));
    if (!program)
        return system_error(ErrorCode::bpf, "opening the program of link " + path, errno);
    return program;
}

Result<void> restore_pacing(const std::string &root) {
    if (!TRY(has_program(root)) && check_pins(root)) {
        const Fd program = TRY(TRY(is_pacing(root)) ? pacing_program(root) : load_pace(root));
        if (!program)
            return {};
        const Lock lock = TRY(Lock::exclusive(root));
        if (bpf_obj_pin(program.get(), pin_path(root, PODLANE_PROGRAM_PACE).c_str()) != 0 && errno != EEXIST)
            return system_error(ErrorCode::bpf, "pinning " PODLANE_PROGRAM_PACE, errno);
    }
    return resume_pacing(root);
}

Result<std::optional<std::string>> pacing_fault(const std::string &root) {
    constexpr auto kUnattached = PODLANE_PROGRAM_PACE " is not attached: TCP senders of limited pods are not paced";
    constexpr auto kKeptOut =
        PODLANE_PROGRAM_PACE " is not attached, because another sock_ops program was attached to the cgroup v2 root "
                             "without BPF_F_ALLOW_MULTI: TCP senders of limited pods are not paced";
    constexpr auto kUnpinned =
        "the pin of " PODLANE_PROGRAM_PACE " is gone: limits that change do not reach connections that exist";
    const bool paces = TRY(is_pacing(root)), is_loaded = TRY(has_program(root));
    if (paces)
        return is_loaded ? std::optional<std::string>() : std::optional<std::string>(kUnpinned);
    if (!is_loaded && (!check_pins(root) || !TRY(load_pace(root))))
        return std::optional<std::string>();
    const auto cgroup = open_cgroup_root();
    return std::optional<std::string>(cgroup && is_for_one_alone(*cgroup) ? kKeptOut : kUnattached);
}

} // namespace podlane
