// SPDX-License-Identifier: MIT
#include "loader/object.hpp"

#include "from_pod.skel.h"
#include "from_uplink.skel.h"
#include "loader/embedded.hpp"
#include "loader/map_plan.hpp"
#include "loader/migrate.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "loader/state_file.hpp"
#include "maps/file.hpp"
#include "maps/tables.hpp"
#include "pace.skel.h"
#include "to_pod.skel.h"
#include "to_uplink.skel.h"
#include "maps/hash.hpp"
#include "maps/errors.hpp"
#include "maps/parallel.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace podlane {
namespace {

// The maps of `from`, so that both objects work on the same ones.
Result<void> share_maps(bpf_object *object, const bpf_object *from) {
    bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object) {
        const bpf_map *shared = bpf_object__find_map_by_name(from, bpf_map__name(map));
        if (shared != nullptr && bpf_map__reuse_fd(map, bpf_map__fd(shared)) != 0)
            return load_error(std::string("sharing map ") + bpf_map__name(map), errno);
    }
    return {};
}

Result<void> pin(int fd, const std::string &directory, const char *name) {
    if (bpf_obj_pin(fd, (directory + "/" + name).c_str()) != 0)
        return load_error(std::string("pinning ") + name, errno);
    return {};
}

Result<void> pin_maps(const bpf_object *object, const std::string &directory) {
    const bpf_map *map = nullptr;
    bpf_object__for_each_map(map, object) {
        if (bpf_map__is_internal(map) || bpf_map__name(map) == std::string_view("scratch"))
            continue;
        TRY(pin(bpf_map__fd(map), directory, bpf_map__name(map)));
    }
    return {};
}

// Entry 0 of the counters is for packets on interfaces that are no endpoint.
Result<void> count_unknown(const bpf_object *object) {
    const int fd = bpf_object__find_map_fd_by_name(object, PODLANE_MAP_COUNTERS);
    const std::uint32_t unknown = 0;
    const std::vector<counters> zero(TRY(possible_cpus()));
    auto put = detail::write(fd, PODLANE_MAP_COUNTERS, &unknown, zero.data(), Write::must_not_exist);
    if (!put && put.error().code == ErrorCode::already_exists)
        return {}; // the map is that of a running version
    return put;
}

Result<void> load(bpf_object *object, const char *program) {
    const std::string doing = std::string("loading ") + program;
    TRY(load_object(object, doing));
    // libbpf takes a probe that fails for whatever reason for a kernel that knows no names, and remembers it as long as
    // the process runs. Without its name nobody finds the program on a hook.
    const int fd = bpf_program__fd(bpf_object__find_program_by_name(object, program));
    return TRY(program_facts(fd)).name == program ? Result<void>{} : load_error(doing + " by its name", EAGAIN);
}

Result<void> load_sharing(bpf_object *object, const bpf_object *maps_of, const char *program,
                          const std::string &directory) {
    TRY(share_maps(object, maps_of));
    TRY(load(object, program));
    return pin(bpf_program__fd(bpf_object__find_program_by_name(object, program)), directory, program);
}

// The storage of the sockets, which knows the rate that the application set itself. Of another size it is of another
// layout: sockets are then taken for those of applications that set none.
Result<void> keep_paced_sockets(bpf_map *map, const std::string &maps_from) {
    if (maps_from.empty())
        return {};
    const std::string path = maps_from + "/" PODLANE_PROGRAM_PACE;
    const Fd running(bpf_obj_get(path.c_str()));
    if (!running)
        return errno == ENOENT ? Result<void>{} : system_error(ErrorCode::bpf, "opening program " + path, errno);
    const auto known = find_program_map(running.get(), bpf_map__name(map));
    if (!known && known.error().code == ErrorCode::missing)
        return {};
    if (!known)
        return known.error();
    if (known->info.value_size != bpf_map__value_size(map))
        return {};
    return bpf_map__reuse_fd(map, known->fd.get()) == 0 ? Result<void>{}
                                                        : load_error("sharing map paced_sockets", errno);
}

