// SPDX-License-Identifier: MIT
#include "loader/privilege.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace podlane {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "the architecture of system calls is not known (linux/audit.h)"
#endif
constexpr std::uint32_t kOtherNumbers = 0x40000000; // those of x32, on the same architecture
constexpr std::uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

constexpr std::array kReadingBpf{
    BPF_MAP_LOOKUP_ELEM,  BPF_MAP_GET_NEXT_KEY,  BPF_MAP_LOOKUP_BATCH, BPF_OBJ_GET,          BPF_OBJ_GET_INFO_BY_FD,
    BPF_PROG_QUERY,       BPF_PROG_GET_FD_BY_ID, BPF_MAP_GET_FD_BY_ID, BPF_BTF_GET_FD_BY_ID, BPF_LINK_GET_FD_BY_ID,
    BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID,   BPF_BTF_GET_NEXT_ID,  BPF_LINK_GET_NEXT_ID,
};

constexpr std::array kForbidden{
    __NR_openat2,
    __NR_unlinkat,
    __NR_renameat2,
    __NR_mkdirat,
    __NR_mknodat,
    __NR_linkat,
    __NR_symlinkat,
    __NR_fchmodat,
    __NR_fchmod,
    __NR_fchownat,
    __NR_fchown,
    __NR_truncate,
    __NR_execve,
    __NR_execveat,
    __NR_kill,
    __NR_ptrace,
    __NR_io_uring_setup,
    __NR_renameat,
    __NR_setxattr,
    __NR_lsetxattr,
    __NR_fsetxattr,
    __NR_removexattr,
    __NR_lremovexattr,
    __NR_fremovexattr,
    __NR_utimensat,
    __NR_tkill,
    __NR_rt_sigqueueinfo,
    __NR_rt_tgsigqueueinfo,
    __NR_process_vm_writev,
    __NR_pidfd_send_signal,
    __NR_connect,
    __NR_sendmsg, // which may hold an address that a filter does not see
    __NR_sendmmsg,
    __NR_setpriority,
    __NR_ioprio_set,
    __NR_sched_setattr,
    __NR_sched_setparam,
    __NR_sched_setscheduler,
    __NR_sched_setaffinity,
    452 /* fchmodat2 */,
#ifdef __NR_open // what newer architectures left out
    __NR_open,
    __NR_creat,
    __NR_unlink,
    __NR_rmdir,
    __NR_rename,
    __NR_mkdir,
    __NR_mknod,
    __NR_link,
    __NR_symlink,
    __NR_chmod,
    __NR_chown,
    __NR_lchown,
#endif
};

// A filter of classic BPF over struct seccomp_data.
class Filter {
  public:
    void load(std::size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)); }
    // Its low half, or the high one: both architectures are little-endian.
    void load_argument(std::size_t which, bool high = false) {
        load(offsetof(seccomp_data, args) + which * sizeof(std::uint64_t) + (high ? sizeof(std::uint32_t) : 0));
    }
    void unless(std::uint16_t comparison, std::uint32_t value, std::uint8_t skipped) {
        instructions_.push_back({static_cast<std::uint16_t>(BPF_JMP | comparison | BPF_K), 0, skipped, value});
    }
    void allow() { add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); }
    void refuse() { add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM); }
    // This call is allowed with this value of its first argument, and with no other. Its number is loaded.
    void allow_only(std::uint32_t call, std::uint32_t first) {
        unless(BPF_JEQ, call, 4);
        load_argument(0);
        unless(BPF_JEQ, first, 1);
        allow();
        refuse();
    }
    [[nodiscard]] bool install() {
        const sock_fprog program{static_cast<std::uint16_t>(instructions_.size()), instructions_.data()};
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
    }

  private:
    void add(std::uint16_t code, std::uint32_t value) { instructions_.push_back({code, 0, 0, value}); }
    std::vector<sock_filter> instructions_;
};

} // namespace

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

Result<void> only_read() {
    Filter filter;
    filter.load(offsetof(seccomp_data, arch));
    filter.unless(BPF_JEQ, kArchitecture, 1);
    filter.load(offsetof(seccomp_data, nr)); // of another one its own number stays, which is above kOtherNumbers
    filter.unless(BPF_JGE, kOtherNumbers, 1);
    filter.refuse();
    for (const int number : kForbidden) {
        filter.unless(BPF_JEQ, static_cast<std::uint32_t>(number), 1);
        filter.refuse();
    }
    filter.unless(BPF_JEQ, __NR_openat, 4);
    filter.load_argument(2);
    filter.unless(BPF_JSET, kWriting, 1);
    filter.refuse();
    filter.allow();
    filter.unless(BPF_JEQ, __NR_mmap, 6); // maps of BPF_F_MMAPABLE
    filter.load_argument(3);
    filter.unless(BPF_JSET, MAP_SHARED, 3);
    filter.load_argument(2);
    filter.unless(BPF_JSET, PROT_WRITE, 1);
    filter.refuse();
    filter.allow();
    filter.unless(BPF_JEQ, __NR_sendto, 6); // send(2), which has no address
    filter.load_argument(4);
    filter.unless(BPF_JEQ, 0, 3);
    filter.load_argument(4, true);
    filter.unless(BPF_JEQ, 0, 1);
    filter.allow();
    filter.refuse();
    filter.allow_only(__NR_tgkill, static_cast<std::uint32_t>(getpid())); // abort(3)
    filter.allow_only(__NR_prlimit64, 0);                                 // getrlimit(2)
    filter.unless(BPF_JEQ, __NR_bpf, 2 + 2 * kReadingBpf.size());
    filter.load_argument(0);
    for (const bpf_cmd command : kReadingBpf) {
        filter.unless(BPF_JEQ, command, 1);
        filter.allow();
    }
    filter.refuse();
    filter.allow();
    if (!filter.install())
        return system_error(ErrorCode::io_failure, "installing a filter of system calls", errno);
    return {};
}

} // namespace podlane
