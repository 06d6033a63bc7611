// SPDX-License-Identifier: MIT
#include "loader/lost.hpp"

#include "loader/host_veth.hpp"
#include "loader/pod_namespace.hpp"
#include "maps/abi/interface.h"
#include "maps/errors.hpp"

#include <set>
#include <utility>

namespace podlane {
namespace {

Result<bool> is_known(const Endpoints *endpoints, const std::string &container_id, const std::string &ifname) {
    if (endpoints == nullptr)
        return false;
    return TRY(endpoints->find(TRY(make_endpoint_key(container_id, ifname)))).has_value();
}

Result<std::vector<AttachmentRecord>> unknown_to_maps(std::vector<AttachmentRecord> records, bool living,
                                                      const Endpoints *endpoints, net::Netlink &host, Errors &unknown) {
    const ThisNode node = TRY(ThisNode::now());
    std::vector<AttachmentRecord> found;
    for (AttachmentRecord &record : records) {
        if (!record.entry || !node.has_made(record) || TRY(is_known(endpoints, record.container_id, record.ifname)))
            continue;
        auto lives = is_living(record, host);
        if (!lives)
            unknown.add(std::move(lives).error().context("container " + record.container_id + ", " + record.ifname));
        else if (*lives == living)
            found.push_back(std::move(record));
    }
    return found;
}

} // namespace

Result<bool> is_living(const AttachmentRecord &record, net::Netlink &host) {
    const endpoint &entry = *record.entry;
    if (entry.ifindex != 0)
        return TRY(find_host_veth(host, entry)).has_value();
    if ((entry.flags & INTERFACE_POD_RULES) == 0)
        return false;
    const auto pod = TRY(net::Namespace::find(record.netns));
    return pod && TRY(open_pod(*pod, entry, record.netns_cookie));
}

Result<std::vector<AttachmentRecord>> lost_attachments(std::vector<AttachmentRecord> records,
                                                       const Endpoints *endpoints, net::Netlink &host,
                                                       Errors &unknown) {
    return unknown_to_maps(std::move(records), true, endpoints, host, unknown);
}

Result<std::vector<AttachmentRecord>> dead_attachments(std::vector<AttachmentRecord> records,
                                                       const Endpoints *endpoints, net::Netlink &host,
                                                       Errors &unknown) {
    return unknown_to_maps(std::move(records), false, endpoints, host, unknown);
}

Result<std::vector<UnknownVeth>> unknown_veths(const std::string &state_directory, const Endpoints *endpoints,
                                               const std::map<std::uint32_t, net::Link> &links) {
    std::vector<UnknownVeth> unknown;
    for (const auto &[ifindex, link] : links) {
        const auto space = link.alias.rfind(' ');
        if (link.kind != "veth" || !link.alias.starts_with(kAliasPrefix) || space < kAliasPrefix.size())
            continue;
        UnknownVeth one{link.name, link.alias.substr(kAliasPrefix.size(), space - kAliasPrefix.size()),
                        link.alias.substr(space + 1)};
        if (!TRY(is_known(endpoints, one.container_id, one.ifname)))
            unknown.push_back(std::move(one));
    }
    if (unknown.empty())
        return unknown;
    const std::uint64_t node_netns = TRY(net::own_netns());
    std::set<std::pair<std::string, std::string>> recorded, torn;
    Errors unread; // counts as none
    for (const AttachmentRecord &record : TRY(list_all_records(state_directory, unread)))
        if (record.node_netns == node_netns)
            (record.is_torn && !record.entry ? torn : recorded).emplace(record.container_id, record.ifname);
    std::erase_if(unknown, [&](const UnknownVeth &one) { return recorded.contains({one.container_id, one.ifname}); });
    for (UnknownVeth &one : unknown)
        one.has_torn_record = torn.contains({one.container_id, one.ifname});
    return unknown;
}

} // namespace podlane