// Limits hold without it, with less comfort: a kernel that cannot do this runs everything else.
Result<void> load_pacing(const bpf_object *maps_of, const std::string &directory, const std::string &maps_from) {
    const Owned<pace_bpf> pace(pace_bpf__open(), &pace_bpf__destroy);
    if (!pace)
        return load_error("reading the embedded programs", errno);
    pace->rodata->node_netns = TRY(own_netns());
    pace->rodata->podlane_build = own_build();
    TRY(keep_paced_sockets(pace->maps.paced_sockets, maps_from));
    if (auto loaded = load_sharing(pace->obj, maps_of, PODLANE_PROGRAM_PACE, directory); !loaded)
        return is_transient(loaded.error().system_errno) ? std::move(loaded) : Result<void>{};
    const int program = bpf_program__fd(pace->progs.pl_pace);
    if (!start_pacing(program, directory))
        static_cast<void>(start_pacing(program, directory)); // see resume_pacing()
    return {};
}

struct Skeletons {
    Owned<from_pod_bpf> from_pod{from_pod_bpf__open(), &from_pod_bpf__destroy};
    Owned<to_pod_bpf> to_pod{to_pod_bpf__open(), &to_pod_bpf__destroy};
    Owned<from_uplink_bpf> from_uplink{from_uplink_bpf__open(), &from_uplink_bpf__destroy};
    Owned<to_uplink_bpf> to_uplink{to_uplink_bpf__open(), &to_uplink_bpf__destroy};
};

Result<Skeletons> open_skeletons() {
    Skeletons all;
    if (!all.from_pod || !all.to_pod || !all.from_uplink || !all.to_uplink)
        return load_error("reading the embedded programs", errno);
    return all;
}

std::vector<std::string_view> pin_names() {
    std::vector<std::string_view> names(kMapNames.begin(), kMapNames.end());
    for (const std::string_view program : kProgramNames)
        if (program != PODLANE_PROGRAM_PACE) // an option
            names.push_back(program);
    return names;
}

// Restores what was published last if an upgrade was killed between its two renames.
bool finish_publishing(const std::string &root) {
    return rename(replaced_directory(root).c_str(), live_directory(root).c_str()) == 0;
}

} // namespace

// A hash of the embedded objects.
std::uint64_t own_build() {
    static const std::uint64_t build = [] {
        std::uint64_t hash = kFnv1aStart;
        for (const auto &bytes : {&from_pod_bpf__elf_bytes, &to_pod_bpf__elf_bytes, &from_uplink_bpf__elf_bytes,
                                  &to_uplink_bpf__elf_bytes, &pace_bpf__elf_bytes}) {
            std::size_t size = 0;
            const void *object = bytes(&size);
            hash = fnv1a_64({static_cast<const char *>(object), size}, hash);
        }
        return hash;
    }();
    return build;
}

Result<void> read_constants(int program_fd, LoadSettings &settings) {
    const Constants constants = TRY(program_constants(program_fd));
    const auto read = [&](std::string_view name, std::uint64_t otherwise) {
        const auto found = constants.find(name);
        return found == constants.end() ? otherwise : found->second;
    };
    constexpr std::uint64_t kNanosecondsPerMs = 1'000'000;
    settings.mark = static_cast<std::uint32_t>(read("fast_mark", settings.mark));
    settings.slow_mark = static_cast<std::uint32_t>(read("slow_mark", 0));
    settings.slow_mark_mask = static_cast<std::uint32_t>(read("slow_mark_mask", 0));
    settings.confirm_ms =
        static_cast<std::uint32_t>(read("confirm_ns", settings.confirm_ms * kNanosecondsPerMs) / kNanosecondsPerMs);
    settings.conntrack = read("has_conntrack", 0) != 0;
    return {};
}

