// SPDX-License-Identifier: MIT
#include "plugin/others.hpp"

#include "loader/attach.hpp"
#include "loader/host_veth.hpp"
#include "loader/net/link.hpp"
#include "loader/net/namespace.hpp"
#include "loader/net/netlink.hpp"
#include "loader/own_addresses.hpp"
#include "maps/abi/interface.h"
#include "maps/errors.hpp"
#include "plugin/log.hpp"
#include "plugin/plan.hpp"
#include "plugin/state.hpp"

#include <algorithm>
#include <set>

namespace podlane {
namespace {

// Of an interface that another plugin made, nothing but the container knows the host-side veth then. 0: none.
Result<std::uint32_t> peer_in(const cni::Request &request, net::Netlink &host) {
    const auto pod = TRY(net::Namespace::find(request.netns));
    if (!pod) // and its interfaces are gone as well
        return 0U;
    net::Netlink inside = TRY(net::Netlink::open_in(*pod));
    const auto link = TRY(net::find_link(inside, request.ifname));
    const auto host_veth = link ? TRY(find_other_end(host, *link, *pod)) : std::nullopt;
    return host_veth ? host_veth->ifindex : 0U;
}

Result<bool> is_host_veth(const net::Link &link) {
    if (link.kind != "veth" || link.alias.starts_with(kAliasPrefix))
        return link.kind == "veth";
    return std::ranges::any_of(TRY(attached(link.ifindex, Hook::ingress)),
                               [](const Attached &one) { return one.name == PODLANE_PROGRAM_FROM_POD; });
}

Result<std::vector<AttachmentRecord>> living_of(std::vector<AttachmentRecord> records, const IsGone &is_gone) {
    net::Netlink host = TRY(net::Netlink::open());
    const ThisNode node = TRY(ThisNode::now());
    std::vector<AttachmentRecord> others;
    for (AttachmentRecord &record : records) {
        if (is_gone(record) || !record.entry || !node.has_made(record))
            continue;
        if (TRY(find_host_veth(host, *record.entry)))
            others.push_back(std::move(record));
    }
    std::ranges::stable_sort(others, std::ranges::greater(), &AttachmentRecord::created_boottime_ns);
    return others;
}

template <typename List> Result<std::vector<AttachmentRecord>> readable_in(const List &list, bool &are_all) {
    Errors unread;
    auto all = TRY(list(unread));
    are_all = unread.none();
    if (const auto failed = std::move(unread).result(); !failed)
        log(cni::Log::Level::error, "records of attachments count as none: " + failed.error().message);
    return all;
}

} // namespace

Result<std::vector<AttachmentRecord>> others_on_disk(const std::string &state_directory, const IsGone &is_gone) {
    return living_of(TRY(list_all_records(state_directory)), is_gone);
}

Result<std::vector<AttachmentRecord>> living_on_disk(const std::string &state_directory) {
    const auto nobody = [](const AttachmentRecord &) { return false; };
    const auto list = [&](Errors &unread) { return list_all_records(state_directory, unread); };
    bool are_all = true;
    return living_of(TRY(readable_in(list, are_all)), nobody);
}

Result<std::vector<AttachmentRecord>> readable_records(const AttachmentRecords &records, bool &are_all) {
    return readable_in([&](Errors &unread) { return records.list(unread); }, are_all);
}

IsGone is_request_of(const cni::Request &request) {
    return [&request](const AttachmentRecord &record) {
        return record.container_id == request.container_id && record.ifname == request.ifname;
    };
}

Result<std::vector<AttachmentRecord>> others_than(const cni::Request &request) {
    return others_on_disk(request.config.state_dir, is_request_of(request));
}

Result<std::vector<AttachmentRecord>> others_than(const cni::Request &request, const Endpoints &endpoints,
                                                  const std::function<bool(const endpoint &)> &is_known) {
    RecordNames known;
    for (const auto &[key, entry] : TRY(endpoints.entries()))
        if (is_known(entry))
            known.insert(
                record_file_name(std::string(field_text(key.container_id)), std::string(field_text(key.ifname))));
    Errors unread;
    auto all = TRY(list_all_records(request.config.state_dir, unread, request.config.bpffs, known));
    TRY(std::move(unread).result());
    return living_of(std::move(all), is_request_of(request));
}

Result<std::vector<AttachmentRecord>> others_elsewhere(const std::string &state_directory, const std::string &root) {
    return others_on_disk(state_directory, [&](const AttachmentRecord &one) { return one.root == root; });
}

Result<bool> has_unknown_others(const cni::Request &request, const Endpoints *endpoints,
                                const std::vector<AttachmentRecord> &others) {
    net::Netlink host = TRY(net::Netlink::open());
    std::set<std::uint32_t> known = {TRY(peer_in(request, host))};
    for (const AttachmentRecord &other : others)
        known.insert(other.entry->ifindex);
    if (endpoints != nullptr)
        for (const auto &[key, entry] : TRY(endpoints->entries()))
            known.insert(entry.ifindex);
    for (const net::Link &link : TRY(net::list_links(host)))
        if (!known.contains(link.ifindex) && link.alias != alias_of(request) && TRY(is_host_veth(link)))
            return true;
    return false;
}

Result<void> drop_own_address_rules(const std::string &state_directory, const IsGone &is_gone) {
    if (TRY(find_own_address_rules()) == OwnAddressRules::none)
        return {};
    const auto others = TRY(others_on_disk(state_directory, is_gone));
    const auto needs_them = [](const AttachmentRecord &record) {
        return (record.entry->flags & INTERFACE_EGRESS_ROUTE) != 0;
    };
    return std::ranges::any_of(others, needs_them) ? Result<void>{} : remove_own_address_rules();
}

} // namespace podlane
