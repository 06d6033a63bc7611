// SPDX-License-Identifier: MIT
#include "loader/expedited_rcu.hpp"
#include "loader/lost.hpp"
#include "loader/net/link.hpp"
#include "loader/net/link_group.hpp"
#include "loader/net/namespace.hpp"
#include "loader/pins.hpp"
#include "maps/clock.hpp"
#include "maps/entries.hpp"
#include "maps/errors.hpp"
#include "maps/tables.hpp"
#include "plugin/cni/ipam_config.hpp"
#include "plugin/endpoint.hpp"
#include "plugin/found.hpp"
#include "plugin/ipam.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network.hpp"
#include "plugin/plan.hpp"
#include "plugin/remains.hpp"
#include "plugin/remove.hpp"
#include "plugin/state.hpp"
#include "plugin/torn_record.hpp"
#include "plugin/turn.hpp"
#include "plugin/verbs.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace podlane {
namespace {

using Identity = std::pair<std::string, std::string>; // container ID, interface name

// Of this boot: the runtime's list cannot name it, or need not. In a time namespace a runtime's clock may be ahead: of
// a time to come, only its turn says it.
Result<bool> is_unlisted(const AttachmentRecord &record, const std::set<Identity> &valid, std::uint64_t began_ns) {
    const bool is_younger = record.created_boottime_ns >= began_ns && record.created_boottime_ns <= boottime_ns();
    return is_younger ||
           (!valid.contains({record.container_id, record.ifname}) && TRY(may_be_under_way(record, began_ns)));
}

// The maps, as far as they can be read.
struct Root {
    std::optional<Tables> tables;
    bool is_elsewhere = false; // they are another network namespace's, and left alone
    bool is_whole = true;      // and all of them could be opened
};

Root open_root(const std::string &root, std::uint32_t own_netns, Errors &errors) {
    if (auto shared = refuse_other_netns(root, own_netns); !shared) {
        errors.add(std::move(shared));
        return {.tables = std::nullopt, .is_elsewhere = true, .is_whole = false};
    }
    std::vector<Unread> unread;
    Root opened{.tables = Tables::open_readable(root, unread)};
    opened.is_whole = unread.empty();
    for (Unread &one : unread)
        errors.add(std::move(one.error));
    return opened;
}

struct Known {
    std::map<Identity, Found> all; // of the network, those of an earlier boot too: their leases are still taken
    std::set<Identity> read;       // the records of any network
    bool has_unlisted = false;     // of any network: attachments that the runtime's list cannot name
};

// Of a pod of another root, which another runtime's list may name: nothing but a lease can be left of it.
Result<bool> has_died_elsewhere(const AttachmentRecord &record, const ThisNode &node, net::Netlink &host) {
    if (!node.may_have_made(record) || record.held_until_ns != 0)
        return false;
    return record.only_lease || record.boot_id != node.boot || (record.entry && !TRY(is_living(record, host)));
}

// Times are CLOCK_BOOTTIME, which nobody sets.
Result<Known> known_attachments(const cni::Request &request, const Root &root, const std::set<Identity> &valid,
                                std::uint64_t began_ns, Errors &errors) {
    Known known;
    if (root.tables) {
        auto entries = root.tables->endpoints.entries();
        if (entries)
            for (const auto &[key, value] : *entries)
                if (field_text(value.network_name) == request.config.name)
                    known.all[{std::string(field_text(key.container_id)), std::string(field_text(key.ifname))}]
                        .ifindexes.insert(value.ifindex);
        errors.add(std::move(entries));
    }
    // After the maps: an ADD writes its record first. Those of other roots too: `bpffs` may have been edited since.
    const ThisNode node = TRY(ThisNode::now());
    net::Netlink host = TRY(net::Netlink::open());
    std::set<Identity> under_way;
    Errors unread;
    for (const AttachmentRecord &record : TRY(list_all_records(request.config.state_dir, unread))) {
        if (record.root != request.config.bpffs ? !TRY(has_died_elsewhere(record, node, host))
                                                : root.is_elsewhere && !node.may_have_made(record))
            continue;
        const Identity identity(record.container_id, record.ifname);
        known.read.insert(identity);
        if (record.boot_id == node.boot && TRY(is_unlisted(record, valid, began_ns)))
            under_way.insert(identity);
        else if (record.network == request.config.name) {
            Found &found = known.all[identity];
            found.add(record);
            const bool may_hang = record.boot_id == node.boot && !record.entry && !record.only_lease;
            found.has_hanging_add = found.has_hanging_add || (may_hang && TRY(is_add_under_way(record)));
        }
    }
    for (const Identity &identity : under_way) // also if another root has a record of its name
        known.all.erase(identity);
    if (!unread.none()) // of an ADD under way, which only its record distinguishes
        std::erase_if(known.all, [&](const auto &one) { return !known.read.contains(one.first); });
    known.has_unlisted = !under_way.empty() || !unread.none();
    errors.add(std::move(unread).result());
    return known;
}

using Dead = std::vector<std::pair<Identity, Found>>;

// As a DEL of the attachment would. false: it is left alone.
Result<bool> collect(cni::Request request, const Identity &identity, const Found &found) {
    std::tie(request.container_id, request.ifname) = identity;
    request.netns.clear();
    const auto turn = TRY(take_turn_of_found(request, found));
    if (!turn) {
        log(cni::Log::Level::info, has_come_since(request) + ": it is left alone");
        return false;
    }
    log(cni::Log::Level::info, "container " + request.container_id + ", " + request.ifname + " is gone: removing it");
    TRY(remove_attachment(request));
    return true;
}

// Returns whether one was left alone, which the runtime's list cannot name.
bool collect_all(const cni::Request &request, const Dead &dead, Errors &errors) {
    bool is_any_back = false;
    for (const auto &[identity, found] : dead) {
        const auto collected = collect(request, identity, found);
        if (!collected)
            errors.add(collected.error().context("removing container " + identity.first));
        else if (!*collected)
            is_any_back = true;
    }
    return is_any_back;
}

struct Removal {
    std::vector<std::uint32_t> ifindexes;
    std::vector<ip_addr> masqueraded; // by nftables
};

// Nothing leads to the addresses any more.
Result<void> add_to(Removal &removal, const endpoint &entry, const Tables &tables) {
    for (const ip_addr &addr : addresses_in(entry)) {
        const auto owner = TRY(tables.addresses.find({entry.network, addr}));
        if (!owner || owner->ifindex != entry.ifindex)
            continue;
        TRY(tables.addresses.remove({entry.network, addr}));
        if (entry.masquerade == ENDPOINT_MASQUERADE_NFTABLES)
            removal.masqueraded.push_back(addr);
    }
    removal.ifindexes.push_back(entry.ifindex);
    return {};
}

// The longest part of a removal is the kernel's wait until other CPUs no longer use an interface, or the elements of a
// set. So these are removed together, after the addresses that lead to them; everything else one attachment after the
// other.
Result<void> remove_interfaces(const cni::Config &config, const Dead &dead) {
    const Lock lock = TRY(Lock::shared(config.bpffs));
    std::vector<Unread> unread;                                      // reported already
    const auto tables = Tables::open_readable(config.bpffs, unread); // an upgrade may have come first
    if (!tables)
        return {};
    net::Netlink host = TRY(net::Netlink::open());
    Removal removal;
    for (const auto &[identity, found] : dead) {
        const auto entry = TRY(tables->endpoints.find(TRY(make_endpoint_key(identity.first, identity.second))));
        if (!entry || entry->mode == ENDPOINT_AFTER_MAIN || entry->ifindex == 0)
            continue;
        if (!found.ifindexes.contains(entry->ifindex)) // its container was started again
            continue;
        cni::Request of;
        std::tie(of.container_id, of.ifname) = identity;
        if (TRY(find_recorded_link(host, of, *entry)))
            TRY(add_to(removal, *entry, *tables));
    }
    const ExpeditedRcu while_removing;
    TRY(net::remove_links(host, removal.ifindexes));
    return stop_masquerading(ENDPOINT_MASQUERADE_NFTABLES, config.name, removal.masqueraded);
}

// Entries that lead to an interface of no endpoint: left by a version whose DEL forgot what it had not finished.
Result<void> erase_stale_addresses(const std::string &root, std::uint32_t network) {
    const auto lock = TRY(keep_upgrades_out(root));
    std::vector<Unread> unread;
    const auto tables = Tables::open_readable(root, unread); // an upgrade may have come first
    if (!unread.empty())
        return std::move(unread.front().error);
    if (!tables || !tables->endpoints.exists())
        return {}; // nothing says which interfaces are endpoints'
    std::set<std::uint32_t> owners;
    for (const auto &[key, value] : TRY(tables->addresses.entries()))
        if (key.network == network)
            owners.insert(value.ifindex);
    // After them: an ADD inserts its endpoint before its addresses.
    for (const auto &[key, record] : TRY(tables->endpoints.entries()))
        owners.erase(record.ifindex);
    for (const std::uint32_t owner : owners)
        TRY(erase_interface(*tables, owner));
    return {};
}

// Removes what the network's last DEL could not.
Result<void> clean_network(const cni::Request &request, const Tables &tables) {
    const std::uint32_t network = network_id(request.config.name);
    TRY(erase_stale_addresses(request.config.bpffs, network));
    constexpr bool kMayHaveHadLimitGroups = true;
    return drop_network_if_unused(request, tables, network, kMayHaveHadLimitGroups);
}

// ADDs may have come, and ended, while attachments were collected.
Result<bool> is_any_new(const cni::Request &request, const Known &known, const std::set<Identity> &valid,
                        std::uint64_t began_ns) {
    const std::string boot = TRY(boot_id());
    Errors unread;
    for (const AttachmentRecord &record : TRY(list_all_records(request.config.state_dir, unread)))
        if (record.root == request.config.bpffs &&
            (!known.read.contains({record.container_id, record.ifname}) ||
             (record.boot_id == boot && TRY(is_unlisted(record, valid, began_ns)))))
            return true;
    return !unread.none();
}

// The IPAM plugin would release leases of attachments that the runtime's list cannot name: then the next GC calls it.
// An ADD writes its record before it looks whether a GC has this turn.
Result<void> collect_leases(const cni::Request &request, const Known &known, const std::set<Identity> &valid,
                            std::uint64_t began_ns) {
    if (request.config.ipam_type.empty() || known.has_unlisted)
        return {};
    if (const auto missing = ipam::why_missing(request)) {
        log(cni::Log::Level::warning, missing->message + ": its GC is not run");
        return {};
    }
    const Fd turn = TRY(take_turn_of_gc(request.config));
    return TRY(is_any_new(request, known, valid, began_ns)) ? Result<void>{} : ipam::gc(request);
}

// Of the root's records, as they are before anything is collected: they name the other networks.
Result<TornRecords> torn_records_of(const cni::Request &request, const std::set<Identity> &valid) {
    TornRecords all;
    for (cni::Request &one : TRY(requests_with_lease(request, std::nullopt)))
        all.add_network(std::move(one));
    for (const std::string &directory : state_directories_of(request.config)) {
        TornRecords found = TRY(find_torn_records(directory, request.config.bpffs));
        for (cni::Request &one : found.networks)
            all.add_network(std::move(one));
        for (AttachmentRecord &one : found.records)
            if (!valid.contains({one.container_id, one.ifname}))
                all.records.push_back(std::move(one));
    }
    return all;
}

Result<void> collect_torn_records(TornRecords &torn) {
    Errors errors;
    for (const AttachmentRecord &one : torn.records) {
        const std::string container = "container " + one.container_id + ", " + one.ifname;
        log(cni::Log::Level::info, container + " is gone, and its record is torn: releasing its lease");
        auto why_kept = release_torn_record(one, torn);
        if (!why_kept)
            errors.add(std::move(why_kept).error().context("releasing the lease of container " + one.container_id));
        else if (*why_kept)
            log(cni::Log::Level::warning, "the torn record of " + container + " stays: " + **why_kept);
    }
    return std::move(errors).result();
}

} // namespace