namespace {

// Every object has all maps; the one that is verified fastest creates them.
Result<void> load_with_maps(to_uplink_bpf &to_uplink, const std::string &directory, const LoadSettings &settings,
                            const std::string &maps_from) {
    set_map_sizes(to_uplink.obj, settings);
    if (!maps_from.empty())
        TRY(reuse_maps(to_uplink.obj, maps_from));
    TRY(load(to_uplink.obj, PODLANE_PROGRAM_TO_UPLINK));
    TRY(count_unknown(to_uplink.obj));
    TRY(name_netns(directory, TRY(own_netns())));
    TRY(pin_maps(to_uplink.obj, directory));
    return pin(bpf_program__fd(to_uplink.progs.pl_to_uplink), directory, PODLANE_PROGRAM_TO_UPLINK);
}

// Nearly all of the time is the verifier's, and that of reading the kernel's type information.
Result<void> load_once(const std::string &directory, const LoadSettings &settings, const std::string &maps_from) {
    keep_libbpf_log();
    const Skeletons all = TRY(open_skeletons());
    for (auto *mark : {&all.from_pod->rodata->fast_mark, &all.to_pod->rodata->fast_mark,
                       &all.from_uplink->rodata->fast_mark, &all.to_uplink->rodata->fast_mark})
        *mark = settings.mark;
    for (auto *build : {&all.from_pod->rodata->podlane_build, &all.to_pod->rodata->podlane_build,
                        &all.from_uplink->rodata->podlane_build, &all.to_uplink->rodata->podlane_build})
        *build = own_build();
    LoadSettings flows = settings;
    flows.conntrack = settings.conntrack && TRY(kernel_has_ct_lookup());
    set_flow_constants(*all.from_pod->rodata, flows);
    set_flow_constants(*all.to_pod->rodata, flows);
    set_flow_constants(*all.from_uplink->rodata, flows);
    set_flow_constants(*all.to_uplink->rodata, flows);
    all.to_pod->rodata->can_read_kernel = settings.replies && TRY(kernel_is_readable());
    all.from_pod->rodata->can_read_kernel = all.to_pod->rodata->can_read_kernel;
    all.from_uplink->rodata->can_read_kernel = all.to_pod->rodata->can_read_kernel;
    TRY(load_with_maps(*all.to_uplink, directory, settings, maps_from));
    const bpf_object *maps = all.to_uplink->obj;
    // The longest first, and so that two threads take equally long.
    const std::array<Work, 4> rest = {
        [&] { return load_sharing(all.from_pod->obj, maps, PODLANE_PROGRAM_FROM_POD, directory); },
        [&] { return load_sharing(all.from_uplink->obj, maps, PODLANE_PROGRAM_FROM_UPLINK, directory); },
        [&] { return load_pacing(maps, directory, maps_from); },
        [&] { return load_sharing(all.to_pod->obj, maps, PODLANE_PROGRAM_TO_POD, directory); }};
    return run_parallel(rest);
}

} // namespace

// A verifier that gives up on the programs that query conntrack accepts those that do not.
Result<void> load_into(const std::string &directory, const LoadSettings &settings, const std::string &maps_from) {
    auto loaded = load_once(directory, settings, maps_from);
    if (loaded || !settings.conntrack || !TRY(kernel_has_ct_lookup()))
        return loaded;
    if (is_transient(loaded.error().system_errno))
        return loaded;
    for (const std::string &pin : TRY(names_in(directory, Hidden::too)))
        TRY(remove_if_present(directory + "/" + pin));
    LoadSettings without = settings;
    without.conntrack = false;
    return load_once(directory, without, maps_from);
}

Result<void> ensure_loaded(const std::string &root, const LoadSettings &settings) {
    const std::string live = live_directory(root);
    if (TRY(is_pinned(live))) {
        static_cast<void>(resume_pacing(root)); // an option that must not fail an ADD: the next one tries again
        return {};
    }
    TRY(prepare_root(root));
    const Lock lock = TRY(Lock::exclusive(root));
    if (TRY(is_pinned(live)) || finish_publishing(root))
        return {};
    const std::string loading = TRY(make_loading_directory(root));
    if (auto loaded = load_into(loading, settings); !loaded) {
        Errors errors;
        errors.add(std::move(loaded));
        errors.add(remove_pins(loading));
        return std::move(errors).result();
    }
    if (rename(loading.c_str(), live.c_str()) != 0)
        return system_error(ErrorCode::bpf, "publishing " + live, errno);
    return {};
}

