// SPDX-License-Identifier: MIT
#include "plugin/remains.hpp"

#include "loader/host_veth.hpp"
#include "loader/net/namespace.hpp"
#include "loader/pin_again.hpp"
#include "loader/pod_namespace.hpp"
#include "loader/state_file.hpp"
#include "maps/abi/names.h"
#include "maps/file.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/entries.hpp"
#include "plugin/log.hpp"
#include "plugin/plan.hpp"
#include "plugin/state.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace podlane {
namespace {

// None if there are no maps at all.
Result<std::optional<Tables>> open_tables(const std::string &root, std::vector<Unread> &unread) {
    auto tables = Tables::open(root);
    if (tables)
        return std::optional(std::move(tables).value());
    TRY(refuse_other_versions(root));
    // Else entries stay in a map that programs have without its pin, and are there again with the pin.
    static_cast<void>(pin_again(root));
    return Tables::open_readable(root, unread);
}

// Whether something of the attachment or its network may be in a map that cannot be opened, for a later DEL.
bool may_hold(std::string_view map, const std::optional<endpoint> &entry) {
    if (map == PODLANE_MAP_WATCH)
        return false;
    const auto has = [&](std::uint32_t flags) { return !entry || (entry->flags & flags) != 0; };
    if (map == PODLANE_MAP_SOURCES)
        return !entry || entry->allowed_source_count != 0;
    if (map == PODLANE_MAP_SOURCE_ROUTES || map == PODLANE_MAP_SOURCE_SLOTS || map == PODLANE_MAP_KEPT_PATHS)
        return has(INTERFACE_PEERS | INTERFACE_EGRESS_ROUTE);
    if (map == PODLANE_MAP_EXEMPT)
        return has(INTERFACE_LIMIT_EXEMPT);
    if (map == PODLANE_MAP_LIMIT_GROUPS)
        return has(INTERFACE_LIMIT_GROUP);
    return map != PODLANE_MAP_GROUP_CIDRS || has(INTERFACE_ISOLATED_GROUP);
}

// The pins of another network namespace have other interfaces of these indexes: its maps are left alone.
Result<void> open_maps(Remains &remains, const endpoint_key &key, Errors &errors) {
    const std::string &root = remains.request.config.bpffs;
    const std::uint32_t own = TRY(net::own_netns());
    std::vector<Unread> unread;
    Errors failed;
    if (auto shared = refuse_other_netns(root, own); shared) {
        remains.tables = TRY(open_tables(root, unread));
    } else if (shared.error().code == ErrorCode::plugin_not_available) {
        log(cni::Log::Level::warning, shared.error().message + "; its maps are left as they are");
        remains.is_elsewhere = true;
    } else {
        return shared; // the lease stays too, as long as entries may lead to its addresses
    }
    if (remains.tables) {
        auto entry = remains.tables->endpoints.find(key);
        if (entry)
            remains.entry = *entry;
        else
            failed.add(std::move(entry));
    }
    if (!remains.entry && remains.disk && TRY(ThisNode::now()).has_made(*remains.disk))
        remains.entry = remains.disk->entry;
    for (Unread &one : unread)
        if (!one.is_replaced() || may_hold(one.map, remains.entry))
            failed.add(std::move(one.error));
        else
            log(cni::Log::Level::warning, one.error.message + ": nothing of the attachment is in it");
    remains.has_all_maps = failed.none();
    errors.add(std::move(failed).result());
    return {};
}

// The configuration's root, the default one, and those of this node's other attachments. One that cannot be read knows
// nothing.
std::optional<std::string> root_that_knows(const endpoint_key &key, const cni::Config &config, Errors &unread) {
    const auto own = net::own_netns();
    auto others = own ? roots_on_record(config.state_dir, *own, unread) : std::set<std::string>{};
    others.insert(PODLANE_ROOT);
    others.erase(config.bpffs);
    std::vector<std::string> roots{config.bpffs};
    roots.insert(roots.end(), others.begin(), others.end());
    for (const std::string &root : roots) {
        const auto endpoints = open_endpoints(root, Access::read_only);
        const auto found = endpoints ? endpoints->find(key) : Result<std::optional<endpoint>>(endpoints.error());
        if (found && *found)
            return root;
        if (!found && found.error().code != ErrorCode::missing)
            unread.add(found.error());
    }
    return std::nullopt;
}

// A torn one, or one of another version, is none to go by.
Result<bool> has_any_record(const std::string &state_dir, const cni::Request &request) {
    for (const std::string &root : TRY(names_in(state_dir))) {
        if (TRY(exists(state_dir + "/" + root + "/" + record_file_name(request.container_id, request.ifname))))
            return true;
    }
    return false;
}

// The number, and the other end's, may be those of another pod's by now.
bool is_recorded(const net::Link &link, const cni::Request &request, const endpoint &entry) {
    if (link.kind != "veth")
        return false;
    if (link.alias == alias_of(request) || !is_renamed(link, entry))
        return true;
    return link.peer_ifindex == entry.pod_ifindex && std::ranges::equal(link.mac, entry.host_mac) &&
           !link.alias.starts_with(kAliasPrefix);
}

template <typename Table, typename Keys, typename IsOwn>
Result<bool> has_any(const Result<Table> &table, const Keys &keys, IsOwn is_own) {
    if (!table)
        return table.error();
    for (const auto &key : keys)
        if (const auto value = table->exists() ? TRY(table->find(key)) : std::nullopt; value && is_own(*value))
            return true;
    return false;
}

} // namespace

