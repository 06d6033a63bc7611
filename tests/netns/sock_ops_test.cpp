// SPDX-License-Identifier: MIT
// Another program of type sock_ops on the root of cgroup v2, beside pl_pace: both are called, and neither takes the
// other's callbacks away. One that lets none beside it is named.
#include "loader/net/mount.hpp"
#include "loader/pace.hpp"
#include "tests/harness/bpf.hpp"
#include "tests/netns/lab.hpp"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sys/stat.h>

namespace podlane::test {
namespace {

constexpr std::uint32_t kPort = 7077; // sockets of others on this machine are not counted

constexpr bpf_insn insn(int code, int dst, int src, std::size_t offset, int value) {
    return {static_cast<__u8>(code), static_cast<__u8>(dst), static_cast<__u8>(src), static_cast<__s16>(offset), value};
}

// Counts its calls by `op` for connections to kPort, and requests the callbacks for changes of state.
Fd load_counter(int map) {
    constexpr int kLookUp = BPF_FUNC_map_lookup_elem, kSetFlags = BPF_FUNC_sock_ops_cb_flags_set;
    const auto stack = static_cast<std::size_t>(-4);
    const std::array code = {
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 6, 1, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 2, 6, offsetof(bpf_sock_ops, remote_port), 0),
        insn(BPF_JMP32 | BPF_JNE | BPF_K, 2, 0, 15, static_cast<int>(htonl(kPort))),
        insn(BPF_LDX | BPF_MEM | BPF_W, 2, 6, offsetof(bpf_sock_ops, op), 0),
        insn(BPF_STX | BPF_MEM | BPF_W, 10, 2, stack, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0),
        insn(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4),
        insn(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, map),
        insn(0, 0, 0, 0, 0),
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, kLookUp),
        insn(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 7, 0),
        insn(BPF_LDX | BPF_MEM | BPF_DW, 1, 0, 0, 0),
        insn(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, 1),
        insn(BPF_STX | BPF_MEM | BPF_DW, 0, 1, 0, 0),
        insn(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0),
        insn(BPF_LDX | BPF_MEM | BPF_W, 2, 6, offsetof(bpf_sock_ops, bpf_sock_ops_cb_flags), 0),
        insn(BPF_ALU64 | BPF_OR | BPF_K, 2, 0, 0, BPF_SOCK_OPS_STATE_CB_FLAG),
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, kSetFlags),
        insn(0xb7, 0, 0, 0, 1),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    };
    bpf_prog_load_opts options{};
    options.sz = sizeof options;
    options.expected_attach_type = BPF_CGROUP_SOCK_OPS;
    return Fd(bpf_prog_load(BPF_PROG_TYPE_SOCK_OPS, "foreign", "GPL", code.data(), code.size(), &options));
}

class SockOps : public testing::TestWithParam<bool> {};

