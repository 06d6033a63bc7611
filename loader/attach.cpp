// SPDX-License-Identifier: MIT
#include "loader/attach.hpp"

#include "loader/expedited_rcu.hpp"
#include "loader/object.hpp"
#include "loader/probe.hpp"
#include "loader/net/link.hpp"
#include "loader/net/qdisc.hpp"
#include "maps/abi/names.h"
#include "maps/fd.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string_view>

namespace podlane {
namespace {

bpf_attach_type tcx_type(Hook hook) {
    return static_cast<bpf_attach_type>(hook == Hook::ingress ? kTcxIngress : kTcxEgress);
}

std::string_view word(Hook hook) { return hook == Hook::ingress ? "ingress" : "egress"; }

std::string place(std::uint32_t ifindex, Hook hook) {
    return std::string(word(hook)) + " of interface " + std::to_string(ifindex);
}

Result<bool> has_ingress_qdisc(std::uint32_t ifindex) {
    net::Netlink netlink = TRY(net::Netlink::open());
    return TRY(net::ingress_qdisc(netlink, ifindex)) == net::kIngressQdisc;
}

bool is_ours(std::string_view program_name) { return program_name.starts_with(PODLANE_PROGRAM_PREFIX); }

Error taken(std::uint32_t ifindex) {
    const auto name = net::link_name(ifindex);
    const std::string link = name && !name->empty() ? *name : std::to_string(ifindex);
    return {ErrorCode::plugin_not_available,
            "interface " + link +
                " has a foreign qdisc `ingress`, for example of the plugin \"bandwidth\", in the slot of clsact",
            "tc qdisc del dev " + link +
                " ingress, then podlanectl repair; podlane enforces the limits of the plugin \"bandwidth\" itself"};
}

bool is_gone(int error) { return error == ENODEV || error == ENOENT || error == EINVAL; }

bpf_tc_hook tc_hook(std::uint32_t ifindex, Hook hook) {
    libbpf_set_print(nullptr); // errors are returned, not printed
    bpf_tc_hook tc{};
    tc.sz = sizeof tc;
    tc.ifindex = static_cast<int>(ifindex);
    tc.attach_point = hook == Hook::ingress ? BPF_TC_INGRESS : BPF_TC_EGRESS;
    return tc;
}

bpf_tc_opts tc_options() {
    bpf_tc_opts options{};
    options.sz = sizeof options;
    options.handle = PODLANE_TC_HANDLE;
    options.priority = PODLANE_TC_PRIORITY;
    return options;
}

using Names = std::map<std::uint32_t, std::string>; // of programs, by their ID

// Nothing if the program is gone. The kernel gives an ID to another program only after two billion others.
Result<std::optional<std::string>> name_by_id(std::uint32_t id, Names &known) {
    if (const auto found = known.find(id); found != known.end())
        return std::optional(found->second);
    const Fd fd(bpf_prog_get_fd_by_id(id));
    if (!fd) {
        if (errno == ENOENT)
            return std::optional<std::string>{};
        return system_error(ErrorCode::bpf, "opening program " + std::to_string(id), errno);
    }
    return std::optional(known[id] = TRY(program_facts(fd.get())).name);
}

// Our own and foreign ones, in the order in which they run.
Result<std::vector<std::uint32_t>> ids_on_tcx(std::uint32_t ifindex, Hook hook) {
    constexpr std::size_t kMost = 64; // the kernel's own limit (BPF_MPROG_MAX)
    std::vector<std::uint32_t> ids(kMost);
    std::uint32_t count = kMost;
    while (bpf_prog_query(static_cast<int>(ifindex), tcx_type(hook), 0, nullptr, ids.data(), &count) != 0) {
        if (errno == EINTR)
            continue;
        if (!is_gone(errno))
            return system_error(ErrorCode::bpf, "listing the programs on tcx " + place(ifindex, hook), errno);
        count = 0;
        break;
    }
    ids.resize(count);
    return ids;
}

Result<std::vector<Attached>> all_on_tcx(std::uint32_t ifindex, Hook hook, Names &names) {
    std::vector<Attached> all;
    for (const std::uint32_t id : TRY(ids_on_tcx(ifindex, hook)))
        if (auto name = TRY(name_by_id(id, names)))
            all.push_back({id, *std::move(name), HookKind::tcx});
    return all;
}

// Of the program in our place on clsact, if there is one.
Result<std::optional<std::uint32_t>> id_on_clsact(std::uint32_t ifindex, Hook hook) {
    const bpf_tc_hook tc = tc_hook(ifindex, hook);
    bpf_tc_opts options = tc_options();
    if (const int failed = bpf_tc_query(&tc, &options); failed != 0) {
        if (is_gone(-failed))
            return std::optional<std::uint32_t>{};
        return system_error(ErrorCode::bpf, "looking for our filter on clsact " + place(ifindex, hook), -failed);
    }
    return std::optional(options.prog_id);
}

Result<std::vector<Attached>> attached_tcx(std::uint32_t ifindex, Hook hook, Names &names) {
    auto all = TRY(all_on_tcx(ifindex, hook, names));
    std::erase_if(all, [](const Attached &one) { return !is_ours(one.name); });
    return all;
}

Result<std::vector<Attached>> attached_clsact(std::uint32_t ifindex, Hook hook, Names &names) {
    std::vector<Attached> ours;
    if (const auto id = TRY(id_on_clsact(ifindex, hook)))
        if (auto name = TRY(name_by_id(*id, names)); name && is_ours(*name))
            ours.push_back({*id, *std::move(name), HookKind::clsact});
    return ours;
}

Result<void> detach_tcx(std::uint32_t ifindex, Hook hook, std::uint32_t program_id) {
    const ExpeditedRcu while_detaching;
    const Fd fd(bpf_prog_get_fd_by_id(program_id));
    if ((!fd || bpf_prog_detach2(fd.get(), static_cast<int>(ifindex), tcx_type(hook)) != 0) && !is_gone(errno))
        return system_error(ErrorCode::bpf, "detaching from tcx " + place(ifindex, hook), errno);
    return {};
}

Result<void> detach_clsact(std::uint32_t ifindex, Hook hook) {
    const bpf_tc_hook tc = tc_hook(ifindex, hook);
    const bpf_tc_opts options = tc_options();
    if (const int failed = bpf_tc_detach(&tc, &options); failed != 0 && !is_gone(-failed))
        return system_error(ErrorCode::bpf, "detaching from clsact " + place(ifindex, hook), -failed);
    return {};
}

Result<void> detach_one(std::uint32_t ifindex, Hook hook, const Attached &one) {
    return one.kind == HookKind::tcx ? detach_tcx(ifindex, hook, one.program_id) : detach_clsact(ifindex, hook);
}

// Replaces `replaced` if given, else appends behind the other programs of the hook.
Result<void> attach_tcx(std::uint32_t ifindex, Hook hook, int program_fd, std::optional<std::uint32_t> replaced) {
    const ExpeditedRcu while_attaching;
    struct bpf_prog_attach_opts options {};
    options.sz = sizeof options;
    Fd old;
    if (replaced) {
        old = Fd(bpf_prog_get_fd_by_id(*replaced));
        if (!old)
            return system_error(ErrorCode::bpf, "opening the program to replace on tcx " + place(ifindex, hook), errno);
        options.flags = BPF_F_REPLACE;
        options.replace_prog_fd = old.get();
    }
    if (bpf_prog_attach_opts(program_fd, static_cast<int>(ifindex), tcx_type(hook), &options) != 0)
        return system_error(ErrorCode::bpf, "attaching to tcx " + place(ifindex, hook), errno);
    return {};
}

Result<void> attach_clsact(std::uint32_t ifindex, Hook hook, int program_fd) {
    bpf_tc_hook tc = tc_hook(ifindex, hook);
    tc.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
    if (const int failed = bpf_tc_hook_create(&tc); failed != 0 && failed != -EEXIST)
        return system_error(ErrorCode::bpf, "creating clsact on interface " + std::to_string(ifindex), -failed);
    else if (failed == -EEXIST && TRY(has_ingress_qdisc(ifindex)))
        return taken(ifindex); // it would accept a filter for either direction and run both on incoming packets
    tc = tc_hook(ifindex, hook);
    bpf_tc_opts options = tc_options();
    options.prog_fd = program_fd;
    options.flags = BPF_TC_F_REPLACE;
    if (const int failed = bpf_tc_attach(&tc, &options); failed != 0)
        return system_error(ErrorCode::bpf, "attaching to clsact " + place(ifindex, hook), -failed);
    return {};
}

// The new program comes first, so that the hook is never without one.
Result<void> attach_only_tcx(std::uint32_t ifindex, Hook hook, int program_fd) {
    Names names;
    const std::uint32_t wanted = TRY(program_facts(program_fd)).id;
    std::vector<Attached> others = TRY(attached_tcx(ifindex, hook, names));
    if (std::erase_if(others, [&](const Attached &one) { return one.program_id == wanted; }) == 0) {
        TRY(attach_tcx(ifindex, hook, program_fd,
                       others.empty() ? std::nullopt : std::optional(others.front().program_id)));
        if (!others.empty())
            others.erase(others.begin());
    }
    for (Attached &one : TRY(attached_clsact(ifindex, hook, names)))
        others.push_back(std::move(one));
    for (const Attached &one : others)
        TRY(detach_one(ifindex, hook, one));
    return {};
}

Result<void> attach_only_clsact(std::uint32_t ifindex, Hook hook, int program_fd) {
    TRY(attach_clsact(ifindex, hook, program_fd));
    Names names;
    if (has_tcx())
        for (const Attached &one : TRY(attached_tcx(ifindex, hook, names)))
            TRY(detach_one(ifindex, hook, one));
    return {};
}

Result<std::vector<Attached>> attached_as_either(std::uint32_t ifindex, Hook hook, Names &names, bool may_be_filter) {
    std::vector<Attached> ours;
    if (has_tcx())
        ours = TRY(attached_tcx(ifindex, hook, names));
    if (may_be_filter)
        for (Attached &one : TRY(attached_clsact(ifindex, hook, names)))
            ours.push_back(std::move(one));
    return ours;
}

} // namespace

Result<std::vector<Attached>> attached(std::uint32_t ifindex, Hook hook) {
    Names names;
    return attached_as_either(ifindex, hook, names, true);
}

Result<std::vector<std::uint32_t>> programs_on_hook(std::uint32_t ifindex, Hook hook) {
    std::vector<std::uint32_t> ids;
    if (has_tcx())
        ids = TRY(ids_on_tcx(ifindex, hook));
    if (const auto on_clsact = TRY(id_on_clsact(ifindex, hook)))
        ids.push_back(*on_clsact);
    return ids;
}

Result<bool> is_attached(std::uint32_t ifindex, Hook hook, int program_fd, const ProgramsOnHook &on_hook) {
    return std::ranges::count(TRY(on_hook(ifindex, hook)), TRY(program_facts(program_fd)).id) != 0;
}

Result<HookSurvey> HookSurvey::make(net::Netlink &host) { return HookSurvey(TRY(net::links_with_ingress_qdisc(host))); }

Result<std::vector<Attached>> HookSurvey::attached(std::uint32_t ifindex, Hook hook) {
    return attached_as_either(ifindex, hook, names_, can_have_filters(ifindex));
}

Result<std::vector<ForeignProgram>> HookSurvey::foreign_programs_on_tcx(std::uint32_t ifindex, Hook hook) {
    std::vector<ForeignProgram> foreign;
    if (!has_tcx())
        return foreign;
    const std::vector<Attached> all = TRY(all_on_tcx(ifindex, hook, names_));
    const auto our_first = std::ranges::find_if(all, is_ours, &Attached::name);
    for (auto one = all.begin(); one != all.end(); ++one)
        if (!is_ours(one->name))
            foreign.push_back({one->program_id, one->name, one < our_first});
    return foreign;
}

bool is_of_uplink(const Attached &one) {
    return one.name == PODLANE_PROGRAM_FROM_UPLINK || one.name == PODLANE_PROGRAM_TO_UPLINK;
}

HookKind preferred_kind() { return has_tcx() ? HookKind::tcx : HookKind::clsact; }

Result<HookKind> usable_kind(std::uint32_t ifindex, HookKind wanted) {
    if (wanted == HookKind::tcx || !TRY(has_ingress_qdisc(ifindex)))
        return wanted;
    if (has_tcx())
        return HookKind::tcx;
    Error error = taken(ifindex);
    error.message += ", and this kernel has no tcx (Linux 6.6 or newer has it)";
    return error;
}

Result<void> check_slot(std::uint32_t ifindex, HookKind kind) {
    return kind == HookKind::clsact && TRY(has_ingress_qdisc(ifindex)) ? Result<void>(taken(ifindex)) : Result<void>{};
}

Result<void> attach(std::uint32_t ifindex, Hook hook, HookKind kind, int program_fd) {
    return kind == HookKind::tcx ? attach_only_tcx(ifindex, hook, program_fd)
                                 : attach_only_clsact(ifindex, hook, program_fd);
}

Result<bool> detach(std::uint32_t ifindex, Hook hook) {
    const std::vector<Attached> ours = TRY(attached(ifindex, hook));
    for (const Attached &one : ours)
        TRY(detach_one(ifindex, hook, one));
    return !ours.empty();
}

} // namespace podlane
