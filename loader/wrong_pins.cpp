// SPDX-License-Identifier: MIT
#include "loader/wrong_pins.hpp"

#include "loader/map_plan.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "maps/file.hpp"
#include "maps/map.hpp"
#include "maps/map_name.hpp"
#include "maps/tables.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <string_view>

namespace podlane {
namespace {

using IsRight = std::function<Result<bool>(const Fd &pin)>;

Result<bool> is_wrong(const std::string &path, const IsRight &is_right) {
    struct stat facts {};
    if (lstat(path.c_str(), &facts) != 0)
        return errno == ENOENT ? Result<bool>(false) : system_error(ErrorCode::bpf, "reading " + path, errno);
    const Fd pin = detail::open_pin(path, true);
    const int error = errno;
    if (pin)
        return !TRY(is_right(pin));
    if (S_ISDIR(facts.st_mode) || S_ISLNK(facts.st_mode) || error == EINVAL) // a BPF link is not opened to be read
        return true;
    return error == ENOENT ? Result<bool>(false) : system_error(ErrorCode::bpf, "opening " + path, error);
}

IsRight is_as_planned(const PlannedMap &planned) {
    return [name = planned.name, facts = planned.facts](const Fd &pin) -> Result<bool> {
        if (!TRY(detail::is_map(pin)))
            return false;
        const bpf_map_info there = TRY(map_info(pin.get()));
        return there.type == facts.type && there.key_size == facts.key_size && there.value_size == facts.value_size &&
               is_name_of(there.name, name);
    };
}

// Whatever else is there has no name of a program.
IsRight is_program(std::string_view name) {
    return [name](const Fd &pin) -> Result<bool> {
        return !TRY(detail::is_map(pin)) && TRY(program_facts(pin.get())).name == name;
    };
}

} // namespace

Result<std::vector<std::string>> wrong_pins(const std::string &root) {
    std::vector<std::string> wrong;
    const auto look_at = [&](std::string_view name, const IsRight &is_right) -> Result<void> {
        std::string path = pin_path(root, name);
        if (TRY(is_wrong(path, is_right)))
            wrong.push_back(std::move(path));
        return {};
    };
    for (const PlannedMap &map : TRY(planned_maps({})))
        if (std::ranges::find(kMapNames, map.name) != kMapNames.end())
            TRY(look_at(map.name, is_as_planned(map)));
    for (const std::string_view name : kProgramNames)
        TRY(look_at(name, is_program(name)));
    return wrong;
}

Result<void> refuse_wrong_pins(const std::string &root) {
    const auto wrong = TRY(wrong_pins(root));
    return wrong.empty() ? Result<void>{}
                         : Error{ErrorCode::plugin_not_available, "bpffs: " + wrong.front() + " is not Podlane's",
                                 "podlanectl repair replaces it"};
}

Result<void> remove_wrong_pins(const std::string &root) {
    for (const std::string &path : TRY(wrong_pins(root))) {
        auto removed = remove_if_present(path);
        if (!removed && removed.error().system_errno == EISDIR)
            removed = remove_pins(path);
        TRY(std::move(removed));
    }
    return {};
}

} // namespace podlane
