// SPDX-License-Identifier: MIT
// doctor: the records on disk, alone and against the maps. These checks work without any pin.
#include "loader/lost.hpp"
#include "loader/settings.hpp"
#include "maps/fd.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/restore.hpp"
#include "plugin/torn_record.hpp"
#include "plugin/turn.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/doctor/lease_checks.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/namespaces.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <utility>

namespace podlane::ctl::doctor {
namespace {

// Nothing if there are no maps.
Result<std::optional<Endpoints>> known_endpoints(const std::string &root) {
    auto opened = open_endpoints(root, Access::read_only);
    if (!opened && opened.error().code != ErrorCode::missing)
        return std::move(opened).error();
    return opened ? std::optional(std::move(opened).value()) : std::nullopt;
}

// By state directory.
using AllRestored = std::map<std::string, Result<std::vector<Restored>>>;

// The first of these repairs restores all; the others have its result.
std::function<Result<void>()> restoring(const AttachmentRecord &record, const std::shared_ptr<AllRestored> &all) {
    return [root = record.root, directory = record.state_directory, id = record.container_id, ifname = record.ifname,
            all]() -> Result<void> {
        auto restored = all->find(directory);
        if (restored == all->end())
            restored = all->emplace(directory, restore_all(directory, root)).first;
        if (!restored->second)
            return restored->second.error();
        for (const Restored &one : *restored->second)
            if (one.failed && one.record.container_id == id && one.record.ifname == ifname)
                return *one.failed;
        return {};
    };
}

// None if the node is uninstalled, or is not, and the check is about the other; or if another version's maps have them.
Result<std::vector<AttachmentRecord>> lost_of(const NodeView &node, bool uninstalled) {
    const std::string &root = node.world.bpffs;
    if (node.other_version || TRY(AttachmentRecords(node.state_directory, root).is_uninstalled()) != uninstalled)
        return std::vector<AttachmentRecord>{};
    std::vector<AttachmentRecord> records = TRY(node.records);
    std::erase_if(records, [&](const AttachmentRecord &one) { return one.root != root; });
    const auto endpoints = TRY(known_endpoints(root));
    Errors unknown;
    auto lost = TRY(lost_attachments(std::move(records), endpoints ? &*endpoints : nullptr, *node.host, unknown));
    TRY(std::move(unknown).result());
    return lost;
}

std::string name_of(const AttachmentRecord &one, const endpoint_key &key) {
    const std::string host_ifname(field_text(one.entry->host_ifname));
    return pod_words(key, *one.entry) + (host_ifname.empty() ? ", " + one.ifname : " behind " + host_ifname);
}

Result<void> look_for_lost(const NodeView &node, Findings &findings) {
    const auto all = std::make_shared<AllRestored>();
    for (const AttachmentRecord &one : TRY(lost_of(node, false))) {
        const endpoint_key key = TRY(make_endpoint_key(one.container_id, one.ifname));
        report(findings, "endpoint " + name_of(one, key) + " has lost its entries in the maps", restoring(one, all));
    }
    return {};
}

Result<void> look_for_uninstalled(const NodeView &node, Findings &findings) {
    const auto all = std::make_shared<AllRestored>();
    for (const AttachmentRecord &one : TRY(lost_of(node, true))) {
        const endpoint_key key = TRY(make_endpoint_key(one.container_id, one.ifname));
        report(findings,
               "endpoint " + name_of(one, key) +
                   (one.entry->ifindex == 0 ? " has no entry in the maps since an uninstall"
                                            : " takes the slow path since an uninstall"),
               restoring(one, all));
    }
    return {};
}

Result<void> look_for_unknown(const NodeView &node, Findings &findings) {
    if (!node.unread_records) {
        report(findings, "records on disk count as none: " + node.unread_records.error().message, {},
               "remove what is there, or repair its file system (`dmesg`); what is not in the maps either, is restored "
               "by a new sandbox alone");
        findings.back().is_unchecked = true;
    }
    if (node.other_version)
        return {};
    const auto endpoints = TRY(known_endpoints(node.world.bpffs));
    for (const UnknownVeth &one :
         TRY(unknown_veths(node.state_directory, endpoints ? &*endpoints : nullptr, node.links)))
        report(findings, "interface " + one.name + " of container " + one.container_id + ", " + one.ifname +
                             (one.has_torn_record ? " is not in the maps, and its record on disk is torn"
                                                  : " is neither in the maps nor on disk"));
    return {};
}

std::string owner_words(const AttachmentRecord &record) {
    const auto arguments = cni::parse_arguments(record.args);
    const bool is_named = arguments && !arguments->pod.name.empty();
    return (is_named ? arguments->pod.ns + "/" + arguments->pod.name + ", " : "") + "container " + record.container_id;
}

std::string place_options(const AttachmentRecord &record) {
    return (record.root == PODLANE_ROOT ? "" : " --bpffs " + record.root) +
           (record.state_directory == kStateDirectory ? "" : " --state-dir " + record.state_directory);
}

// Of all roots: one that the configuration no longer names has no other view.
Result<void> look_for_waiting_leases(const NodeView &node, Findings &findings) {
    const ThisNode self = TRY(ThisNode::now());
    for (const AttachmentRecord &one : TRY(node.records)) {
        if (!waits_for_release(one) || !self.may_have_made(one))
            continue;
        const auto ipam = cni::find_ipam(one.config);
        const std::string plugin = ipam ? "IPAM plugin \"" + ipam->type + "\"" : "its IPAM plugin";
        report(findings,
               "the lease of " + owner_words(one) + " in network " + one.network + " waits for " + plugin +
                   (one.held_since_ns == 0 ? "" : " since " + output::utc_words(one.held_since_ns)),
               {},
               "install " + plugin + ", or repair it; then podlanectl lease release --container " + one.container_id +
                   place_options(one) + ", or the next GC");
    }
    return {};
}

// A runtime's GC is for one network: those of a network that was renamed are in none.
Result<void> look_for_dead(const NodeView &node, Findings &findings) {
    const std::string boot = TRY(boot_id());
    std::map<std::pair<std::string, std::string>, std::size_t> counts; // by network and place
    for (const AttachmentRecord &one : TRY(node.records))
        if (one.boot_id != boot && !one.only_lease)
            ++counts[{one.network, place_options(one)}];
    for (const auto &[of, count] : counts)
        report(findings,
               "attachments of an earlier boot are on record in network " + of.first + ": " + std::to_string(count), {},
               "podlanectl gc" + of.second);
    return {};
}

// As gc judges. Podlane keeps nothing of a container that died with its maps but what is on disk.
Result<void> look_for_dead_of_this_boot(const NodeView &node, Findings &findings) {
    if (node.other_version)
        return {};
    std::vector<AttachmentRecord> records = TRY(node.records);
    std::erase_if(records, [&](const AttachmentRecord &one) { return one.root != node.world.bpffs; });
    const auto endpoints = TRY(known_endpoints(node.world.bpffs));
    Errors unknown, hidden;
    const auto dead = TRY(dead_attachments(std::move(records), endpoints ? &*endpoints : nullptr, *node.host, unknown));
    TRY(std::move(unknown).result());
    if (dead.empty())
        return {};
    const auto namespaces = TRY(network_namespaces(hidden));
    std::map<std::pair<std::string, std::string>, std::size_t> counts; // by network and place
    for (const AttachmentRecord &one : dead) {
        const bool lives = is_among(namespaces, *one.entry, one.netns_cookie);
        if ((!lives && !shows_namespace_of(one, !hidden.none())) || TRY(is_call_under_way(one)))
            continue;
        if (lives)
            report(findings, "the host-side veth of " + owner_words(one) + ", " + one.ifname + " is gone", {},
                   kRecreateSandbox);
        else
            ++counts[{one.network, place_options(one)}];
    }
    for (const auto &[of, count] : counts)
        report(findings, "containers that are gone are on record in network " + of.first + ": " + std::to_string(count),
               {}, "podlanectl gc" + of.second);
    return {};
}

Result<void> look_for_unfinished(const NodeView &node, Findings &findings) {
    const ThisNode self = TRY(ThisNode::now());
    for (const AttachmentRecord &one : TRY(node.records))
        if (one.root == node.world.bpffs && self.has_made(one) && TRY(is_unfinished(one)))
            report(findings,
                   "the ADD of " + owner_words(one) + ", " + one.ifname + " in network " + one.network + " of " +
                       output::utc_words(one.created_ns) + " did not end",
                   {},
                   "a DEL or GC of the runtime; or, once its namespace " + one.netns + " is gone, podlanectl gc" +
                       place_options(one));
    return {};
}

// Those that were read as whole are not read again.
Result<bool> has_torn_records(const NodeView &node, const AttachmentRecords &records, const std::string &directory) {
    RecordNames whole;
    for (const AttachmentRecord &one : TRY(node.records))
        if (one.root == node.world.bpffs && one.state_directory == directory)
            whole.insert(record_file_name(one.container_id, one.ifname));
    std::vector<AttachmentRecord> torn;
    Errors unread; // reported already
    TRY(records.list(unread, &torn, whole));
    return !torn.empty();
}

Result<void> look_for_torn(const NodeView &node, Findings &findings) {
    for (const std::string &directory : std::set<std::string>{node.state_directory, kStateDirectory}) {
        const AttachmentRecords records(directory, node.world.bpffs);
        if (!TRY(has_torn_records(node, records, directory)))
            continue;
        const TornRecords torn = TRY(find_torn_records(directory, node.world.bpffs));
        for (const AttachmentRecord &one : torn.records) {
            const std::string path = records.directory() + "/" + record_file_name(one.container_id, one.ifname);
            if (TRY(is_call_under_way(one)) || access(path.c_str(), F_OK) != 0) // a DEL may have ended since
                continue;
            report(
                findings, "the record of container " + one.container_id + ", " + one.ifname + " is torn: " + path, {},
                torn.networks.empty() ? "a GC of the runtime; no other record names an IPAM plugin that podlanectl gc "
                                        "could have release the lease"
                                      : "podlanectl gc" + place_options(one) + "; or a GC of the runtime");
        }
    }
    return {};
}

// Whoever may write in the state directory may have made a link in it.
Fd open_directory(const std::string &path, bool may_be_link) {
    return Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (may_be_link ? 0 : O_NOFOLLOW)));
}

