// SPDX-License-Identifier: MIT
#include "tests/harness/bpf.hpp"

#include "loader/pins.hpp"
#include "maps/tables.hpp"
#include "tests/harness/process.hpp"
#include "tests/harness/throw_errno.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace podlane::test {

Fd load_passing_program(const char *name) {
    const std::array<bpf_insn, 2> code = {
        {{BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, -1}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}}};
    Fd fd(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, name, "GPL", code.data(), code.size(), nullptr));
    if (!fd)
        throw std::runtime_error("loading a program");
    return fd;
}

void attach_filter(int program, std::uint32_t ifindex, Hook hook, unsigned priority) {
    bpf_tc_hook tc{};
    tc.sz = sizeof tc;
    tc.ifindex = static_cast<int>(ifindex);
    tc.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
    const int made = bpf_tc_hook_create(&tc);
    tc.attach_point = hook == Hook::ingress ? BPF_TC_INGRESS : BPF_TC_EGRESS;
    bpf_tc_opts options{};
    options.sz = sizeof options;
    options.prog_fd = program;
    options.handle = 7;
    options.priority = priority;
    if ((made != 0 && made != -EEXIST) || bpf_tc_attach(&tc, &options) != 0)
        throw_errno("clsact filter");
}

bpf_attach_type tcx_type(Hook hook) { // linux/bpf.h of 6.6
    return static_cast<bpf_attach_type>(hook == Hook::ingress ? 46 : 47);
}

void attach_tcx(int program, std::uint32_t ifindex, Hook hook) {
    if (bpf_prog_attach(program, static_cast<int>(ifindex), tcx_type(hook), 0) != 0)
        throw_errno("tcx");
}

MapEntries map_entries(const std::string &bpffs, const std::set<std::string_view> &left_out) {
    MapEntries all;
    for (const std::string_view name : kMapNames) {
        if (left_out.contains(name))
            continue;
        const Fd map(bpf_obj_get(pin_path(bpffs, name).c_str()));
        const MapFacts facts = require(map_facts(map.get()));
        for (const Bytes &key : require(detail::keys(map.get(), std::string(name)))) {
            Bytes value(facts.value_size);
            (void)require(detail::find(map.get(), std::string(name), key.data(), value.data()));
            all[std::string(name)].emplace_back(key, value);
        }
        std::ranges::sort(all[std::string(name)]);
    }
    return all;
}

} // namespace podlane::test