Result<std::string> gc(const cni::Request &request) {
    const std::uint64_t began_ns = boottime_ns();
    Errors errors;
    const Root root = open_root(request.config.bpffs, TRY(net::own_netns()), errors);
    std::set<Identity> valid;
    for (const cni::ValidAttachment &one : request.config.valid_attachments)
        valid.emplace(one.container_id, one.ifname);
    const Known known = TRY(known_attachments(request, root, valid, began_ns, errors));
    Dead dead;
    for (const auto &[identity, found] : known.all)
        if (!valid.contains(identity))
            dead.emplace_back(identity, found);
    cni::Request removal = request;
    removal.config.valid_attachments.clear();
    removal.raw_config = cni::without_valid_attachments(request.raw_config);
    auto torn = torn_records_of(removal, valid);
    if (root.tables && dead.size() > 1)
        errors.add(remove_interfaces(request.config, dead));
    const bool is_any_back = collect_all(removal, dead, errors);
    errors.add(torn ? collect_torn_records(*torn) : Result<void>(torn.error()));
    errors.add(records_of(request.config).remove_unfinished());
    if (root.tables && root.is_whole)
        errors.add(clean_network(request, *root.tables));
    else if (root.is_whole)
        errors.add(drop_network_without_maps(request, std::nullopt));
    if (!is_any_back && !root.is_elsewhere)
        errors.add(collect_leases(request, known, valid, began_ns));
    TRY(std::move(errors).result());
    return std::string{};
}

} // namespace podlane
