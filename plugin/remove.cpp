// SPDX-License-Identifier: MIT
#include "plugin/remove.hpp"

#include "loader/edt.hpp"
#include "loader/expedited_rcu.hpp"
#include "loader/host_veth.hpp"
#include "loader/net/link.hpp"
#include "loader/pins.hpp"
#include "maps/clock.hpp"
#include "maps/errors.hpp"
#include "plugin/announcement.hpp"
#include "plugin/egress_rules.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/groups.hpp"
#include "plugin/held_lease.hpp"
#include "plugin/history.hpp"
#include "plugin/host_local.hpp"
#include "plugin/in_pod_rules.hpp"
#include "plugin/ipam.hpp"
#include "plugin/isolation.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/plan.hpp"
#include "plugin/remains.hpp"
#include "plugin/state.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace podlane {
namespace {

// From the host-side veth of another main plugin, which is set down: until that plugin's DEL removes it, nothing checks
// what the pod sends.
Result<void> detach_programs(net::Netlink &host, const endpoint &entry) {
    const Step step(STEP_PROGRAMS);
    if (!TRY(find_host_veth(host, entry)))
        return {};
    TRY(net::set_link(host, entry.ifindex, {.up = false}));
    for (const HookProgram &one : kPodPrograms)
        TRY(detach(entry.ifindex, one.hook));
    return remove_edt(entry.ifindex); // ours, which a call that failed may have left without a flag
}

// Nothing reaches the endpoint from here on.
Result<void> close(const Footprint &of, net::Netlink &host) {
    return of.entry.mode == ENDPOINT_AFTER_MAIN ? detach_programs(host, of.entry)
                                                : remove_host_veth(host, of.request, &of.entry);
}

// After a lost DEL, or if an IPAM plugin gives an address twice, it may be another endpoint's.
Result<std::vector<ip_addr>> addresses_of_no_other(const Footprint &of) {
    std::vector<ip_addr> own;
    for (const ip_addr &addr : addresses_in(of.entry)) {
        const auto owner = of.tables != nullptr && of.tables->addresses.exists()
                               ? TRY(of.tables->addresses.find({of.entry.network, addr}))
                               : std::nullopt;
        if (!owner || owner->ifindex == of.entry.ifindex)
            own.push_back(addr);
    }
    return own;
}

Result<void> leave_uplink(const Footprint &of, net::Netlink &host) {
    if ((of.entry.flags & INTERFACE_EGRESS_ROUTE) == 0)
        return {};
    for (const ip_addr &addr : TRY(addresses_of_no_other(of))) {
        std::uint32_t uplink = of.uplink;
        if (of.tables != nullptr)
            if (const auto route = TRY(of.tables->source_routes.find({of.entry.ifindex, addr})))
                uplink = route->uplink;
        if (uplink != 0)
            TRY(withdraw_address(uplink, addr, host));
    }
    return {};
}

Result<void> forget_masquerade(const Footprint &of) {
    if (of.entry.masquerade == ENDPOINT_MASQUERADE_NONE)
        return {};
    return stop_masquerading(of.entry.masquerade, std::string(field_text(of.entry.network_name)),
                             TRY(addresses_of_no_other(of)));
}

// Under the shared lock of the root: packets are no longer led to the endpoint when its interface goes. What could
// still reach an isolated one, or come from one whose egress is limited, is checked until nothing can.
// false: packets can still pass, and all that keeps them in bounds stays.
bool remove_from_node(const Footprint &of, net::Netlink &host, Errors &errors) {
    const bool has_bounds = is_isolated(of.entry) || of.has_egress_rules;
    if (has_bounds)
        if (auto closed = close(of, host); !closed) {
            errors.add(std::move(closed));
            return false;
        }
    const bool has_endpoints = of.tables != nullptr && of.tables->endpoints.exists();
    errors.add(leave_container(of.request, has_endpoints ? of.tables : nullptr, of.entry));
    errors.add(leave_uplink(of, host));
    if (of.tables != nullptr)
        errors.add(erase_endpoint(*of.tables, of.entry, of.of_add));
    if (!has_bounds)
        errors.add(close(of, host));
    errors.add(forget_masquerade(of));
    if (of.has_egress_rules)
        errors.add(leave_egress_rules(of.entry));
    return true;
}

// DEL may come without the namespace while it is still there, and with a configuration that was edited since the ADD.
// false: packets can still reach it.
bool remove_as_recorded(const Remains &remains, net::Netlink &host, Errors &errors) {
    const Tables *tables = remains.tables ? &*remains.tables : nullptr;
    if (!remains.entry) {
        if (tables != nullptr && remains.orphan)
            errors.add(erase_interface(*tables, remains.orphan->ifindex));
        // It is forgotten with its interface, which therefore stays, and carries nothing, until the lease is released.
        if (remains.keeps_interface())
            errors.add(net::set_link(host, remains.orphan->ifindex, {.up = false}));
        else if (remains.orphan)
            errors.add(remove_host_veth(host, remains.request));
        return true;
    }
    cni::Request request = remains.request;
    if (request.netns.empty() && remains.disk)
        request.netns = remains.disk->netns;
    // Nothing says whose its addresses are by now, and entries lead to them as long as they cannot be erased.
    if (tables != nullptr && !tables->addresses.exists() && !remains.has_all_maps) {
        errors.add(close({request, *remains.entry}, host));
        return false;
    }
    const auto recorded = remains.disk && has_prefixes(*remains.entry)
                              ? recorded_request(*remains.disk)
                              : Result<cni::Request>(Error{ErrorCode::missing, {}});
    return remove_from_node({request, *remains.entry, recorded ? &recorded->config : nullptr,
                             remains.disk ? remains.disk->uplink : 0, tables,
                             remains.disk ? remains.disk->has_egress_rules : request.config.egress_in_cluster},
                            host, errors);
}

// From here on no repair takes the attachment for a living one. An upgrade may have replaced the map.
Result<void> delete_endpoint_entry(const Remains &remains) {
    const cni::Request &request = remains.request;
    if (remains.is_elsewhere)
        return {};
    const Endpoints endpoints = TRY(open_endpoints(request.config.bpffs, Access::if_present));
    TRY(endpoints.remove(TRY(make_endpoint_key(request.container_id, request.ifname))));
    return endpoints.exists() ? Result<void>{} : refuse_other_versions(request.config.bpffs);
}

// The last step: from here on the attachment is unknown. While only the record knows it, an interface of another plugin
// is taken for one that lost its entries, and restored. false: an ADD has written to the record since it was found.
Result<bool> erase_records(const Remains &remains, bool lease_waits, bool is_last_round) {
    const cni::Request &request = remains.request;
    const auto lock = TRY(keep_upgrades_out(request.config.bpffs)); // and whoever changes records
    if (!is_last_round && !lease_waits && has_newer_record(remains))
        return false;
    TRY(delete_endpoint_entry(remains));
    if (!lease_waits)
        TRY(records_of(request.config).erase(request.container_id, request.ifname));
    return true;
}

// A repair may have found the attachment while it was being removed, and restored entries. Then it looks for the entry
// in endpoints_v1; so whichever of the two ends later removes them.
Result<void> look_behind_repairs(const Remains &remains, net::Netlink &host) {
    if (!remains.entry || remains.entry->ifindex == 0 || remains.is_elsewhere)
        return {};
    const std::string &root = remains.request.config.bpffs;
    if (!TRY(has_come_back(root, *remains.entry)))
        return {};
    const Tables tables = TRY(Tables::open(root, Access::if_present));
    return remove_again({remains.request, *remains.entry, nullptr, remains.disk ? remains.disk->uplink : 0, &tables,
                         remains.disk && remains.disk->has_egress_rules},
                        host);
}

// false: something is left.
Result<bool> remove_whatever_is_known(Remains &remains, const endpoint_key &key, net::Netlink &host, Errors &errors) {
    const auto lock = TRY(keep_upgrades_out(remains.request.config.bpffs));
    TRY(look_for_entries(remains, key, host, errors));
    const bool is_removed = remove_as_recorded(remains, host, errors);
    if (is_removed && remains.disk && !remains.disk->groups.empty() && remains.tables)
        if (const auto restored = restore_groups_of_others(remains.request, *remains.tables); !restored)
            log(cni::Log::Level::warning, "groups of the container's other interfaces: " + restored.error().message);
    return is_removed;
}

// Only the maps, the records of `stateDir` and the interfaces say who else is in the network: if a map cannot be read,
// or no configuration says where the records are, a later call leaves it.
Result<void> leave_network(const Remains &remains, const std::string &state_dir) {
    cni::Request request = remains.request;
    request.config.state_dir = state_dir; // where the others are, and in the default directory
    request.config.name = remains.disk ? remains.disk->network : request.config.name; // which may have been edited
    if (!remains.has_all_maps || (request.unreadable && !remains.disk))
        return {};
    const bool has_maps = remains.tables && remains.tables->addresses.exists();
    const bool is_earlier = remains.disk && !TRY(is_of_this_boot(*remains.disk));
    if (is_earlier)
        TRY(drop_restored_rules(request, *remains.disk, has_maps));
    if (!has_maps)
        return is_earlier ? Result<void>{} : drop_network_without_maps(request, remains.entry);
    return drop_network_if_unused(request, *remains.tables,
                                  remains.entry ? remains.entry->network : network_id(request.config.name),
                                  !remains.entry || (remains.entry->flags & INTERFACE_LIMIT_GROUP) != 0);
}

// Without a record, only the configuration says which IPAM plugin has the lease. By the entry in the maps, or by the
// interface, the next call knows that there is one.
Error unknown_lease(const Remains &remains, Error error) {
    error.message += std::string(", and no record says which IPAM plugin has the lease; ") +
                     (remains.keeps_interface() ? "the interface stays, and carries nothing" : "all else is removed");
    error.hint = std::string(remains.entry ? "a DEL or GC" : "a DEL") + " with the network's configuration releases it";
    return error;
}

Error waiting_lease(const cni::Request &request, Error error) {
    error.message = "its lease waits to be released: " + error.message;
    error.hint = "have IPAM plugin \"" + request.config.ipam_type +
                 "\" release it, or release it by hand and remove its record below " + request.config.state_dir;
    return error;
}

// A runtime repeats its DELs, and sends one for an ADD that failed: nothing is left then, whatever the IPAM plugin
// says. With the result of an ADD it sends the first DEL after one that succeeded.
bool has_no_lease(const Remains &remains, const Error &error) {
    const auto unheard_of = is_unheard_of(remains);
    if (remains.request.config.prev_result || !unheard_of || !*unheard_of)
        return false;
    log(cni::Log::Level::warning, error.message + ": nothing is known of the attachment, so it has no lease");
    return true;
}

// The configuration of the ADD says where the lease is; the runtime's may have been edited since. false: the lease has
// to wait, because the IPAM plugin of the ADD is not installed, or fails where that of the edited one succeeds. If it
// may not wait, that is an error.
Result<bool> release_lease(const Remains &remains, bool may_wait) {
    const cni::Request &given = remains.request;
    const bool is_unrecorded = may_have_unrecorded_lease(remains);
    if (!remains.disk && remains.entry && !is_unrecorded)
        return true; // its ADD has requested none
    if (!remains.disk && given.unreadable)
        return unknown_lease(remains, {ErrorCode::decode_failure, given.ignored.back()});
    const std::vector<cni::Request> requests = TRY(requests_with_lease(given, remains.disk));
    if (requests.empty() && is_unrecorded)
        return unknown_lease(
            remains, {ErrorCode::invalid_network_config, "no configuration names an IPAM plugin that Podlane calls"});
    Errors failed;
    bool waits = false;
    for (const cni::Request &request : requests) {
        const bool is_recorded = remains.disk && &request == &requests.front();
        if (auto missing = ipam::why_missing(request)) {
            if (is_unrecorded)
                return unknown_lease(remains, *std::move(missing));
            if (!may_wait && is_recorded)
                return waiting_lease(request, *std::move(missing));
            log(cni::Log::Level::warning, missing->message + ": its lease stays for now");
            waits = true;
            continue;
        }
        bool refused = false;
        auto released = ipam::remove(request, refused);
        if (released && remains.disk)
            released = remove_empty_leases(*remains.disk, request.config.ipam_timeout_s);
        if (released && is_recorded)
            released = check_released(*remains.disk);
        if (!released) {
            if (!refused || !has_no_lease(remains, released.error()))
                failed.add(std::move(released));
            continue;
        }
        if (auto before = std::move(failed).result(); !before) {
            if (!may_wait)
                return waiting_lease(requests.front(), std::move(before).error());
            log(cni::Log::Level::warning, before.error().message + ": its lease stays for now");
            waits = true;
        }
        return !waits;
    }
    TRY(std::move(failed).result());
    return !waits;
}

// false: it stays. One that is to be held stays too if something else could not be removed: the next DEL holds it.
// `stateDir`: where the next ADD looks for it.
Result<bool> settle_lease(Remains &remains, Lease lease, const std::string &state_dir) {
    const bool may_hold = lease == Lease::may_be_held && remains.disk && remains.request.config.state_dir == state_dir;
    const auto held = may_hold ? hold_lease(*remains.disk) : Result<bool>(false);
    if (!held)
        log(cni::Log::Level::warning, held.error().message + ": the lease is not held");
    return held && *held ? Result<bool>(false) : release_lease(remains, lease != Lease::must_not_wait);
}

Result<void> write_record(const cni::Config &config, const AttachmentRecord &record) {
    const auto lock = TRY(keep_upgrades_out(config.bpffs)); // and whoever changes records
    return records_of(config).write(record);
}

// A later DEL or GC releases it. A full disk must not keep a pod from going away: the record of its ADD names the lease
// as well, unless an interface that another plugin removes would be taken for one that lost its entries.
// false: it was to be held, but there is no room to say so; it is released.
Result<bool> keep_lease(const Remains &remains, AttachmentRecord record) {
    if (!record.only_lease && record.held_until_ns == 0)
        record.held_since_ns = realtime_ns(); // since when it waits
    record.only_lease = true;
    record.entry.reset();
    const auto written = write_record(remains.request.config, record);
    if (written)
        return true;
    log(cni::Log::Level::warning, written.error().message + ": its lease is not noted");
    if (record.held_until_ns != 0 && TRY(release_lease(remains, true)))
        return false;
    return remains.entry && remains.entry->mode == ENDPOINT_AFTER_MAIN ? Result<bool>(written.error()) : true;
}

// false: an ADD that goes on beside this call has made more than was found. After the last round it notices itself that
// its records are gone.
Result<bool> remove_what_is_found(const cni::Request &given, Lease lease, bool is_last_round) {
    const endpoint_key key = TRY(make_endpoint_key(given.container_id, given.ifname));
    Errors errors;
    net::Netlink host = TRY(net::Netlink::open());
    Remains remains = TRY(find_remains(given, key, host, errors));
    const cni::Request &request = remains.request;
    if (!TRY(remove_whatever_is_known(remains, key, host, errors))) {
        TRY(std::move(errors).result());
        return true; // the lease stays too: nobody else may get the address
    }
    errors.add(leave_network(remains, given.config.state_dir));
    auto released = settle_lease(remains, lease, given.config.state_dir);
    bool lease_waits = !released || !*released;
    // Only of what is on disk the next DEL knows which IPAM plugin has the lease.
    Errors unreleased;
    (errors.none() && remains.disk ? unreleased : errors).add(std::move(released));
    TRY(std::move(errors).result());
    {
        const auto lock = TRY(keep_upgrades_out(request.config.bpffs));
        if (!is_last_round && has_newer_record(remains))
            return false;
        TRY(delete_endpoint_entry(remains));
    }
    TRY(look_behind_repairs(remains, host));
    if (lease_waits && remains.disk)
        lease_waits = TRY(keep_lease(remains, *remains.disk));
    if (remains.keeps_interface()) // until here nothing else said that there is a lease
        TRY(remove_host_veth(host, request));
    if (!TRY(erase_records(remains, lease_waits, is_last_round)))
        return false;
    TRY(look_behind_repairs(remains, host));
    TRY(std::move(unreleased).result()); // the lease waits, and the runtime is to repeat its DEL
    return true;
}

} // namespace

