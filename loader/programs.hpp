// SPDX-License-Identifier: MIT
// The embedded object that holds all programs (programs_bpf, or traced_bpf for explain), opened for some of them.
#pragma once

#include "loader/embedded.hpp"
#include "loader/net/namespace.hpp"
#include "maps/abi/counter.h"
#include "maps/clock.hpp"
#include "maps/map.hpp"
#include "programs.skel.h"

#include <algorithm>
#include <cerrno>
#include <initializer_list>
#include <string_view>

namespace podlane {

using ProgramNames = std::initializer_list<const char *>;

// Only these programs will be loaded, with the constants of the settings.
template <typename Skeleton = programs_bpf>
Result<Owned<Skeleton>> open_programs(ProgramNames names, const LoadSettings &settings) {
    Owned<Skeleton> all(Skeleton::open(), &Skeleton::destroy);
    if (!all)
        return load_error("reading the embedded programs", errno);
    all->rodata->podlane_build = own_build();
    all->rodata->fast_mark = settings.mark;
    all->rodata->slow_mark = settings.slow_mark;
    all->rodata->slow_mark_mask = settings.slow_mark_mask;
    all->rodata->confirm_ns = settings.confirm_ms * kNsPerMs;
    all->rodata->has_conntrack = settings.conntrack;
    all->rodata->can_read_kernel = settings.replies;
    all->rodata->has_shared_counters = TRY(cpu_numbers()) > COUNTER_SHARES;
    all->rodata->node_netns = TRY(net::own_netns());
    bpf_program *program = nullptr;
    bpf_object__for_each_program(program, all->obj) {
        const std::string_view name = bpf_program__name(program);
        bpf_program__set_autoload(program, std::ranges::find(names, name) != names.end());
    }
    return all;
}

} // namespace podlane
