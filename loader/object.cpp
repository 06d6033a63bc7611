// SPDX-License-Identifier: MIT
#include "loader/object.hpp"

#include "loader/embedded.hpp"
#include "loader/map_plan.hpp"
#include "loader/migrate.hpp"
#include "loader/net/namespace.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "loader/probe.hpp"
#include "loader/programs.hpp"
#include "loader/state_file.hpp"
#include "maps.skel.h"
#include "maps/clock.hpp"
#include "maps/file.hpp"
#include "maps/tables.hpp"
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
        if (std::ranges::find(kMapNames, std::string_view(bpf_map__name(map))) == kMapNames.end())
            continue;
        TRY(pin(bpf_map__fd(map), directory, bpf_map__name(map)));
    }
    return {};
}

// Entry 0 of the counters is for packets on interfaces that are no endpoint.
Result<void> count_unknown(const bpf_object *object) {
    const int fd = bpf_object__find_map_fd_by_name(object, PODLANE_MAP_COUNTERS);
    const std::uint32_t unknown = 0;
    const counter_shares zero{};
    auto put = detail::write(fd, PODLANE_MAP_COUNTERS, &unknown, &zero, Write::must_not_exist);
    if (!put && put.error().code == ErrorCode::already_exists)
        return {}; // the map is that of a running version
    return put;
}

// libbpf takes a probe that fails for whatever reason for a kernel that knows no names, and caches that as long as the
// process runs. Without its name nobody finds the program on a hook.
Result<int> named_program(const bpf_object *object, const char *name) {
    const int fd = bpf_program__fd(bpf_object__find_program_by_name(object, name));
    if (TRY(program_facts(fd)).name != name)
        return load_error(std::string("loading ") + name + " by its name", EAGAIN);
    return fd;
}

std::string joined(ProgramNames names) {
    std::string text;
    for (const char *name : names)
        text += (text.empty() ? "" : ", ") + std::string(name);
    return text;
}

// The storages of sockets, which have no pin: the rate that an application set itself, and who spoke first on a socket
// of UDP. One of another size is of another layout, and begins empty.
Result<void> keep_sockets(bpf_map *map, const std::string &maps_from) {
    if (maps_from.empty())
        return {};
    const std::string path = maps_from + "/" PODLANE_PROGRAM_FROM_POD;
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
    if (bpf_map__reuse_fd(map, known->fd.get()) != 0)
        return load_error(std::string("sharing map ") + bpf_map__name(map), errno);
    return {};
}

// A directory of pins in the making.
struct Loading {
    const std::string &directory;
    const std::string &maps_from;
    LoadSettings can; // what the kernel can do, of what is wanted
    const bpf_object *maps = nullptr;
};

Result<void> load_programs(ProgramNames names, const Loading &to) {
    const auto all = TRY(open_programs(names, to.can));
    TRY(share_maps(all->obj, to.maps));
    TRY(load_object(all->obj, "loading " + joined(names)));
    for (const char *name : names)
        TRY(pin(TRY(named_program(all->obj, name)), to.directory, name));
    if (const int pace = bpf_program__fd(all->progs.pl_pace); pace >= 0 && !start_pacing(pace, to.directory))
        static_cast<void>(start_pacing(pace, to.directory)); // see resume_pacing()
    return {};
}