Result<void> remove_host_veth(net::Netlink &host, const cni::Request &request, const endpoint *entry) {
    const Step step(STEP_LINK);
    auto link = entry != nullptr ? TRY(find_recorded_link(host, request, *entry)) : std::nullopt;
    if (!link)
        link = TRY(entry != nullptr ? find_own_link(host, request) : find_any_own_link(host, request));
    if (!link)
        return entry != nullptr ? remove_pod_end(request, *entry) : Result<void>{};
    const ExpeditedRcu while_removing;
    TRY(net::remove_link(host, link->ifindex));
    return {};
}

Result<void> remove_again(const Footprint &of, net::Netlink &host) {
    Errors errors;
    { // the lease may have a new owner, and no ADD is halfway under this lock
        const Lock alone = TRY(Lock::exclusive(of.request.config.bpffs));
        remove_from_node(of, host, errors);
    }
    errors.add(drop_network_if_unused(of.request, *of.tables, of.entry.network,
                                      (of.entry.flags & INTERFACE_LIMIT_GROUP) != 0));
    return std::move(errors).result();
}

Result<void> put_record(const Footprint &of, net::Netlink &host, Rollback &rollback) {
    const endpoint_key key = TRY(make_endpoint_key(of.request.container_id, of.request.ifname));
    TRY(of.tables->endpoints.insert(key, of.entry));
    rollback.add_record("recording the endpoint", [of, key]() -> Result<void> {
        TRY(of.tables->endpoints.remove(key));
        return {};
    });
    rollback.add("setting up the endpoint", [of, &host] {
        Errors errors;
        remove_from_node(of, host, errors);
        return std::move(errors).result();
    });
    return {};
}

Result<void> remove_attachment(const cni::Request &given, Lease lease) {
    constexpr int kMostRounds = 3;
    for (int round = 1; !TRY(remove_what_is_found(given, lease, round == kMostRounds)); ++round) {
    }
    return {};
}

} // namespace podlane
