// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/examine.hpp"

#include "loader/host_veth.hpp"
#include "loader/net/open_in_each.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/record.hpp"
#include "loader/upgrade.hpp"
#include "loader/wrong_pins.hpp"
#include "maps/entries.hpp"
#include "maps/errors.hpp"
#include "maps/parallel.hpp"
#include "plugin/reinstate.hpp"
#include "plugin/turn.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/namespaces.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <thread>

namespace podlane::ctl {
namespace {

using namespace doctor;

constexpr Check kPins{"loaded", Severity::wrong, "the pins were removed, replaced, or created by another version",
                      "podlanectl repair", nullptr};

constexpr Check kUnreadable{"loaded", Severity::wrong,
                            "a pin cannot be opened: endpoints, maps, programs and uplinks are not examined", "",
                            nullptr};

constexpr Check kUnseen{"pod-link", Severity::wrong, "a system call failed: nothing of the endpoint is examined",
                        "podlanectl doctor again, as root with CAP_SYS_ADMIN; if it lacked memory or files "
                        "(ulimit -n), with more of them",
                        nullptr};

// For root: an ordinary user sees no pin.
Error with_remedy(Error error) {
    if (!error.hint.empty())
        return error;
    if (error.system_errno == EROFS)
        error.hint = "mount the BPF file system read-write: mount -o remount,rw DIR";
    else if (error.system_errno == EACCES)
        error.hint = "if it is no BPF object (a directory, a file), remove it, then podlanectl repair; else a security "
                     "module "
                     "or the mount refuses it";
    else if (error.system_errno == EPERM)
        error.hint = "run as root with CAP_BPF and CAP_NET_ADMIN (not in a restricted container)";
    else
        error.hint = "podlanectl upgrade; or remove it, then podlanectl repair";
    return error;
}

// As an upgrade does it: maps and programs that are there continue to be used.
std::function<Result<void>()> completing_pins(const std::string &root) {
    return [root]() -> Result<void> {
        TRY(upgrade(root, false));
        return {};
    };
}

// A check that fails is a finding itself: nothing is passed over silently.
void add(Examined &examined, const Check &check, Result<void> looked, Findings findings, const EndpointView *endpoint) {
    ++examined.checks;
    if (!looked)
        findings.push_back({.what = "cannot be checked: " + looked.error().message,
                            .remedy = looked.error().hint,
                            .is_unchecked = true});
    for (Finding &finding : findings) {
        Row row{&check, std::move(finding)};
        if (endpoint != nullptr) {
            row.pod = pod_words(endpoint->key, endpoint->record);
            row.host_interface = endpoint->host_ifname();
        }
        examined.rows.push_back(std::move(row));
    }
}

void look_at_node(const NodeView &node, std::span<const Check> checks, Examined &examined) {
    for (const Check &check : checks) {
        Findings findings;
        Result<void> looked = check.node(node, findings);
        add(examined, check, std::move(looked), std::move(findings), nullptr);
    }
}

Result<std::optional<AttachmentRecord>> record_of(const NodeView &node, const endpoint_key &key) {
    const auto look_in = [&](const std::string &directory) {
        return AttachmentRecords(directory, node.world.bpffs)
            .find(std::string(field_text(key.container_id)), std::string(field_text(key.ifname)));
    };
    auto record = look_in(node.state_directory);
    if (record && !*record && node.state_directory != kStateDirectory) // `stateDir` may have been edited
        record = look_in(kStateDirectory);
    return record;
}

// Of an endpoint that is being added or deleted, or was deleted meanwhile, what is missing is not a finding.
Result<bool> is_settled(const NodeView &node, const EndpointEntry &entry) {
    const auto record = record_of(node, entry.first); // one that cannot be read names no call
    if (record && *record && TRY(is_call_under_way(**record)))
        return false;
    const auto now = TRY(TRY(open_endpoints(node.world.bpffs, Access::read_only)).find(entry.first));
    return now && now->ifindex == entry.second.ifindex;
}

using PodSockets = std::map<std::uint64_t, Result<net::Netlink>>; // by the namespace's inode
struct PodNamespaces {
    std::map<std::uint64_t, std::string> paths; // by the inode
    Result<void> hidden{};                      // others, which may be those of endpoints
};

// A socket in the namespace of each container that is found, or why there is none.
PodSockets open_pods(std::span<const EndpointEntry> entries, const PodNamespaces &namespaces) {
    PodSockets sockets;
    std::vector<net::Namespace> pods;
    for (const auto &[key, record] : entries) {
        const auto path = namespaces.paths.find(record.netns_inode);
        if (path == namespaces.paths.end())
            continue;
        auto pod = net::Namespace::find(path->second);
        if (!pod)
            sockets.emplace(record.netns_inode, std::move(pod).error());
        else if (*pod && (*pod)->inode() == record.netns_inode)
            pods.push_back(**std::move(pod));
    }
    auto opened = net::open_in_each(pods);
    for (std::size_t i = 0; i < pods.size(); ++i)
        sockets.emplace(pods[i].inode(), std::move(opened[i]));
    return sockets;
}

// A container with several interfaces has one socket: it stays with `sockets`.
Result<void> look_into_pod(EndpointView &view, PodSockets &sockets, const PodNamespaces &namespaces) {
    const auto found = sockets.find(view.record.netns_inode);
    if (!view.link && view.has_host_veth())
        return {};
    if (found == sockets.end() || !found->second) {
        view.unseen_pod = found == sockets.end() ? namespaces.hidden : Result<void>(found->second.error());
        return {};
    }
    if (!TRY(found->second->is_in(view.disk ? view.disk->netns_cookie : 0)))
        return {};
    view.namespace_path = namespaces.paths.at(view.record.netns_inode);
    view.pod = &*found->second;
    view.pod_link = TRY(net::find_link(*view.pod, view.ifname()));
    if (view.pod_link && view.pod_link->ifindex != view.record.pod_ifindex)
        view.pod_link.reset();
    return {};
}

Result<EndpointView> view_of(const NodeView &node, net::Netlink &host, HookSurvey &hooks, HostRoutes &routes,
                             const EndpointEntry &entry, PodSockets &sockets, const PodNamespaces &namespaces) {
    EndpointView view{node, host, hooks, routes, entry.first, entry.second};
    if (view.has_host_veth())
        view.link = TRY(find_host_veth(host, entry.second));
    if (auto disk = record_of(node, view.key))
        view.disk = *std::move(disk);
    else
        view.unread_record = std::move(disk).error();
    TRY(look_into_pod(view, sockets, namespaces));
    view.is_torn = view.disk && view.disk->is_torn;
    if (view.is_torn) // what it lacks would be taken for what is not to be there
        view.disk.reset();
    return view;
}

// The path that the runtime gave may be gone while the container lives.
AttachmentRecord by_found_namespace(const EndpointView &view) {
    AttachmentRecord record = *view.disk;
    if (!view.namespace_path.empty())
        record.netns = view.namespace_path;
    return record;
}

Examined look_at_endpoint(const EndpointView &view) {
    Examined own;
    for (const Check &check : endpoint_checks()) {
        if (check.name == kPlanCheck && !own.rows.empty())
            continue;
        Findings findings;
        Result<void> looked = check.endpoint(view, findings);
        for (Finding &finding : findings) {
            if (finding.by_record && view.disk)
                finding.repair = [record = by_found_namespace(view), living = view.node.living] {
                    return reinstate(record, *living);
                };
            if (finding.repair)
                finding.repair = [root = view.node.world.bpffs, key = view.key, record = view.record, disk = view.disk,
                                  repair = std::move(finding.repair)] {
                    return repair_living(root, key, record, disk, repair);
                };
        }
        add(own, check, std::move(looked), std::move(findings), &view);
    }
    return own;
}

void examine_endpoint(EndpointView view, Verifier &verifier, Examined &examined) {
    const bool is_verifiable = view.disk && view.pod != nullptr && (view.link || !view.has_host_veth());
    if (is_verifiable)
        view.verified = verify_recorded(*view.disk, view.record, *view.pod, verifier);
    if (is_verifiable && view.verified) {
        examined.checks += endpoint_checks().size();
        return;
    }
    Examined own = look_at_endpoint(view);
    examined.checks += own.checks;
    const auto settled = own.rows.empty() ? Result<bool>(true) : is_settled(view.node, {view.key, view.record});
    if (!settled || *settled)
        std::ranges::move(own.rows, std::back_inserter(examined.rows));
}

// By one thread: with sockets of its own, and each network compared once.
Result<Examined> examine_some(const NodeView &node, std::span<const EndpointEntry> rest,
                              const PodNamespaces &namespaces) {
    constexpr std::size_t kTogether = 32; // each has a descriptor or two
    Examined examined;
    net::Netlink host = TRY(net::Netlink::open());
    HookSurvey hooks = *node.hooks;
    HostRoutes routes(host);
    Verifier verifier(host, *node.tables,
                      [&](std::uint32_t ifindex, Hook hook) { return hooks.attached(ifindex, hook); });
    while (!rest.empty()) {
        const auto some = rest.first(std::min(rest.size(), kTogether));
        PodSockets sockets = open_pods(some, namespaces);
        for (const EndpointEntry &entry : some) {
            auto view = view_of(node, host, hooks, routes, entry, sockets, namespaces);
            const EndpointView named{node, host, hooks, routes, entry.first, entry.second};
            if (view)
                examine_endpoint(*std::move(view), verifier, examined);
            else
                add(examined, kUnseen, view.error(), {}, &named);
        }
        rest = rest.subspan(some.size());
    }
    return examined;
}

Result<void> look_at_endpoints(const NodeView &node, Examined &examined) {
    constexpr std::size_t kLeast = 64, kMostThreads = 8;
    Errors hidden;
    PodNamespaces namespaces{TRY(network_namespaces(hidden))};
    namespaces.hidden = std::move(hidden).result();
    const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
    const std::size_t each = std::max(kLeast, (node.endpoints.size() + threads - 1) / threads);
    std::vector<Examined> parts((node.endpoints.size() + each - 1) / each);
    std::vector<Work> works;
    for (std::size_t i = 0; i < parts.size(); ++i)
        works.emplace_back([&, i]() -> Result<void> {
            const auto rest = std::span<const EndpointEntry>(node.endpoints).subspan(i * each);
            parts[i] = TRY(examine_some(node, rest.first(std::min(rest.size(), each)), namespaces));
            return {};
        });
    TRY(run_parallel(works));
    for (Examined &part : parts) {
        examined.checks += part.checks;
        std::ranges::move(part.rows, std::back_inserter(examined.rows));
    }
    return {};
}

Result<std::uint32_t> pinned_id(const std::string &root, const char *program) {
    return TRY(program_facts(TRY(open_program(root, program)).get())).id;
}

// The next CNI call writes into the records what the programs have learned.
Result<void> take_learned_macs(NodeView &node) {
    for (auto &[key, record] : node.endpoints)
        if (const auto entry = TRY(node.live->interfaces.find(record.ifindex)))
            take_learned_mac(*entry, record);
    return {};
}

Result<void> read_pins(NodeView &node, const Scope &scope, bool only_settled) {
    const World &world = node.world;
    node.endpoints = TRY(selected_endpoints(scope.selection, world));
    Errors unread;
    if (only_settled)
        std::erase_if(node.endpoints, [&](const EndpointEntry &one) {
            auto settled = is_settled(node, one);
            const bool is_left_out = settled && !*settled;
            unread.add(std::move(settled));
            return is_left_out;
        });
    TRY(std::move(unread).result());
    node.uplinks = TRY(read_uplinks(world));
    node.live = TRY(LiveState::open(world.bpffs));
    node.tables = TRY(Tables::open(world.bpffs, Access::read_only));
    return take_learned_macs(node);
}

// false: what the checks of endpoints and maps need could not be read, which is a finding.
Result<bool> has_readable_pins(NodeView &node, const Scope &scope, bool only_settled, Examined &examined) {
    const std::string &root = node.world.bpffs;
    auto read = read_pins(node, scope, only_settled);
    if (!read && read.error().code == ErrorCode::missing && read.error().system_errno == 0)
        return std::move(read).error(); // no endpoint is as selected
    const auto right = refuse_wrong_pins(root);
    const bool has_wrong = !right && right.error().code == ErrorCode::plugin_not_available;
    if (has_wrong)
        add(examined, kPins, {}, {{right.error().message, completing_pins(root), {}}}, nullptr);
    else if (!right && read)
        add(examined, kPins, with_remedy(right.error()), {}, nullptr);
    if (read)
        return true;
    if (!has_wrong)
        add(examined, kUnreadable, with_remedy(std::move(read).error()), {}, nullptr);
    node.endpoints.clear();
    node.uplinks.clear();
    node.live.reset();
    node.tables.reset();
    return false;
}

Result<Examined> look(const Scope &scope, const World &world, bool only_settled) {
    NodeView node{world,
                  std::make_unique<net::Netlink>(TRY(net::Netlink::open())),
                  scope.state_directory,
                  scope.bin_dir,
                  scope.conf_dir,
                  podlane_networks_in(scope.conf_dir, scope.state_directory),
                  scope.cluster};
    Examined examined;
    const auto live = is_live(world.bpffs);
    node.loaded = live && *live;
    const bool is_absent = live && !*live;
    const auto pins = !live ? live.error() : *live ? check_pins(world.bpffs) : Result<void>{};
    if (!pins && pins.error().code == ErrorCode::plugin_not_available) {
        node.other_version = !TRY(maps_of_other_versions(world.bpffs)).empty();
        const char *remedy = node.other_version ? "podlanectl upgrade" : "";
        add(examined, kPins, {}, {{pins.error().message, completing_pins(world.bpffs), remedy}}, nullptr);
    } else if (!pins) {
        add(examined, kUnreadable, with_remedy(pins.error()), {}, nullptr);
    }
    const bool readable = node.loaded && pins && TRY(has_readable_pins(node, scope, only_settled, examined));
    examined.is_partial = !readable && !is_absent;
    for (net::Link &link : TRY(net::list_links(*node.host)))
        node.links.emplace(link.ifindex, std::move(link));
    node.hooks = std::make_unique<HookSurvey>(TRY(HookSurvey::make(*node.host)));
    look_at_node(node, host_checks(), examined);
    look_at_node(node, network_checks(), examined);
    look_at_node(node, foreign_checks(), examined);
    Errors unread;
    node.records = list_all_records(node.state_directory, unread);
    node.unread_records = std::move(unread).result();
    look_at_node(node, record_checks(), examined);
    if (readable || is_absent)
        look_at_node(node, fast_path_checks(), examined);
    if (!readable)
        return examined;
    look_at_node(node, state_checks(), examined);
    TRY(look_at_endpoints(node, examined));
    return examined;
} // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the node owns its socket by a unique_ptr

} // namespace

Result<Examined> doctor::examine(const Scope &scope, const World &world) {
    return examine_in_passes([&](bool only_settled) { return look(scope, world, only_settled); });
}

Result<LiveState> LiveState::open(const std::string &root) {
    LiveState live{TRY(open_interfaces(root, Access::read_only)), TRY(open_counters(root, Access::read_only)),
                   TRY(open_addresses(root, Access::read_only)), TRY(open_source_routes(root, Access::read_only)),
                   TRY(open_networks(root, Access::read_only))};
    for (const auto &[key, value] : TRY(read_map<allowed_source_key, std::uint32_t>(root, PODLANE_MAP_SOURCES)))
        ++live.allowed_sources[ntohl(key.ifindex)];
    live.from_pod_id = TRY(pinned_id(root, PODLANE_PROGRAM_FROM_POD));
    live.to_pod_id = TRY(pinned_id(root, PODLANE_PROGRAM_TO_POD));
    return live;
}

void doctor::report(Findings &findings, std::string what, std::function<Result<void>()> repair, std::string remedy) {
    findings.push_back({std::move(what), std::move(repair), std::move(remedy)});
}

} // namespace podlane::ctl
