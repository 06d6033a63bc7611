#include "plugin/remove.hpp"

#include "loader/edt.hpp"
#include "loader/expedited_rcu.hpp"
#include "loader/pins.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/history.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/announcement.hpp"
#include "loader/net/link.hpp"
#include "plugin/network.hpp"
#include "plugin/plan.hpp"
#include "maps/errors.hpp"

#include <algorithm>
#include <optional>

namespace podlane {
namespace {

Result<void> detach_programs(net::Netlink &host, const endpoint &record) {
    const Step step(STEP_PROGRAMS);
    const auto link = record.ifindex == 0 ? std::nullopt : TRY(net::find_link(host, record.ifindex));
    if (!link || link->name != field_text(record.host_ifname))
        return {};
    // Down, as nothing checks any more what the pod sends until the main plugin removes the interface.
    TRY(net::set_link(host, record.ifindex, {.up = false}));
    TRY(detach(record.ifindex, Hook::ingress));
    TRY(detach(record.ifindex, Hook::egress));
    if ((record.flags & INTERFACE_LIMIT_EDT) != 0)
        TRY(remove_fq(record.ifindex));
    return {};
}

// By name, which is a hash of the identity, and by the alias, which spells it out. A host end whose ADD died before it
// set the alias has none.
Result<std::optional<net::Link>> find_own_link(net::Netlink &host, const cni::Request &request) {
    auto link = TRY(net::find_link(host, host_ifname(request)));
    if (link && (link->kind != "veth" || (!link->alias.empty() && link->alias != alias_of(request))))
        link.reset();
    return link;
}

Result<void> remove_own_link(net::Netlink &host, const cni::Request &request, const endpoint *record) {
    const Step step(STEP_LINK);
    auto link = TRY(find_own_link(host, request));
    // The prefix of the name may have changed in the configuration since the ADD.
    if (!link && record != nullptr) {
        link = TRY(net::find_link(host, record->ifindex));
        if (link && (link->name != field_text(record->host_ifname) || link->alias != alias_of(request)))
            link.reset();
    }
    if (!link)
        return {};
    const ExpeditedRcu while_removing;
    TRY(net::remove_link(host, link->ifindex));
    return {};
}

Result<void> leave_uplink(const Tables &tables, const endpoint &record, net::Netlink &host) {
    if ((record.flags & INTERFACE_WAY) == 0)
        return {};
    for (const ip_addr &addr : std::span(record.addresses).first(record.address_count))
        if (const auto route = TRY(tables.source_routes.find({record.ifindex, addr})))
            TRY(withdraw_address(route->uplink, addr, host));
    return {};
}

// Keeps an upgrade from carrying entries over while they are being erased; nothing where there is no root.
std::optional<Lock> keep_upgrades_out(const std::string &root) {
    auto lock = Lock::shared(root);
    return lock ? std::optional(std::move(lock).value()) : std::nullopt;
}

// Entries in maps of another version would stay behind, and lead packets astray.
Result<void> refuse_other_versions(const std::string &root) {
    if (TRY(maps_of_other_versions(root)).empty())
        return {};
    return Error{ErrorCode::try_again_later, "the maps below " + root + " are of another version of Podlane",
                 "podlanectl upgrade brings them to this one's"};
}

} // namespace

Result<void> remove_attachment(const cni::Request &request) {
    const endpoint_key key = TRY(make_endpoint_key(request.container_id, request.ifname));
    net::Netlink host = TRY(net::Netlink::open());
    std::optional<Lock> lock = keep_upgrades_out(request.config.bpffs);
    auto tables = Tables::open(request.config.bpffs);
    if (!tables && tables.error().code == ErrorCode::missing) {
        TRY(refuse_other_versions(request.config.bpffs));
        tables = Tables::open(request.config.bpffs, Access::if_present);
    }
    if (!tables && tables.error().code != ErrorCode::missing)
        return std::move(tables).error();
    const auto record = tables ? TRY(tables->endpoints.find(key)) : std::optional<endpoint>{};
    Errors errors;
    // Nobody is led to the endpoint any more before its interface goes.
    const auto orphan = record ? std::optional<net::Link>{} : TRY(find_own_link(host, request));
    if (tables && record) {
        errors.add(leave_container(request, *tables, *record));
        errors.add(leave_uplink(*tables, *record, host));
        errors.add(erase_endpoint(*tables, key, *record));
    } else if (tables && orphan)
        errors.add(erase_interface(*tables, orphan->ifindex));
    if (record && record->mode == ENDPOINT_AFTER_MAIN)
        errors.add(detach_programs(host, *record));
    else
        errors.add(remove_own_link(host, request, record ? &*record : nullptr));
    if (record && record->masquerade != ENDPOINT_MASQUERADE_NONE)
        errors.add(stop_masquerading(record->masquerade, std::string(field_text(record->network_name)),
                                     std::span(record->addresses).first(record->address_count)));
    lock.reset();
    if (tables && (record || orphan))
        errors.add(drop_network_if_unused(request.config.bpffs, *tables,
                                          record ? record->network : network_id(request.config.name)));
    return std::move(errors).result();
}

} // namespace podlane