// Limits hold without pl_pace, with less comfort: a kernel that cannot do this runs everything else.
Result<void> load_with_pacing(const Loading &to) {
    auto loaded = load_programs({PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_PACE}, to);
    if (loaded || is_transient(loaded.error().system_errno))
        return loaded;
    return load_programs({PODLANE_PROGRAM_FROM_POD}, to);
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
        for (const auto &bytes : {&maps_bpf__elf_bytes, &programs_bpf__elf_bytes}) {
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
    settings.mark = static_cast<std::uint32_t>(read("fast_mark", settings.mark));
    settings.slow_mark = static_cast<std::uint32_t>(read("slow_mark", 0));
    settings.slow_mark_mask = static_cast<std::uint32_t>(read("slow_mark_mask", 0));
    settings.confirm_ms = static_cast<std::uint32_t>(read("confirm_ns", settings.confirm_ms * kNsPerMs) / kNsPerMs);
    settings.conntrack = read("has_conntrack", 0) != 0;
    return {};
}

namespace {

Result<Owned<maps_bpf>> make_maps(const std::string &directory, const LoadSettings &settings,
                                  const std::string &maps_from) {
    Owned<maps_bpf> maps(maps_bpf__open(), &maps_bpf__destroy);
    if (!maps)
        return load_error("reading the embedded programs", errno);
    set_map_sizes(maps->obj, settings);
    if (!maps_from.empty())
        TRY(reuse_maps(maps->obj, maps_from));
    for (bpf_map *storage : {maps->maps.paced_sockets, maps->maps.udp_sockets})
        TRY(keep_sockets(storage, maps_from));
    TRY(load_object(maps->obj, "making the maps"));
    TRY(count_unknown(maps->obj));
    TRY(name_netns(directory, TRY(net::own_netns())));
    TRY(pin_maps(maps->obj, directory));
    return maps;
}

// Two threads take equally long, most of it in the verifier.
Result<void> load_once(const std::string &directory, const LoadSettings &settings, const std::string &maps_from) {
    keep_libbpf_log();
    Loading to{directory, maps_from, settings};
    to.can.conntrack = settings.conntrack && TRY(kernel_has_ct_lookup());
    to.can.replies = settings.replies && TRY(kernel_is_readable());
    const auto maps = TRY(make_maps(directory, settings, maps_from));
    to.maps = maps->obj;
    const std::array<Work, 2> works = {
        [&] { return load_with_pacing(to); },
        [&] {
            return load_programs({PODLANE_PROGRAM_FROM_UPLINK, PODLANE_PROGRAM_TO_POD, PODLANE_PROGRAM_TO_UPLINK}, to);
        }};
    return run_parallel(works);
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

namespace {

Result<void> load_and_publish(const std::string &root, const LoadSettings &settings) {
    const std::string loading = TRY(make_loading_directory(root)), live = live_directory(root);
    auto done = load_into(loading, settings);
    if (done && rename(loading.c_str(), live.c_str()) != 0)
        done = system_error(ErrorCode::bpf, "publishing " + live, errno);
    if (done)
        return {};
    Errors errors;
    errors.add(std::move(done));
    errors.add(remove_pins(loading));
    return std::move(errors).result();
}

} // namespace

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
    auto loaded = load_and_publish(root, settings);
    if (!loaded && !TRY(lock.is_of(root)))
        return Error{ErrorCode::try_again_later, "bpffs: " + root + " was removed while the programs were loaded",
                     "repeat the call, which loads the programs again"};
    return loaded;
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
                     others.empty() ? "podlanectl repair restores it"
                                    : "podlanectl upgrade brings the node to the version of the podlanectl it is of"};
    }
    return {};
}

Result<Fd> open_program(const std::string &root, const char *name) {
    const std::string path = pin_path(root, name);
    Fd fd(bpf_obj_get(path.c_str()));
    if (fd)
        return fd;
    Error error = system_error(errno == ENOENT ? ErrorCode::missing : ErrorCode::bpf, "opening program " + path, errno);
    if (error.code == ErrorCode::missing)
        error.hint = "podlanectl repair restores it";
    return error;
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
    const ProgramNames names = {PODLANE_PROGRAM_FROM_POD, PODLANE_PROGRAM_TO_POD, PODLANE_PROGRAM_FROM_UPLINK,
                                PODLANE_PROGRAM_TO_UPLINK};
    constexpr LoadSettings kLittle{.endpoints = 1, .paths = 1, .conntrack = false, .replies = false};
    const auto all = TRY(open_programs(names, kLittle));
    set_map_sizes(all->obj, kLittle);
    TRY(load_object(all->obj, "loading all programs"));
    std::vector<ProgramFacts> facts;
    for (const char *name : names)
        facts.push_back(TRY(program_facts(TRY(named_program(all->obj, name)))));
    return facts;
}

} // namespace podlane
