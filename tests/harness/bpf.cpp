// SPDX-License-Identifier: MIT
#include "tests/harness/bpf.hpp"

#include "loader/pins.hpp"
#include "maps/tables.hpp"
#include "tests/harness/process.hpp"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include <algorithm>
#include <array>
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