Result<void> close_directory(const std::string &path, bool may_be_link) {
    const Fd directory = open_directory(path, may_be_link);
    if (!directory || fchown(directory.get(), 0, 0) != 0 || fchmod(directory.get(), 0700) != 0)
        return system_error(ErrorCode::io_failure, "closing " + path, errno);
    return {};
}

Result<void> look_at_directories(const NodeView &node, Findings &findings) {
    std::set<std::string> directories{node.state_directory};
    std::set<std::string> roots{node.world.bpffs};
    for (const AttachmentRecord &one : TRY(node.records))
        roots.insert(one.root);
    for (const std::string &root : roots) {
        const std::string records = AttachmentRecords(node.state_directory, root).directory();
        directories.insert({records, records + "/.held"});
    }
    for (const std::string &path : directories) {
        constexpr mode_t kRights = 07777;
        struct stat facts {};
        const bool may_be_link = path == node.state_directory;
        const Fd directory = open_directory(path, may_be_link);
        if (!directory && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
            continue;
        if (!directory || fstat(directory.get(), &facts) != 0)
            return system_error(ErrorCode::io_failure, "reading directory " + path, errno);
        if (facts.st_uid == 0 && (facts.st_mode & kRights) == S_IRWXU)
            continue;
        std::array<char, 8> mode{};
        std::snprintf(mode.data(), mode.size(), "%04o", static_cast<unsigned>(facts.st_mode & kRights));
        report(
            findings,
            "directory " + path + " of records has mode " + mode.data() + " and belongs to user " +
                std::to_string(facts.st_uid),
            [path, may_be_link] { return close_directory(path, may_be_link); },
            "chown root " + path + "; chmod 0700 " + path);
    }
    return {};
}

// As STATUS judges. An ordinary user may write nowhere, and a directory of another user's is a finding already.
Result<void> look_whether_writable(const NodeView &node, Findings &findings) {
    const auto checked = AttachmentRecords(node.state_directory, node.world.bpffs).check();
    if (!checked && checked.error().system_errno != EACCES)
        report(findings, checked.error().message, {},
               checked.error().system_errno == EROFS ? "mount its file system for writing" : checked.error().hint);
    return {};
}

Result<void> look_at_settings_file(const NodeView &node, Findings &findings) {
    auto listed = TRY(NodeSettings::open(node.state_directory)).list();
    if (!listed && listed.error().code == ErrorCode::decode_failure)
        report(findings, listed.error().message, {}, listed.error().hint);
    else
        TRY(std::move(listed));
    return {};
}

constexpr std::array<Check, 12> kRecordChecks = {{
    {"lost", Severity::wrong,
     "pins were deleted or the BPF file system was unmounted: its packets pass through programs that nothing updates, "
     "and no new pod reaches it on the fast path",
     "podlanectl repair", &look_for_lost},
    {"uninstalled", Severity::notice,
     "podlanectl uninstall detached the programs and removed the maps: anti-spoofing, isolation and limits have ended",
     "delete the pod; or podlanectl repair, which loads Podlane again", &look_for_uninstalled},
    {"unknown", Severity::wrong, "maps and records were deleted, or torn, while the container was running",
     "if the configuration has another stateDir, name that with --state-dir; else delete the pod's sandbox; the "
     "runtime creates a new one",
     &look_for_unknown},
    {"waiting-lease", Severity::notice,
     "the IPAM plugin was not installed when the pod was deleted, or failed: nobody else gets the addresses", "",
     &look_for_waiting_leases},
    {"lease-file", Severity::wrong,
     "another program removed or changed what host-local wrote: it gives the address, or has given it, to another pod",
     "", &look_at_lease_files},
    {"earlier-boot", Severity::notice,
     "the pods died with the node, and the runtime has sent neither their DELs nor a GC of the network, which may have "
     "been renamed: nobody else gets the addresses",
     "podlanectl gc", &look_for_dead},
    {"dead", Severity::wrong,
     "the containers died without a DEL, or lost their interface, after the maps had lost their entries: nobody else "
     "gets their addresses, and their rules stay",
     "podlanectl gc", &look_for_dead_of_this_boot},
    {"unfinished", Severity::notice,
     "the plugin was killed, or could not release what it had, and the runtime has sent no DEL since: nobody else gets "
     "the addresses",
     "", &look_for_unfinished},
    {"torn-record", Severity::notice,
     "a power cut or a full disk tore the file, and neither the maps nor an interface know the container: nobody else "
     "gets the addresses that it may have",
     "", &look_for_torn},
    {"state-directory", Severity::wrong,
     "whoever can write there can remove records of attachments: their leases stay taken, and lost endpoints are not "
     "restored",
     "chown root DIR; chmod 0700 DIR", &look_at_directories},
    {"state-writable", Severity::wrong,
     "the disk is full or mounted read-only, or another program has created what is there: every ADD fails", "",
     &look_whether_writable},
    {"settings-file", Severity::wrong,
     "another program has written to it, or a power cut tore it: podlanectl uninstall cannot restore what ADDs changed",
     "", &look_at_settings_file},
}};

} // namespace

std::span<const Check> record_checks() { return kRecordChecks; }

} // namespace podlane::ctl::doctor