Result<Remains> find_remains(const cni::Request &given, const endpoint_key &key, net::Netlink &host, Errors &errors) {
    auto record = find_record(given);
    Remains remains{given, record ? *record : std::nullopt};
    cni::Request &request = remains.request;
    if (remains.disk)
        complete(request, *remains.disk);
    else {
        Errors unread;
        const auto root = root_that_knows(key, request.config, unread);
        if (request.unreadable && !root && record && !TRY(find_any_own_link(host, request)))
            return Error{ErrorCode::decode_failure, request.ignored.back(),
                         "nothing is known of this container either"};
        request.config.bpffs = root.value_or(request.config.bpffs);
        if (!request.args.empty()) // an IPAM plugin is to accept them, whichever the ADD had
            request.args += ";IgnoreUnknown=1";
    }
    errors.add(std::move(record)); // the rest is removed, and it is read again by the next DEL
    return remains;
}

Result<void> look_for_entries(Remains &remains, const endpoint_key &key, net::Netlink &host, Errors &errors) {
    TRY(open_maps(remains, key, errors));
    if (!remains.entry)
        remains.orphan = TRY(find_any_own_link(host, remains.request));
    return {};
}

Result<bool> is_unheard_of(const Remains &remains) {
    const cni::Request &request = remains.request;
    if (remains.is_known() || remains.is_elsewhere || !remains.has_all_maps) // no interface has its alias then
        return false;
    for (const std::string &state_dir : {request.config.state_dir, std::string(kStateDirectory)})
        if (TRY(has_any_record(state_dir, request)))
            return false;
    Errors unread;
    const endpoint_key key = TRY(make_endpoint_key(request.container_id, request.ifname));
    if (root_that_knows(key, request.config, unread))
        return false;
    TRY(std::move(unread).result());
    return true;
}

bool may_have_unrecorded_lease(const Remains &remains) {
    if (remains.disk)
        return false;
    if (remains.entry)
        return remains.entry->mode == ENDPOINT_MAIN;
    return remains.orphan && !cni::is_without_ipam(remains.request.raw_config);
}

Result<bool> has_come_back(const std::string &root, const endpoint &entry) {
    const EndpointEntries entries = entries_of({}, entry, TRY(net::own_netns()));
    std::vector<address_key> addresses;
    for (const auto &[key, value] : entries.addresses)
        addresses.push_back(key);
    const auto is_entered = [](const interface &) { return true; };
    const auto leads_here = [&](const address &owner) { return owner.ifindex == entry.ifindex; };
    const auto is_owner = [&](std::uint32_t owner) { return owner == entry.ifindex; };
    return TRY(has_any(open_interfaces(root, Access::if_present), std::vector{entry.ifindex}, is_entered)) ||
           TRY(has_any(open_addresses(root, Access::if_present), addresses, leads_here)) ||
           TRY(has_any(open_senders(root, Access::if_present), entries.senders, is_owner));
}

bool has_newer_record(const Remains &remains) {
    const cni::Request &request = remains.request;
    const auto now = records_of(request.config).find(request.container_id, request.ifname);
    return now && *now && (!remains.disk || (*now)->created_boottime_ns != remains.disk->created_boottime_ns);
}

Result<std::optional<net::Link>> find_own_link(net::Netlink &host, const cni::Request &request) {
    auto link = TRY(net::find_link(host, host_ifname(request)));
    if (link && (link->kind != "veth" || (!link->alias.empty() && link->alias != alias_of(request))))
        link.reset();
    return link;
}

Result<std::optional<net::Link>> find_any_own_link(net::Netlink &host, const cni::Request &request) {
    if (auto link = TRY(find_own_link(host, request)))
        return link;
    for (net::Link &link : TRY(net::list_links(host)))
        if (link.kind == "veth" && link.alias == alias_of(request))
            return std::optional(std::move(link));
    return std::optional<net::Link>{};
}

Result<std::optional<net::Link>> find_recorded_link(net::Netlink &host, const cni::Request &request,
                                                    const endpoint &entry) {
    auto link = TRY(net::find_link(host, entry.ifindex));
    if (link && !is_recorded(*link, request, entry))
        link.reset();
    return link;
}

Result<void> remove_pod_end(const cni::Request &request, const endpoint &entry) {
    const auto pod = TRY(net::Namespace::find(request.netns));
    auto inside = pod ? TRY(open_pod(*pod, entry, request.netns_cookie)) : std::nullopt;
    if (!inside)
        return {};
    const auto link = TRY(net::find_link(*inside, entry.pod_ifindex));
    if (!link || link->kind != "veth" || !std::ranges::equal(link->mac, entry.pod_mac))
        return {};
    TRY(net::remove_link(*inside, link->ifindex));
    return {};
}

Result<std::optional<Lock>> keep_upgrades_out(const std::string &root) {
    auto lock = Lock::shared(root);
    if (lock)
        return std::optional(std::move(lock).value());
    const bool is_none = lock.error().code == ErrorCode::missing;
    return is_none ? Result<std::optional<Lock>>(std::nullopt) : std::move(lock).error();
}

} // namespace podlane
