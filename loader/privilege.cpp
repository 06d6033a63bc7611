// SPDX-License-Identifier: MIT
#include "loader/privilege.hpp"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
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
constexpr std::uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

// Calls that read, that change nothing but the process itself, or that a server's clients need.
constexpr std::array kHarmless{
    __NR_read,
    __NR_readv,
    __NR_pread64,
    __NR_lseek,
    __NR_close,
    __NR_fstat,
    __NR_newfstatat,
    __NR_statx,
    __NR_statfs,
    __NR_fstatfs,
    __NR_faccessat,
    __NR_faccessat2,
    __NR_readlinkat,
    __NR_getdents64,
    __NR_getcwd,
    __NR_write, // to what is open: its standard error, and the connections
    __NR_writev,
    __NR_accept4,
    __NR_recvfrom,
    __NR_ppoll,
    __NR_brk,
    __NR_munmap,
    __NR_mremap,
    __NR_mprotect,
    __NR_madvise,
    __NR_clock_gettime,
    __NR_clock_nanosleep,
    __NR_nanosleep,
    __NR_gettimeofday,
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    __NR_rt_sigreturn,
    __NR_sigaltstack,
    __NR_restart_syscall,
    __NR_wait4,
    __NR_waitid,
    __NR_exit,
    __NR_exit_group,
    __NR_futex,
    __NR_sched_yield,
    __NR_sched_getaffinity,
    __NR_getpid,
    __NR_gettid,
    __NR_getuid,
    __NR_geteuid,
    __NR_getgid,
    __NR_getegid,
    __NR_getrandom,
    __NR_sysinfo,
    __NR_uname,
#ifdef __NR_stat // what newer architectures left out
    __NR_stat,
    __NR_lstat,
    __NR_access,
    __NR_readlink,
    __NR_poll,
    __NR_time,
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
    // This call is allowed with these values of an argument, and with no others. Its number is loaded.
    template <typename... Value> void allow_with(std::uint32_t call, std::size_t argument, Value... values) {
        unless(BPF_JEQ, call, 2 + 2 * sizeof...(values));
        load_argument(argument);
        (allow_value(static_cast<std::uint32_t>(values)), ...);
        refuse();
    }
    [[nodiscard]] bool install() {
        const sock_fprog program{static_cast<std::uint16_t>(instructions_.size()), instructions_.data()};
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
    }

  private:
    void allow_value(std::uint32_t value) {
        unless(BPF_JEQ, value, 1);
        allow();
    }
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
    filter.load(offsetof(seccomp_data, nr)); // of another one its own number stays, which is that of no call
    for (const int number : kHarmless) {
        filter.unless(BPF_JEQ, static_cast<std::uint32_t>(number), 1);
        filter.allow();
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
    filter.allow_with(__NR_socket, 0, AF_UNIX); // if_indextoname(3), which also calls ioctl(2)
    filter.allow_with(__NR_ioctl, 1, SIOCGIFNAME);
    filter.allow_with(__NR_fcntl, 1, F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC); // not F_SETOWN, which sends signals
    filter.allow_with(__NR_tgkill, 0, getpid());                                  // abort(3)
    filter.allow_with(__NR_prlimit64, 0, 0);                                      // getrlimit(2)
    filter.allow_with(__NR_bpf, 0, BPF_MAP_LOOKUP_ELEM, BPF_MAP_GET_NEXT_KEY, BPF_MAP_LOOKUP_BATCH, BPF_OBJ_GET,
                      BPF_OBJ_GET_INFO_BY_FD, BPF_PROG_QUERY, BPF_PROG_GET_FD_BY_ID, BPF_MAP_GET_FD_BY_ID,
                      BPF_BTF_GET_FD_BY_ID, BPF_LINK_GET_FD_BY_ID, BPF_PROG_GET_NEXT_ID, BPF_MAP_GET_NEXT_ID,
                      BPF_BTF_GET_NEXT_ID, BPF_LINK_GET_NEXT_ID);
    filter.refuse();
    if (!filter.install())
        return system_error(ErrorCode::io_failure, "installing a filter of system calls", errno);
    return {};
}

} // namespace podlane
