// SPDX-License-Identifier: MIT
#include "tools/podlanectl/doctor/lease_checks.hpp"

#include "loader/lost.hpp"
#include "maps/errors.hpp"
#include "maps/file.hpp"
#include "maps/ip.hpp"
#include "maps/printable.hpp"
#include "plugin/cni/result.hpp"
#include "plugin/host_local.hpp"
#include "tools/podlanectl/views/decode.hpp"

#include <map>
#include <sstream>

namespace podlane::ctl::doctor {
namespace {

// A sentence's end, if the file does not keep the address for the recorded container. host-local writes its ID and, in
// a second line, the interface's name, which older versions leave out.
Result<std::optional<std::string>> lease_fault(const std::string &path, const AttachmentRecord &record) {
    using Fault = std::optional<std::string>;
    constexpr std::size_t kLargest = 4096;
    const auto text = read_regular_file(path, kLargest);
    if (!text && text.error().code == ErrorCode::missing)
        return Fault("is gone");
    if (!text && text.error().system_errno != 0)
        return text.error();
    if (!text)
        return Fault("cannot be read (" + text.error().message + ")");
    std::istringstream words(*text);
    std::string container, ifname;
    words >> container >> ifname;
    if (container.empty())
        return Fault("is empty");
    if (container == record.container_id && (ifname.empty() || ifname == record.ifname))
        return Fault();
    return Fault("names container " + printable(container) + (ifname.empty() ? "" : ", " + printable(ifname)));
}

// Of a pod that has been deleted meanwhile the lease is released.
Result<void> look_at_leases_of(const AttachmentRecord &record, const std::string &directory, net::Netlink &host,
                               Findings &findings, Errors &unread) {
    const auto lease = TRY(cni::parse_attachment(record.lease));
    for (const cni::Address &one : lease.addresses) {
        const std::string address = to_string(one.prefix.addr), path = directory + "/" + address;
        const auto fault = lease_fault(path, record);
        if ((fault && !*fault) || !TRY(is_living(record, host)))
            continue;
        if (!fault) {
            unread.add(fault.error());
            continue;
        }
        const std::string pod = pod_words(TRY(make_endpoint_key(record.container_id, record.ifname)), *record.entry);
        report(findings,
               "endpoint " + pod + " uses " + address + ", but the file of its lease " + **fault + ": " + path, {},
               "delete the sandbox of " + pod + ": the runtime creates a new one; or, if no other pod uses " + address +
                   ", write the lease file back: printf '%s\\r\\n%s' " + record.container_id + " " + record.ifname +
                   " > " + path);
    }
    return {};
}

} // namespace

Result<void> look_at_lease_files(const NodeView &node, Findings &findings) {
    const ThisNode self = TRY(ThisNode::now());
    std::map<std::string, std::optional<std::string>> directories; // by configuration, most of which are the same
    Errors unread;
    if (!node.records)
        return node.records.error();
    for (const AttachmentRecord &record : *node.records) {
        if (record.root != node.world.bpffs || !record.entry || record.lease.empty() || record.only_lease ||
            !self.has_made(record))
            continue;
        auto known = directories.find(record.config);
        if (known == directories.end())
            known = directories.emplace(record.config, lease_directory(record)).first;
        if (known->second)
            TRY(look_at_leases_of(record, *known->second, *node.host, findings, unread));
    }
    return std::move(unread).result();
}

} // namespace podlane::ctl::doctor
