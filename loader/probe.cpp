// SPDX-License-Identifier: MIT
#include "loader/probe.hpp"

#include "loader/tracking.hpp"
#include "maps/fd.hpp"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/btf.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace podlane {
namespace {

enum class Kind { helper, map };

struct Probed {
    Feature feature;
    Kind kind;
    std::uint32_t number; // enum bpf_func_id or enum bpf_map_type
};

constexpr std::array<Probed, 7> kNeeded = {{
    {{"the helper bpf_fib_lookup", "Linux 4.18"}, Kind::helper, BPF_FUNC_fib_lookup},
    {{"the helper bpf_redirect_neigh", "Linux 5.10"}, Kind::helper, BPF_FUNC_redirect_neigh},
    {{"the helper bpf_redirect_peer", "Linux 5.10"}, Kind::helper, BPF_FUNC_redirect_peer},
    {{"hash maps", "Linux 3.19"}, Kind::map, BPF_MAP_TYPE_HASH},
    {{"maps that evict the least recently used entry", "Linux 4.10"}, Kind::map, BPF_MAP_TYPE_LRU_HASH},
    {{"maps with a value for each CPU", "Linux 4.6"}, Kind::map, BPF_MAP_TYPE_PERCPU_ARRAY},
    {{"maps of prefixes", "Linux 4.11"}, Kind::map, BPF_MAP_TYPE_LPM_TRIE},
}};

constexpr std::int32_t kStackBytes = 64; // more than any argument of the helpers below

bpf_insn instruction(std::uint8_t code, std::uint8_t target, std::uint8_t source, std::int16_t offset,
                     std::int32_t immediate) {
    bpf_insn one{};
    one.code = code;
    one.dst_reg = target & 0xfU;
    one.src_reg = source & 0xfU;
    one.off = offset;
    one.imm = immediate;
    return one;
}

bpf_insn set(std::uint8_t target, std::int32_t value) {
    return instruction(BPF_ALU64 | BPF_MOV | BPF_K, target, 0, 0, value);
}
bpf_insn call(std::uint32_t helper) {
    return instruction(BPF_JMP | BPF_CALL, 0, 0, 0, static_cast<std::int32_t>(helper));
}
bpf_insn end() { return instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0); }

// bpf_fib_lookup(skb, 64 zeroes on the stack, 64, 0)
std::vector<bpf_insn> fib_lookup_program() {
    std::vector<bpf_insn> code;
    for (std::int16_t at = -kStackBytes; at < 0; at += 8)
        code.push_back(instruction(BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, at, 0));
    code.push_back(instruction(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0));
    code.push_back(instruction(BPF_ALU64 | BPF_ADD, BPF_REG_2, 0, 0, -kStackBytes)); // BPF_K is 0
    code.push_back(set(BPF_REG_3, kStackBytes));
    code.push_back(set(BPF_REG_4, 0));
    code.push_back(call(BPF_FUNC_fib_lookup));
    code.push_back(set(BPF_REG_0, 0));
    code.push_back(end());
    return code;
}

// Both take an ifindex first; zeroes mean "nothing" in all other arguments.
std::vector<bpf_insn> redirect_program(std::uint32_t helper) {
    return {set(BPF_REG_1, 1), set(BPF_REG_2, 0), set(BPF_REG_3, 0), set(BPF_REG_4, 0), call(helper), end()};
}

// Loads or creates it; errno says why that failed.
Fd try_feature(const Probed &probed) {
    if (probed.kind == Kind::map) {
        const bool is_trie = probed.number == BPF_MAP_TYPE_LPM_TRIE;
        constexpr std::uint32_t kWord = 4;
        struct bpf_map_create_opts options {};
        options.sz = sizeof options;
        options.map_flags = is_trie ? BPF_F_NO_PREALLOC : 0;
        return Fd(bpf_map_create(static_cast<bpf_map_type>(probed.number), "pl_probe", is_trie ? 2 * kWord : kWord,
                                 kWord, 1, &options));
    }
    const std::vector<bpf_insn> code =
        probed.number == BPF_FUNC_fib_lookup ? fib_lookup_program() : redirect_program(probed.number);
    return Fd(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "pl_probe", "GPL", code.data(), code.size(), nullptr));
}

