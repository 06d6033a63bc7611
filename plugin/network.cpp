// SPDX-License-Identifier: MIT
#include "plugin/network.hpp"

#include "loader/own_addresses.hpp"
#include "loader/uplink.hpp"
#include "maps/entries.hpp"
#include "plugin/announcement.hpp"
#include "plugin/conntrack.hpp"
#include "plugin/egress_rules.hpp"
#include "plugin/history.hpp"
#include "plugin/isolation.hpp"
#include "plugin/limit_group.hpp"
#include "plugin/log.hpp"
#include "plugin/masquerade.hpp"
#include "plugin/network_keys.hpp"
#include "plugin/newest_cidrs.hpp"
#include "loader/net/route.hpp"
#include "plugin/node.hpp"
#include "plugin/others.hpp"
#include "plugin/state.hpp"
#include "loader/net/link.hpp"
#include "maps/clock.hpp"
#include "maps/errors.hpp"

#include <algorithm>
#include <memory>

namespace podlane {
namespace {

constexpr int kMostRounds = 16;

// An ADD that wants none, or wants less of them, leaves the uplinks of the network's other endpoints alone.
network merged(const network &there, const network &wanted) {
    const bool wants_less = wanted.has_uplinks == kJudgedUplinks && there.has_uplinks == kFastUplinks;
    const bool is_known = there.has_uplinks <= kJudgedUplinks;
    network entry = (wanted.has_uplinks == 0 && is_known) || wants_less ? there : wanted;
    entry.masquerade = there.masquerade | wanted.masquerade;
    return entry;
}

bool is_as_wanted(const network &there, const network &wanted) { return same_bytes(there, merged(there, wanted)); }

Result<std::optional<network>> find_entry(const Tables &tables, const network &wanted) {
    const std::uint32_t id = network_id(field_text(wanted.name));
    auto there = TRY(tables.networks.find(id));
    if (!there || field_text(there->name) == field_text(wanted.name))
        return there;
    if (network_id(field_text(there->name)) == id)
        return Error{ErrorCode::already_exists,
                     "networks \"" + std::string(field_text(wanted.name)) + "\" and \"" +
                         std::string(field_text(there->name)) + "\" have the same number",
                     "rename one of them"};
    return std::optional<network>{}; // another program has written it
}

Result<FoundUplinks> usable_uplinks(const NetworkPlan &plan, const Tables &tables) {
    FoundUplinks found = TRY(find_uplinks(plan.uplinks, tables.interfaces));
    if (found.refused && plan.entry.has_uplinks == kFastUplinks)
        return *std::move(found.refused);
    return found;
}

// The interfaces an ADD checks: the configured ones, else that of the default route of each family, which is looked up
// without reading all routes.
Result<std::vector<std::uint32_t>> expected_uplinks(const NetworkPlan &plan, const Tables &tables, net::Netlink &host) {
    if (!plan.uplinks.empty())
        return TRY(usable_uplinks(plan, tables)).ifindexes;
    std::vector<std::uint32_t> found;
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6})
        if (const auto route = TRY(net::default_route(host, family)))
            for (const std::uint32_t ifindex : route->links)
                if (std::ranges::find(found, ifindex) == found.end())
                    found.push_back(ifindex);
    return found;
}

Result<bool> uplinks_in_place(const std::string &root, const NetworkPlan &plan, const Tables &tables,
                              net::Netlink &host) {
    const UplinkTables uplinks = TRY(UplinkTables::open(root));
    for (const std::uint32_t ifindex : TRY(expected_uplinks(plan, tables, host)))
        if (!TRY(carries(uplinks, ifindex, plan.id)) && TRY(can_be_uplink(ifindex, tables.interfaces)))
            return false;
    return TRY(vanished_uplinks(uplinks)).empty();
}

Result<bool> in_place(const cni::Config &config, const NetworkPlan &plan, const Tables &tables, net::Netlink &host) {
    const auto there = TRY(find_entry(tables, plan.entry));
    if (!there || !is_as_wanted(*there, plan.entry) || !TRY(has_limit_group(tables, plan.limit_group)))
        return false;
    const auto cidrs = keys_of(plan);
    bool are_right = true;
    const auto known = TRY(cidrs_of(tables, plan.id, &are_right));
    if (!are_right || !are_in(cidrs, known) || !are_in(known, cidrs))
        return false;
    if (const auto kept = TRY(newest_cidrs(config)); kept && *kept != cidr_prefixes(cidrs))
        return false;
    if (plan.own_address_rules && TRY(find_own_address_rules()) != OwnAddressRules::all)
        return false;
    return plan.entry.has_uplinks == 0 || TRY(uplinks_in_place(config.bpffs, plan, tables, host));
}

