// SPDX-License-Identifier: MIT
// doctor: the records on disk against the maps. These checks work without any pin.
#include "loader/lost.hpp"
#include "plugin/restore.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/views/decode.hpp"

#include <algorithm>
#include <array>

namespace podlane::ctl::doctor {
namespace {

// Nothing if there are no maps.
Result<std::optional<Endpoints>> known_endpoints(const std::string &root) {
    auto opened = open_endpoints(root, Access::read_only);
    if (!opened && opened.error().code != ErrorCode::missing)
        return std::move(opened).error();
    return opened ? std::optional(std::move(opened).value()) : std::nullopt;
}

// The first of these repairs restores all; the others find nothing left to do.
std::function<Result<void>()> restoring(const NodeView &node, const AttachmentRecord &record) {
    return [root = node.world.bpffs, directory = node.state_directory, id = record.container_id,
            ifname = record.ifname]() -> Result<void> {
        for (const Restored &one : TRY(restore_all(directory, root)))
            if (one.failed && one.record.container_id == id && one.record.ifname == ifname)
                return *one.failed;
        return {};
    };
}

// None if the node is uninstalled, or is not, and the check is about the other.
Result<std::vector<AttachmentRecord>> lost_of(const NodeView &node, bool uninstalled) {
    const AttachmentRecords records(node.state_directory, node.world.bpffs);
    if (TRY(records.is_uninstalled()) != uninstalled)
        return std::vector<AttachmentRecord>{};
    const auto endpoints = TRY(known_endpoints(node.world.bpffs));
    return lost_attachments(records, endpoints ? &*endpoints : nullptr, *node.host);
}

std::string name_of(const AttachmentRecord &one, const endpoint_key &key) {
    return pod_words(key, *one.entry) + " behind " + std::string(field_text(one.entry->host_ifname));
}

Result<void> look_for_lost(const NodeView &node, Findings &findings) {
    for (const AttachmentRecord &one : TRY(lost_of(node, false))) {
        const endpoint_key key = TRY(make_endpoint_key(one.container_id, one.ifname));
        report(findings, "endpoint " + name_of(one, key) + " has lost its entries in the maps", restoring(node, one));
    }
    return {};
}

Result<void> look_for_uninstalled(const NodeView &node, Findings &findings) {
    for (const AttachmentRecord &one : TRY(lost_of(node, true))) {
        const endpoint_key key = TRY(make_endpoint_key(one.container_id, one.ifname));
        report(findings, "endpoint " + name_of(one, key) + " takes the slow path since an uninstall",
               restoring(node, one));
    }
    return {};
}

Result<void> look_for_unknown(const NodeView &node, Findings &findings) {
    const auto endpoints = TRY(known_endpoints(node.world.bpffs));
    for (const UnknownVeth &one :
         TRY(unknown_veths(node.state_directory, endpoints ? &*endpoints : nullptr, *node.host)))
        report(findings, "interface " + one.name + " of container " + one.container_id + ", " + one.ifname +
                             " is neither in the maps nor on disk");
    return {};
}

constexpr std::array<Check, 3> kRecordChecks = {{
    {"lost", Severity::wrong,
     "pins were deleted or the BPF file system was unmounted: its packets pass through programs that nothing updates, "
     "and no new pod reaches it on the fast path",
     "podlanectl repair", &look_for_lost},
    {"uninstalled", Severity::notice,
     "podlanectl uninstall detached the programs and removed the maps: anti-spoofing, isolation and limits have ended",
     "delete the pod; or podlanectl repair, which loads Podlane again", &look_for_uninstalled},
    {"unknown", Severity::wrong, "maps and records were deleted while the container was running",
     "delete the pod's sandbox; the runtime creates a new one", &look_for_unknown},
}};

} // namespace

std::span<const Check> record_checks() { return kRecordChecks; }

} // namespace podlane::ctl::doctor