Result<void> check_pins(const std::string &root) {
    for (const std::string_view name : pin_names()) {
        if (TRY(is_pinned(pin_path(root, name))))
            continue;
        std::string others;
        for (const std::string &other : TRY(maps_of_other_versions(root)))
            others += (others.empty() ? "" : ", ") + other;
        return Error{ErrorCode::plugin_not_available,
                     "bpffs: " + pin_path(root, name) + " is missing" +
                         (others.empty() ? "" : ", but there is " + others + " of another version of Podlane"),
                     others.empty() ? "podlanectl upgrade restores it"
                                    : "podlanectl upgrade brings the node to the version of the podlanectl it is of"};
    }
    return {};
}

Result<Fd> open_program(const std::string &root, const char *name) {
    const std::string path = pin_path(root, name);
    Fd fd(bpf_obj_get(path.c_str()));
    if (!fd)
        return system_error(errno == ENOENT ? ErrorCode::missing : ErrorCode::bpf, "opening program " + path, errno);
    return fd;
}

Result<bool> programs_query_conntrack(const std::string &root) {
    LoadSettings settings;
    TRY(read_constants(TRY(open_program(root, PODLANE_PROGRAM_FROM_POD)).get(), settings));
    return settings.conntrack;
}

Result<bool> programs_distinguish_replies(const std::string &root) {
    const Constants constants = TRY(program_constants(TRY(open_program(root, PODLANE_PROGRAM_TO_POD)).get()));
    const auto found = constants.find("can_read_kernel");
    return found == constants.end() || found->second != 0; // programs of before read it in any case
}

Result<ProgramFacts> program_facts(int program_fd) {
    bpf_prog_info info{};
    __u32 size = sizeof info;
    if (bpf_obj_get_info_by_fd(program_fd, &info, &size) != 0)
        return system_error(ErrorCode::bpf, "querying a program", errno);
    ProgramFacts facts{info.id, info.name, {}, info.load_time, info.run_cnt, info.run_time_ns};
    for (const unsigned char byte : info.tag) {
        std::array<char, 3> hex{};
        std::snprintf(hex.data(), hex.size(), "%02x", byte);
        facts.tag += hex.data();
    }
    return facts;
}

Result<std::vector<ProgramMap>> program_maps(int program_fd) {
    std::array<std::uint32_t, 64> ids{}; // as many as a program may have (MAX_USED_MAPS)
    bpf_prog_info program{};
    program.nr_map_ids = ids.size();
    program.map_ids = reinterpret_cast<std::uintptr_t>(ids.data());
    __u32 size = sizeof program;
    if (bpf_obj_get_info_by_fd(program_fd, &program, &size) != 0)
        return system_error(ErrorCode::bpf, "querying a program", errno);
    std::vector<ProgramMap> maps;
    for (const std::uint32_t id : std::span(ids).first(std::min<std::size_t>(program.nr_map_ids, ids.size()))) {
        ProgramMap map{Fd(bpf_map_get_fd_by_id(id)), {}};
        size = sizeof map.info;
        if (!map.fd || bpf_obj_get_info_by_fd(map.fd.get(), &map.info, &size) != 0)
            return system_error(ErrorCode::bpf, "opening a map of a program", errno);
        maps.push_back(std::move(map));
    }
    return maps;
}

Result<ProgramMap> find_program_map(int program_fd, std::string_view name) {
    for (ProgramMap &map : TRY(program_maps(program_fd)))
        if (name == map.info.name)
            return std::move(map);
    return Error{ErrorCode::missing, "the program has no map " + std::string(name)};
}

Result<std::vector<ProgramFacts>> embedded_programs() {
    constexpr LoadSettings kSmall{.endpoints = 1, .paths = 1};
    const Skeletons all = TRY(open_skeletons());
    set_map_sizes(all.from_pod->obj, kSmall);
    std::vector<ProgramFacts> facts;
    for (bpf_object *object : {all.from_pod->obj, all.to_pod->obj, all.from_uplink->obj, all.to_uplink->obj}) {
        bpf_program *program = bpf_object__next_program(object, nullptr);
        if (object != all.from_pod->obj)
            TRY(share_maps(object, all.from_pod->obj));
        TRY(load(object, bpf_program__name(program)));
        facts.push_back(TRY(program_facts(bpf_program__fd(program))));
    }
    return facts;
}

} // namespace podlane