// If the map alone is lost, the endpoints say by which tools the rules were made that go with the last of them.
Result<network> new_entry(const NetworkPlan &plan, const Tables &tables) {
    network entry = plan.entry;
    for (const auto &[key, one] : TRY(tables.endpoints.entries()))
        if (one.network == plan.id)
            entry.masquerade |= one.masquerade;
    return entry;
}

Result<void> put_in_place(const cni::Config &config, const NetworkPlan &plan, const Tables &tables) {
    const auto there = TRY(find_entry(tables, plan.entry));
    const auto kept = TRY(newest_cidrs(config)); // nothing replaces what cannot be read
    if (const auto cidrs = cidr_prefixes(keys_of(plan)); there)
        note_newest_cidrs(config, cidrs);
    else if (kept != cidrs) // of a network of the same name before
        forget_newest_cidrs(config, config.name);
    TRY(put_cidrs(tables, plan.id, keys_of(plan)));
    TRY(tables.networks.update(plan.id, there ? merged(*there, plan.entry) : TRY(new_entry(plan, tables))));
    TRY(put_limit_group(tables, plan.limit_group));
    if (plan.own_address_rules)
        TRY(put_own_address_rules());
    if (plan.entry.has_uplinks == 0)
        return {};
    const FoundUplinks found = TRY(usable_uplinks(plan, tables));
    for (const std::string &note : found.notes)
        log(cni::Log::Level::warning, note);
    if (found.ifindexes.empty() && !plan.cluster_cidrs.empty() && plan.entry.has_uplinks == kFastUplinks)
        log(cni::Log::Level::warning, "the network has no uplink now: other nodes are reached through the host stack");
    const bool changed = there && field_text(there->uplinks) != field_text(plan.entry.uplinks);
    return sync_uplinks(TRY(UplinkTables::open(config.bpffs)), plan.id, found.ifindexes,
                        hook_kind_of(plan.entry.attach), changed);
}

// The network as an ADD found it, before it changed it.
struct NetworkBefore {
    network entry;
    std::vector<cluster_cidr_key> cidrs;
    std::vector<std::uint32_t> uplinks;
    std::optional<LimitGroupBefore> limit_group; // none if the ADD has created it
    std::uint64_t changed_ns;                    // CLOCK_BOOTTIME
};

// Under the exclusive lock. What the ADD itself has inserted is not what it found.
Result<void> note_before(const NetworkPlan &plan, const Tables &tables, const std::string &root,
                         std::optional<NetworkBefore> &before) {
    const auto there = TRY(find_entry(tables, plan.entry));
    auto cidrs = TRY(cidrs_of(tables, plan.id));
    const auto wanted = keys_of(plan);
    if (!there || (before && is_as_wanted(*there, plan.entry) && are_in(wanted, cidrs) && are_in(cidrs, wanted)))
        return {};
    const Uplinks all = TRY(open_uplinks(root, Access::read_only));
    std::vector<std::uint32_t> uplinks;
    for (const auto &[ifindex, entry] : TRY(all.entries()))
        if (std::ranges::find(entry.networks, plan.id) != std::end(entry.networks))
            uplinks.push_back(ifindex);
    auto group = before ? before->limit_group : TRY(limit_group_before(tables, plan.limit_group));
    before = NetworkBefore{*there, std::move(cidrs), std::move(uplinks), std::move(group), boottime_ns()};
    return {};
}

// As the network's newest living pod was made with: no map holds it.
Result<std::vector<Prefix>> no_masquerade_before(const cni::Request &request, const NetworkPlan &plan) {
    const auto newest = newest_config(TRY(others_than(request)), std::string(field_text(plan.entry.name)));
    return newest ? newest->no_masquerade : std::vector<Prefix>{};
}

