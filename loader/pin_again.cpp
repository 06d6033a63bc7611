// SPDX-License-Identifier: MIT
#include "loader/pin_again.hpp"

#include "loader/attach.hpp"
#include "loader/net/link.hpp"
#include "loader/object.hpp"
#include "loader/pace.hpp"
#include "loader/pins.hpp"
#include "maps/fd.hpp"
#include "maps/tables.hpp"

#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>

namespace podlane {
namespace {

struct LoadedProgram {
    Fd fd;
    std::string name;
    std::vector<ProgramMap> maps;
};

// A map that is there in another version is not missing: an upgrade carries it over.
Result<std::vector<std::string>> missing_pins(const std::string &root) {
    std::vector<std::string> missing;
    for (const std::string_view name : kMapNames)
        if (!TRY(is_pinned(pin_path(root, name))) && TRY(other_version(root, name)).empty())
            missing.emplace_back(name);
    for (const std::string_view name : kProgramNames)
        if (!TRY(is_pinned(pin_path(root, name))))
            missing.emplace_back(name);
    return missing;
}

Result<LoadedProgram> look_at_program(Fd fd) {
    std::string name = TRY(program_facts(fd.get())).name;
    auto maps = TRY(program_maps(fd.get()));
    return LoadedProgram{std::move(fd), std::move(name), std::move(maps)};
}

Result<std::vector<LoadedProgram>> pinned_programs(const std::string &root) {
    std::vector<LoadedProgram> all;
    for (const std::string_view name : kProgramNames) {
        auto program = open_program(root, std::string(name).c_str());
        if (program)
            all.push_back(TRY(look_at_program(*std::move(program))));
        else if (program.error().code != ErrorCode::missing)
            return std::move(program).error();
    }
    if (auto pacing = pacing_program(root)) // an option
        all.push_back(TRY(look_at_program(*std::move(pacing))));
    return all;
}

// Of whichever root.
Result<std::vector<LoadedProgram>> attached_programs() {
    std::set<std::uint32_t> ids;
    net::Netlink host = TRY(net::Netlink::open());
    HookSurvey hooks = TRY(HookSurvey::make(host));
    for (const net::Link &link : TRY(net::list_links(host)))
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : TRY(hooks.attached(link.ifindex, hook)))
                ids.insert(one.program_id);
    std::vector<LoadedProgram> all;
    for (const std::uint32_t id : ids) {
        Fd fd(bpf_prog_get_fd_by_id(id));
        if (fd)
            all.push_back(TRY(look_at_program(std::move(fd))));
        else if (errno != ENOENT) // else it has gone with its interface
            return system_error(ErrorCode::bpf, "opening program " + std::to_string(id), errno);
    }
    return all;
}

Result<std::set<std::uint32_t>> pinned_map_ids(const std::string &root) {
    std::set<std::uint32_t> ids;
    for (const std::string_view name : kMapNames) {
        const std::string path = pin_path(root, name);
        const Fd pin = detail::open_pin(path, true);
        if (!pin && errno != ENOENT)
            return system_error(ErrorCode::bpf, "opening map " + path, errno);
        if (pin && TRY(detail::is_map(pin)))
            ids.insert(TRY(map_facts(pin.get())).id);
    }
    return ids;
}

// Those that are pinned come first: of two maps of one name, theirs is the one in use.
Result<std::vector<LoadedProgram>> programs_of(const std::string &root) {
    std::vector<LoadedProgram> all = TRY(pinned_programs(root));
    std::set<std::uint32_t> own = TRY(pinned_map_ids(root));
    for (const LoadedProgram &one : all)
        for (const ProgramMap &map : one.maps)
            own.insert(map.info.id);
    for (LoadedProgram &one : TRY(attached_programs()))
        if (std::ranges::any_of(one.maps, [&](const ProgramMap &map) { return own.contains(map.info.id); }))
            all.push_back(std::move(one));
    return all;
}

// -1: none of them has it.
int find_loaded(const std::vector<LoadedProgram> &programs, std::string_view name) {
    for (const LoadedProgram &one : programs) {
        if (one.name == name)
            return one.fd.get();
        for (const ProgramMap &map : one.maps)
            if (name == map.info.name)
                return map.fd.get();
    }
    return -1;
}

} // namespace

Result<std::vector<std::string>> pin_again(const std::string &root) {
    std::vector<std::string> again;
    if (!TRY(is_pinned(live_directory(root))))
        return again;
    const std::vector<std::string> missing = TRY(missing_pins(root));
    if (missing.empty())
        return again;
    const std::vector<LoadedProgram> programs = TRY(programs_of(root));
    for (const std::string &name : missing) {
        const int fd = find_loaded(programs, name);
        if (fd < 0)
            continue;
        if (bpf_obj_pin(fd, pin_path(root, name).c_str()) != 0 && errno != EEXIST) // beside a DEL that does the same
            return system_error(ErrorCode::bpf, "pinning " + name + " again", errno);
        again.push_back(name);
    }
    return again;
}

} // namespace podlane
