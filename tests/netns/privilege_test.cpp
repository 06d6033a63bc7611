// SPDX-License-Identifier: MIT
// A process that has dropped its privileges, and the time that takes. Each is one of its own: what is dropped does not
// come back.
#include "loader/privilege.hpp"
#include "tests/harness/process.hpp"
#include "tests/harness/test.hpp"

#include <bpf/bpf.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>

namespace podlane::test {
namespace {

// Others may use the CPU: the shortest time counts. A first call brings the pages in that the child shares with its
// parent, which the plugin does not.
TEST(Privilege, DroppingItTakesLessThanATenthOfAMillisecond) {
    using Clock = std::chrono::steady_clock;
    int least = 255;
    for (int i = 0; i < 20; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            const bool is_ready = keep_capabilities(std::array{CAP_NET_ADMIN, CAP_SYS_ADMIN}).has_value();
            const auto begin = Clock::now();
            const bool done = is_ready && keep_capabilities(std::array{CAP_NET_ADMIN}).has_value();
            const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
            _exit(done ? static_cast<int>(std::min<long>(took.count(), 255)) : 255);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        least = std::min(least, WEXITSTATUS(status));
    }
    std::cout << least << " us" << std::endl;
    EXPECT_LE(least, 100);
}

struct Attempt {
    const char *name;
    bool allowed;
    std::function<int()> call; // -1 and errno as of a system call
};

// Each in a process that only reads, or else it prints what differs.
void expect_only_reading(const std::vector<Attempt> &attempts) {
    for (const Attempt &one : attempts) {
        const pid_t child = fork();
        if (child == 0) {
            if (!keep_capabilities(std::array{CAP_BPF}) || !only_read())
                _exit(2);
            const bool refused = one.call() < 0 && errno == EPERM;
            _exit(refused ? 1 : 0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, one.allowed ? 0 : 1) << one.name;
    }
}

TEST(Privilege, WhoOnlyReadsLeavesMapsFilesAndProcessesAlone) {
    bpf_map_create_opts options{};
    options.sz = sizeof options;
    options.map_flags = BPF_F_MMAPABLE;
    const Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, "test", 4, 4, 1, &options));
    ASSERT_TRUE(map);
    std::string directory = "/tmp/podlane-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory.data()), nullptr);
    const std::string file = directory + "/file";
    std::ofstream(file) << "text";
    std::uint32_t key = 0;
    std::uint32_t value = 7;
    const Fd opened(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    const char *name = file.c_str();
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Fd datagrams(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{AF_UNIX, "/nobody"};
    const pid_t parent = getpid();
    const auto send_to = [&](auto where) {
        return static_cast<int>(syscall(SYS_sendto, datagrams.get(), name, 1, 0, where, sizeof address));
    };
    msghdr message{};
    message.msg_name = &address;
    message.msg_namelen = sizeof address;
    mmsghdr messages{message, 0};
    rlimit limit{};
    cpu_set_t processors;
    ASSERT_EQ(sched_getaffinity(0, sizeof processors, &processors), 0);
    const auto mapped = [](int fd, int flags) {
        return mmap(nullptr, 4096, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED ? -1 : 0;
    };
    expect_only_reading({
        {"looking an entry up", true, [&] { return bpf_map_lookup_elem(map.get(), &key, &value); }},
        {"reading a file", true, [&] { return open(name, O_RDONLY | O_CLOEXEC); }},
        {"updating an entry", false, [&] { return bpf_map_update_elem(map.get(), &key, &value, BPF_ANY); }},
        {"freezing a map", false, [&] { return bpf_map_freeze(map.get()); }},
        {"making a map", false, [&] { return bpf_map_create(BPF_MAP_TYPE_ARRAY, "more", 4, 4, 1, nullptr); }},
        {"opening a file for writing", false, [&] { return open(name, O_WRONLY | O_CLOEXEC); }},
        {"making a file", false, [&] { return open((file + "2").c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600); }},
        {"removing a file", false, [&] { return unlink(name); }},
        {"renaming a file", false, [&] { return rename(name, (file + "2").c_str()); }},
        {"another mode", false, [&] { return fchmod(opened.get(), 0777); }},
        {"cutting a file", false, [&] { return truncate(name, 0); }},
        {"ending another process", false, [&] { return kill(parent, 0); }},
        {"ending a thread of another process", false,
         [&] { return static_cast<int>(syscall(SYS_tgkill, parent, parent, 0)); }},
        {"a signal to itself", true, [&] { return static_cast<int>(syscall(SYS_tgkill, getpid(), getpid(), 0)); }},
        {"memory of its own", true, [&] { return mapped(-1, MAP_PRIVATE | MAP_ANONYMOUS); }},
        {"memory of a map", false, [&] { return mapped(map.get(), MAP_SHARED); }},
        {"an attribute of a file", false, [&] { return lsetxattr(name, "user.x", "y", 1, 0); }},
        {"a connection", false, [&] { return connect(socket.get(), nullptr, 0); }},
        {"bytes on a connection", true, [&] { return static_cast<int>(send(datagrams.get(), name, 1, 0)); }},
        {"a datagram to an address", false, [&] { return send_to(&address); }},
        {"one at 4 GiB", false, [&] { return send_to(1ULL << 32U); }},
        {"a message to an address", false, [&] { return static_cast<int>(sendmsg(datagrams.get(), &message, 0)); }},
        {"messages", false, [&] { return sendmmsg(datagrams.get(), &messages, 1, 0); }},
        {"limits of its own", true, [&] { return prlimit(0, RLIMIT_CORE, nullptr, &limit); }},
        {"limits of another process", false, [&] { return prlimit(parent, RLIMIT_CORE, nullptr, &limit); }},
        // Its own: the kernel refuses those of a process that has more capabilities.
        {"a priority", false, [&] { return setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)); }},
        {"its scheduling", false, [&] { return static_cast<int>(syscall(SYS_sched_setattr, 0, nullptr, 0)); }},
        {"its processors", false, [&] { return sched_setaffinity(0, sizeof processors, &processors); }},
        {"executing a program", false,
         [&] {
             char program[] = "/bin/true";
             std::array<char *, 2> arguments{program, nullptr};
             return execv(program, arguments.data());
         }},
    });
    value = 7;
    EXPECT_EQ(bpf_map_lookup_elem(map.get(), &key, &value), 0);
    EXPECT_EQ(value, 0U);
    std::filesystem::remove_all(directory);
}

TEST(Privilege, WhoOnlyReadsLeavesNamesOfSocketsAndOwnersOfDescriptorsAlone) {
    std::string directory = "/tmp/podlane-test-XXXXXX";
    ASSERT_NE(mkdtemp(directory.data()), nullptr);
    const Fd opened(open(directory.c_str(), O_RDONLY | O_CLOEXEC));
    const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{AF_UNIX, {}};
    (directory + "/socket").copy(address.sun_path, sizeof address.sun_path - 1);
    std::array<char, IF_NAMESIZE> name{};
    const pid_t parent = getpid();
    const int flags = 0;
    expect_only_reading({
        {"the name of an interface", true, [&] { return if_indextoname(1, name.data()) == nullptr ? -1 : 0; }},
        {"a socket of netlink", false, [] { return ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0); }},
        {"a name of a socket", false,
         [&] { return bind(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address); }},
        {"who gets the signals of a descriptor", false, [&] { return fcntl(socket.get(), F_SETOWN, parent); }},
        {"who gets the signals of a socket", false, [&] { return ioctl(socket.get(), FIOSETOWN, &parent); }},
        {"flags of a file", false, [&] { return ioctl(opened.get(), FS_IOC_SETFLAGS, &flags); }},
        {"a second process", false, [] { return fork(); }},
    });
    EXPECT_FALSE(std::filesystem::exists(address.sun_path));
    std::filesystem::remove_all(directory);
}

// Each with arguments that the kernel would refuse otherwise than a filter does.
TEST(Privilege, WhoOnlyReadsMakesNoCallThatReadingDoesNotNeed) {
    constexpr std::array<std::pair<const char *, long>, 36> kCalls = {{
        {"shmget", SYS_shmget},
        {"msgget", SYS_msgget},
        {"semget", SYS_semget},
        {"mq_open", SYS_mq_open},
        {"bind", SYS_bind},
        {"listen", SYS_listen},
        {"recvmsg", SYS_recvmsg}, // which may bring descriptors
        {"setsockopt", SYS_setsockopt},
        {"ptrace", SYS_ptrace},
        {"process_vm_readv", SYS_process_vm_readv},
        {"process_vm_writev", SYS_process_vm_writev},
        {"pidfd_open", SYS_pidfd_open},
        {"pidfd_getfd", SYS_pidfd_getfd},
        {"add_key", SYS_add_key},
        {"keyctl", SYS_keyctl},
        {"mount", SYS_mount},
        {"umount2", SYS_umount2},
        {"open_tree", SYS_open_tree},
        {"unshare", SYS_unshare},
        {"setns", SYS_setns},
        {"chdir", SYS_chdir},
        {"memfd_create", SYS_memfd_create},
        {"splice", SYS_splice},
        {"pwrite64", SYS_pwrite64},
        {"ftruncate", SYS_ftruncate},
        {"fallocate", SYS_fallocate},
        {"copy_file_range", SYS_copy_file_range},
        {"flock", SYS_flock},
        {"inotify_init1", SYS_inotify_init1},
        {"io_uring_setup", SYS_io_uring_setup},
        {"io_uring_enter", SYS_io_uring_enter},
        {"userfaultfd", SYS_userfaultfd},
        {"perf_event_open", SYS_perf_event_open},
        {"timer_create", SYS_timer_create},
        {"clone3", SYS_clone3},
        {"a call of a later kernel", 1000},
    }};
    std::vector<Attempt> attempts;
    attempts.reserve(kCalls.size());
    for (const auto &[name, number] : kCalls)
        attempts.push_back(
            {name, false, [number = number] { return static_cast<int>(syscall(number, -1, 0, 0, 0, 0, 0)); }});
    expect_only_reading(attempts);
}

TEST(Privilege, ACallDropsItBeforeItReadsItsConfiguration) {
    std::string trace = "/tmp/podlane-test-XXXXXX";
    const Fd file(mkstemp(trace.data()));
    ASSERT_TRUE(file);
    const Output done = run(require(net::Namespace::current()),
                            {"strace", "-qq", "-e", "trace=capset,read", "-o", trace, variable("PODLANE_BIN")},
                            R"({"cniVersion": "1.0.0"})", {{"CNI_COMMAND", "VERSION"}});
    EXPECT_EQ(done.rc, 0) << done.out << done.err;
    const std::string calls = read_file(trace);
    const std::size_t dropped = calls.find("capset("), read = calls.find("read(0, \"{");
    EXPECT_NE(read, std::string::npos) << calls;
    EXPECT_LT(dropped, read) << calls;
    std::filesystem::remove(trace);
}

} // namespace
} // namespace podlane::test