// The rules that masquerade as they were. Of a tool that the ADD was the first to use: sets without addresses match
// nobody, but a chain is jumped to from a subnet.
Result<void> restore_rules(const cni::Request &request, const NetworkPlan &plan, const NetworkBefore &before) {
    const std::string name(field_text(before.entry.name));
    if ((plan.entry.masquerade & ~before.entry.masquerade & ENDPOINT_MASQUERADE_IPTABLES) != 0)
        TRY(drop_masquerade(ENDPOINT_MASQUERADE_IPTABLES, name));
    const auto wanted = keys_of(plan);
    if (request.config.egress_in_cluster)
        TRY(rewrite_egress_rules(name, cidr_prefixes(before.cidrs)));
    const std::vector<Prefix> exempt = TRY(no_masquerade_before(request, plan));
    if (are_in(wanted, before.cidrs) && are_in(before.cidrs, wanted) && exempt == request.config.no_masquerade)
        return {};
    return rewrite_masquerade(before.entry.masquerade, name, cidr_prefixes(before.cidrs), exempt);
}

// The network's living pods were made with what was there before; if an ADD has succeeded since, its configuration
// counts.
Result<void> restore_network(const cni::Request &request, const NetworkPlan &plan, const NetworkBefore &before) {
    const std::string &root = request.config.bpffs;
    const Lock lock = TRY(Lock::exclusive(root));
    const Tables tables = TRY(Tables::open(root)); // an upgrade may have come first
    if (!TRY(tables.networks.find(plan.id)))
        return {};
    for (const AttachmentRecord &record : TRY(records_of(request.config).list())) {
        const bool is_own = record.container_id == request.container_id && record.ifname == request.ifname;
        if (!is_own && record.entry && record.entry->network == plan.id &&
            record.created_boottime_ns >= before.changed_ns && TRY(is_of_this_boot(record)) &&
            TRY(tables.endpoints.find(TRY(make_endpoint_key(record.container_id, record.ifname)))))
            return {}; // the record of one that failed goes last
    }
    std::vector<std::uint32_t> uplinks;
    for (const std::uint32_t ifindex : before.uplinks)
        if (TRY(can_be_uplink(ifindex, tables.interfaces)))
            uplinks.push_back(ifindex);
    network entry = before.entry;
    entry.masquerade |= plan.entry.masquerade & ENDPOINT_MASQUERADE_NFTABLES; // its table goes with the last endpoint
    Errors errors;
    errors.add(sync_uplinks(TRY(UplinkTables::open(root)), plan.id, uplinks, hook_kind_of(entry.attach), true));
    note_newest_cidrs(request.config, cidr_prefixes(before.cidrs));
    errors.add(put_cidrs(tables, plan.id, before.cidrs));
    errors.add(tables.networks.update(plan.id, entry));
    if (before.limit_group)
        errors.add(restore_limit_group(tables, *before.limit_group));
    errors.add(restore_rules(request, plan, before));
    return std::move(errors).result();
}

// Of an ADD that changed nothing but noMasquerade.
Result<void> restore_no_masquerade(const cni::Request &request, const NetworkPlan &plan) {
    if (plan.entry.masquerade == ENDPOINT_MASQUERADE_NONE)
        return {};
    const Lock lock = TRY(Lock::exclusive(request.config.bpffs));
    const Tables tables = TRY(Tables::open(request.config.bpffs)); // an upgrade may have come first
    const auto entry = TRY(tables.networks.find(plan.id));
    const std::vector<Prefix> exempt = TRY(no_masquerade_before(request, plan));
    if (!entry || exempt == request.config.no_masquerade)
        return {};
    return rewrite_masquerade(entry->masquerade, request.config.name, cidr_prefixes(TRY(cidrs_of(tables, plan.id))),
                              exempt);
}

// How the configuration wants packets to the outside rewritten on this node.
Result<endpoint_masquerade> masquerade_of(const cni::Config &config) {
    return config.ip_masq ? choose_masquerade() : Result<endpoint_masquerade>(ENDPOINT_MASQUERADE_NONE);
}

Error missing(std::string sentence) {
    return {ErrorCode::check_failed, std::move(sentence), "the network's next ADD or `podlanectl repair` restores it"};
}

} // namespace

Result<NodeFacts> network_facts(const cni::Config &config, const std::optional<EgressRoute> &egress_route) {
    return NodeFacts{.hook_kind = TRY(choose_hook_kind(config)),
                     .masquerade = TRY(masquerade_of(config)),
                     .egress_route = egress_route};
}

Result<NetworkPlan> plan_recorded_network(const cni::Config &config, const endpoint &record) {
    NodeFacts facts = recorded_facts(record);
    facts.hook_kind = TRY(choose_hook_kind(config)); // of the uplinks
    return plan_network(config, facts);
}