// bpf_probe_read_kernel(8 bytes of the stack, 8, 0)
std::vector<bpf_insn> read_program() {
    constexpr std::int32_t kBytes = 8;
    return {instruction(BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_10, 0, 0),
            instruction(BPF_ALU64 | BPF_ADD, BPF_REG_1, 0, 0, -kBytes),
            set(BPF_REG_2, kBytes),
            set(BPF_REG_3, 0),
            call(BPF_FUNC_probe_read_kernel),
            set(BPF_REG_0, 0),
            end()};
}

Result<void> read_exactly(const Fd &file, void *to, std::size_t bytes, const std::string &path) {
    for (std::size_t got = 0; got < bytes;) {
        const ssize_t more = read(file.get(), static_cast<char *>(to) + got, bytes - got);
        if (more < 0 && errno == EINTR)
            continue;
        if (more <= 0)
            return system_error(ErrorCode::bpf, "reading " + path, more < 0 ? errno : EINVAL);
        got += static_cast<std::size_t>(more);
    }
    return {};
}

// All names in the type information of the kernel or of a module; none if there is no such file. libbpf would parse the
// types as well, which takes 10 ms.
Result<std::optional<std::string>> type_names(const char *module) {
    const std::string path = std::string("/sys/kernel/btf/") + module;
    const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && errno == ENOENT)
        return std::optional<std::string>{};
    if (!file)
        return system_error(ErrorCode::bpf, "reading " + path, errno);
    btf_header header{};
    TRY(read_exactly(file, &header, sizeof header, path));
    if (lseek(file.get(), off_t{header.hdr_len} + off_t{header.str_off}, SEEK_SET) < 0)
        return system_error(ErrorCode::bpf, "reading " + path, errno);
    std::string names(header.str_len, '\0');
    TRY(read_exactly(file, names.data(), names.size(), path));
    return std::optional(std::move(names));
}

} // namespace

bool has_tcx() {
    // Only a kernel without tcx says EINVAL. Any other error, of rights or of memory, is met again and reported when
    // programs are listed or attached.
    static const bool known = [] {
        constexpr int kLoopback = 1;
        std::uint32_t count = 0;
        const auto type = static_cast<bpf_attach_type>(kTcxIngress);
        return bpf_prog_query(kLoopback, type, 0, nullptr, nullptr, &count) == 0 || errno != EINVAL;
    }();
    return known;
}

Result<std::vector<Feature>> missing_features() {
    std::vector<Feature> missing;
    for (const Probed &probed : kNeeded) {
        if (try_feature(probed))
            continue;
        if (errno != EINVAL)
            return system_error(ErrorCode::bpf, "trying " + std::string(probed.feature.name), errno);
        missing.push_back(probed.feature);
    }
    return missing;
}

Result<bool> kernel_has_ct_lookup() {
    const auto has = [](const std::string &names) {
        using namespace std::string_literals;
        return names.find("\0bpf_skb_ct_lookup\0"s) != std::string::npos &&
               names.find("\0bpf_ct_change_timeout\0"s) != std::string::npos;
    };
    const auto kernel = TRY(type_names("vmlinux"));
    if (!kernel || has(*kernel))
        return kernel.has_value();
    constexpr auto kModule = "/sys/module/nf_conntrack";
    if (access(kModule, F_OK) != 0) {
        if (errno != ENOENT && errno != ENOTDIR)
            return system_error(ErrorCode::bpf, std::string("looking for ") + kModule, errno);
        static_cast<void>(load_conntrack()); // if it fails, the programs do without
    }
    return has(TRY(type_names("nf_conntrack")).value_or(""));
}

Result<bool> kernel_is_readable() {
    const std::vector<bpf_insn> code = read_program();
    if (Fd(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "pl_probe", "GPL", code.data(), code.size(), nullptr)))
        return true;
    if (errno != EINVAL)
        return system_error(ErrorCode::bpf, "trying the helper bpf_probe_read_kernel", errno);
    return false;
}

} // namespace podlane
