// SPDX-License-Identifier: MIT
#include "loader/net/namespace.hpp"
#include "loader/programs.hpp"
#include "maps/clock.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>

namespace podlane {

Result<Owned<programs_bpf>> open_programs(ProgramNames names, const LoadSettings &settings) {
    Owned<programs_bpf> all(programs_bpf__open(), &programs_bpf__destroy);
    if (!all)
        return load_error("reading the embedded programs", errno);
    all->rodata->podlane_build = own_build();
    all->rodata->fast_mark = settings.mark;
    all->rodata->slow_mark = settings.slow_mark;
    all->rodata->slow_mark_mask = settings.slow_mark_mask;
    all->rodata->confirm_ns = settings.confirm_ms * kNsPerMs;
    all->rodata->has_conntrack = settings.conntrack;
    all->rodata->can_read_kernel = settings.replies;
    all->rodata->node_netns = TRY(net::own_netns());
    bpf_program *program = nullptr;
    bpf_object__for_each_program(program, all->obj) {
        const std::string_view name = bpf_program__name(program);
        bpf_program__set_autoload(program, std::ranges::find(names, name) != names.end());
    }
    return all;
}

} // namespace podlane