Result<void> enter_network(const cni::Request &request, const NetworkPlan &plan,
                           const std::optional<EgressRoute> &egress, const Tables &tables, net::Netlink &host,
                           Rollback &rollback) {
    const Step step(STEP_NETWORK);
    const std::string &root = request.config.bpffs;
    const auto before = std::make_shared<std::optional<NetworkBefore>>();
    rollback.add("preparing the network", [&tables, &request, root, plan, before]() -> Result<void> {
        Errors errors;
        if (*before)
            errors.add(restore_network(request, plan, **before));
        else
            errors.add(restore_no_masquerade(request, plan));
        errors.add(drop_network_if_unused(request, tables, plan.id, plan.limit_group.has_value()));
        return std::move(errors).result();
    });
    for (int round = 0; round < kMostRounds; ++round) {
        Lock shared = TRY(Lock::shared(root));
        TRY(tables.check_generation(root));
        const bool must_follow = round == 0 && may_be_behind(egress, plan.id, tables, host);
        if (!must_follow && TRY(in_place(request.config, plan, tables, host))) {
            TRY(track_connections(request.config));
            rollback.keep(std::move(shared));
            return {};
        }
        // One process may not wait for the exclusive lock while it holds the shared one.
        { const Lock released = std::move(shared); }
        const Lock exclusive = TRY(Lock::exclusive(root));
        TRY(tables.check_generation(root));
        TRY(note_before(plan, tables, root, *before));
        TRY(put_in_place(request.config, plan, tables));
        follow_uplink_if_changed(egress, plan.id, tables, root, host);
    }
    return Error{ErrorCode::try_again_later,
                 "network " + request.config.name + ": its uplinks were changed again each time they were set up",
                 "look for another program that changes the TC hooks of the uplinks or the default route"};
}

bool lacks_uplink_programs(const endpoint &record, const network &entry) {
    return entry.has_uplinks == 0 && (is_isolated(record) || (record.flags & INTERFACE_FAST_LOCAL) != 0);
}

Result<void> check_network(const cni::Request &request, const Tables &tables, const endpoint &record) {
    const cni::Config &config = request.config;
    const auto there = TRY(tables.networks.find(record.network));
    if (!there)
        return missing("the entry of network " + config.name + " in " PODLANE_MAP_NETWORKS " is gone");
    if (lacks_uplink_programs(record, *there))
        return Error{ErrorCode::check_failed, "network " + config.name + " has no programs on uplinks",
                     "`podlanectl repair` attaches them"};
    if (field_text(there->name) != config.name || there->has_uplinks > kJudgedUplinks ||
        (record.masquerade & ~there->masquerade) != 0)
        return missing("the entry of network " + config.name + " in " PODLANE_MAP_NETWORKS " is wrong");
    if (!TRY(has_cidrs(config, tables, record)))
        return missing("clusterCIDRs of network " + config.name + " are gone from " PODLANE_MAP_CIDRS);
    bool are_right = true;
    TRY(cidrs_of(tables, record.network, &are_right));
    if (!are_right)
        return missing("an entry of network " + config.name + " in " PODLANE_MAP_CIDRS " is wrong");
    if (has_egress_route(config) && TRY(find_own_address_rules()) != OwnAddressRules::all)
        return Error{ErrorCode::check_failed,
                     "the routing rules by which the programs know the node's own addresses are gone",
                     "the network's next ADD or `podlanectl repair` restores them"};
    const UplinkTables uplinks = TRY(UplinkTables::open(config.bpffs));
    for (const auto &[ifindex, entry] : TRY(uplinks.uplinks.entries())) {
        const bool ours = std::ranges::find(entry.networks, record.network) != std::end(entry.networks);
        const std::string name = ours ? TRY(net::link_name(ifindex)) : "";
        if (!name.empty() && !TRY(has_programs(uplinks, ifindex)))
            return Error{ErrorCode::check_failed, "the programs on uplink " + name + " are gone or not the pinned ones",
                         "the network's next ADD or `podlanectl uplink sync` restores them"};
    }
    if (TRY(uplink_without(config.bpffs, record.network, tables)) == 0)
        return {};
    const Lock lock = TRY(Lock::shared(config.bpffs)); // an ADD that edits "uplinks" writes one after the other
    const std::uint32_t without = TRY(uplink_without(config.bpffs, record.network, tables));
    if (without == 0)
        return {};
    return Error{ErrorCode::check_failed,
                 TRY(net::link_name(without)) + " should be an uplink of network " + config.name +
                     ", and has not its programs and entry",
                 "the network's next ADD or `podlanectl uplink sync` puts them there"};
}

} // namespace podlane