TEST_P(SockOps, OfAnotherProgramKeepWorking) {
    constexpr std::uint64_t kRate = 16'000'000; // bits per second
    const bool is_first = GetParam();
    const Fd root = net::mount_unseen("cgroup2");
    const Fd calls(bpf_map_create(BPF_MAP_TYPE_ARRAY, "calls", 4, 8, 32, nullptr));
    const Fd foreign = load_counter(calls.get());
    ASSERT_TRUE(root && calls && foreign);
    const auto attach_foreign = [&] {
        ASSERT_EQ(bpf_prog_attach(foreign.get(), root.get(), BPF_CGROUP_SOCK_OPS, BPF_F_ALLOW_MULTI), 0);
    };
    if (is_first)
        attach_foreign();
    {
        Lab lab;
        const Pod sender = lab.add_pod(Json{{"egressRate", kRate}, {"egressBurst", kRate}});
        const Pod receiver = lab.add_pod();
        ASSERT_TRUE(require(is_pacing(lab.node().bpffs())));
        if (!is_first)
            attach_foreign();
        const EchoServer server(receiver.ns(), true, kPort);
        const Fd socket = connected(sender.ns(), Transport::tcp, {receiver.v4, kPort});
        ASSERT_EQ(transfer(socket, 100'000), 0);
        unsigned rate = 0;
        socklen_t size = sizeof rate;
        ASSERT_EQ(getsockopt(socket.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &size), 0);
        EXPECT_NEAR(rate, kRate / 8, kRate / 16) << "pl_pace works";
    }
    const auto called = [&](std::uint32_t op) {
        std::uint64_t count = 0;
        EXPECT_EQ(bpf_map_lookup_elem(calls.get(), &op, &count), 0);
        return count;
    };
    EXPECT_GE(called(BPF_SOCK_OPS_TCP_CONNECT_CB), 1U);
    EXPECT_GE(called(BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB), 1U);
    EXPECT_GE(called(BPF_SOCK_OPS_STATE_CB), 1U) << "its callback was taken away";
    EXPECT_EQ(bpf_prog_detach2(foreign.get(), root.get(), BPF_CGROUP_SOCK_OPS), 0);
}

INSTANTIATE_TEST_SUITE_P(AttachedBefore, SockOps, testing::Bool());

// Podlane in a cgroup namespace, whose root is a cgroup of the test's: there, nobody else attaches anything.
class SockOpsRoot : public testing::Test {
  protected:
    SockOpsRoot() {
        if (mkdirat(all_.get(), name_.c_str(), S_IRWXU) != 0)
            throw std::runtime_error("creating a cgroup");
        root_ = Fd(openat(all_.get(), name_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
    ~SockOpsRoot() override { EXPECT_EQ(unlinkat(all_.get(), name_.c_str(), AT_REMOVEDIR), 0); }

    [[nodiscard]] Output podlanectl(const std::string &command) const {
        const std::string root = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(root_.get());
        std::vector<std::string> argv = {"sh",
                                         "-c",
                                         "echo $$ >" + root + "/cgroup.procs && exec unshare -C \"$@\"",
                                         "sh",
                                         variable("PODLANECTL_BIN"),
                                         "--bpffs",
                                         node_.bpffs()};
        for (const std::string &word : words(command))
            argv.push_back(word);
        return run(node_.ns(), argv);
    }
    // 0 or -errno; what was attached is detached.
    [[nodiscard]] int attach_foreign(const Fd &cgroup, unsigned flags) const {
        const int attached = bpf_prog_attach(foreign_.get(), cgroup.get(), BPF_CGROUP_SOCK_OPS, flags);
        return attached == 0 ? bpf_prog_detach2(foreign_.get(), cgroup.get(), BPF_CGROUP_SOCK_OPS) : attached;
    }

    const std::string name_ = "podlane-test-" + std::to_string(getpid());
    Node node_;
    const Fd all_ = net::mount_unseen("cgroup2");
    Fd root_;
    const Fd calls_ = Fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "calls", 4, 8, 32, nullptr));
    const Fd foreign_ = load_counter(calls_.get());
};

TEST_F(SockOpsRoot, AProgramThatLetsNoneBesideItIsNamed) {
    ASSERT_EQ(bpf_prog_attach(foreign_.get(), root_.get(), BPF_CGROUP_SOCK_OPS, 0), 0);
    EXPECT_THAT(podlanectl("load"), prints(0));
    EXPECT_FALSE(require(is_pacing(node_.bpffs())));
    const std::string why = "another sock_ops program was attached to ", flag = "without BPF_F_ALLOW_MULTI";
    EXPECT_THAT(podlanectl("doctor"), prints(1, {why, flag}));
    EXPECT_THAT(podlanectl("status").out, has_all({why, flag}));
    EXPECT_THAT(podlanectl("doctor --fix"), prints(1, {"no: attaching to cgroup v2: " + why, flag}));
    EXPECT_FALSE(require(is_pacing(node_.bpffs())));
    ASSERT_EQ(bpf_prog_detach2(foreign_.get(), root_.get(), BPF_CGROUP_SOCK_OPS), 0);
    (void)podlanectl("doctor --fix");
    EXPECT_TRUE(require(is_pacing(node_.bpffs())));
}

// The kernel's rule, which docs/SECURITY.md names: the programs of one cgroup are attached with the same flags.
TEST_F(SockOpsRoot, BesideOursOthersAttachForSeveralOrBelow) {
    ASSERT_THAT(podlanectl("load"), prints(0));
    ASSERT_TRUE(require(is_pacing(node_.bpffs())));
    for (const unsigned alone : {0U, BPF_F_ALLOW_OVERRIDE})
        EXPECT_EQ(attach_foreign(root_, alone), -EPERM);
    EXPECT_EQ(attach_foreign(root_, BPF_F_ALLOW_MULTI), 0);
    ASSERT_EQ(mkdirat(root_.get(), "below", S_IRWXU), 0);
    const Fd below(openat(root_.get(), "below", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (const unsigned flags : {0U, BPF_F_ALLOW_OVERRIDE, BPF_F_ALLOW_MULTI})
        EXPECT_EQ(attach_foreign(below, flags), 0);
    EXPECT_EQ(unlinkat(root_.get(), "below", AT_REMOVEDIR), 0);
}

} // namespace
} // namespace podlane::test
