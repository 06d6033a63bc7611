// SPDX-License-Identifier: MIT
#include "loader/node_netns.hpp"

#include "loader/attach.hpp"
#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "maps/errors.hpp"
#include "maps/file.hpp"
#include "maps/tables.hpp"

#include <cerrno>
#include <cstdint>
#include <set>
#include <string_view>

namespace podlane {
namespace {

Result<std::set<std::uint32_t>> pinned_program_ids(const std::string &root) {
    std::set<std::uint32_t> ids;
    for (const std::string_view name : kProgramNames) {
        const auto program = open_program(root, std::string(name).c_str());
        if (program)
            ids.insert(TRY(program_facts(program->get())).id);
        else if (program.error().code != ErrorCode::missing)
            return program.error();
    }
    return ids;
}

Result<bool> has_programs_on_hooks(const std::string &root) {
    const std::set<std::uint32_t> pinned = TRY(pinned_program_ids(root));
    net::Netlink host = TRY(net::Netlink::open());
    HookSurvey hooks = TRY(HookSurvey::make(host));
    for (const net::Link &link : TRY(net::list_links(host)))
        for (const Hook hook : {Hook::ingress, Hook::egress})
            for (const Attached &one : TRY(hooks.attached(link.ifindex, hook)))
                if (pinned.contains(one.program_id))
                    return true;
    return false;
}

// Maps of another version have other names: these say nothing.
Result<bool> has_no_interfaces(const std::string &root) {
    const auto is_any = [](const auto &) { return true; };
    return TRY(maps_of_other_versions(root)).empty() &&
           !TRY(TRY(open_endpoints(root, Access::if_present)).any_key(is_any)) &&
           !TRY(TRY(open_uplinks(root, Access::if_present)).any_key(is_any));
}

} // namespace

Result<std::string> netns_fault(const std::string &root) {
    return TRY(netns_of(root)) != 0 ? std::string()
                                    : pin_path(root, kNetnsLink) + ", which names the node's network namespace, " +
                                          (TRY(is_pinned(pin_path(root, kNetnsLink))) ? "names none" : "is missing");
}

Result<void> restore_netns(const std::string &root, const std::string &state_directory) {
    if (TRY(netns_of(root)) != 0 || !TRY(is_pinned(live_directory(root))))
        return {};
    const std::uint32_t own = TRY(net::own_netns());
    Errors unread; // count as none
    if (!TRY(has_programs_on_hooks(root)) && !roots_on_record(state_directory, own, unread).contains(root) &&
        !TRY(has_no_interfaces(root)))
        return Error{ErrorCode::plugin_not_available,
                     "bpffs: " + TRY(netns_fault(root)) +
                         ", and nothing says that its endpoints are of this one: two nodes cannot share it",
                     "podlanectl repair in the namespace that has them; or set \"bpffs\" to a directory of this "
                     "node's own; if that namespace is gone: podlanectl uninstall"};
    TRY(remove_if_present(pin_path(root, kNetnsLink))); // one that names none
    auto named = name_netns(live_directory(root), own);
    return !named && named.error().system_errno == EEXIST ? Result<void>{} : std::move(named); // by another call
}

} // namespace podlane
