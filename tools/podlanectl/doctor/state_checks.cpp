// SPDX-License-Identifier: MIT
// doctor: Podlane's maps, programs, pins and uplinks.
#include "loader/limit_group.hpp"
#include "loader/net/nftables.hpp"
#include "loader/node_netns.hpp"
#include "loader/object.hpp"
#include "loader/pins.hpp"
#include "loader/upgrade.hpp"
#include "loader/uplink.hpp"
#include "maps/text.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/doctor/masqueraded_check.hpp"
#include "tools/podlanectl/doctor/unused_network_check.hpp"
#include "tools/podlanectl/views/bandwidth.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/map.hpp"
#include "tools/podlanectl/views/reader.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace podlane::ctl::doctor {
namespace {

Result<void> look_at_maps(const NodeView &node, Findings &findings) {
    for (const MapReport &map : TRY(read_maps(node.world))) {
        const bool evicts = map.facts.type == BPF_MAP_TYPE_LRU_HASH || map.facts.type == BPF_MAP_TYPE_ARRAY;
        if (map.there && map.note.empty() && !evicts && map.entries * 10 >= std::uint64_t{map.facts.max_entries} * 9)
            report(findings, "map " + map.name +
                                 (map.entries < map.facts.max_entries ? " is nearly full: " : " is full: ") +
                                 std::to_string(map.entries) + " of " + std::to_string(map.facts.max_entries));
    }
    return {};
}

Result<void> look_at_map_versions(const NodeView &node, Findings &findings) {
    for (const std::string &name : TRY(maps_of_other_versions(node.world.bpffs)))
        report(findings, "map " + name + " is of another version of Podlane");
    return {};
}

// The kernel knows the tag only of what it has verified, which takes a quarter of a second: the builds are compared
// first.
Result<void> look_at_program_versions(const NodeView &node, Findings &findings) {
    if (TRY(is_current(node.world.bpffs)))
        return {};
    for (const ProgramFacts &own : TRY(embedded_programs())) {
        const Fd pinned = TRY(open_program(node.world.bpffs, own.name.c_str()));
        const ProgramFacts there = TRY(program_facts(pinned.get()));
        if (there.tag != own.tag)
            report(findings, "program " + own.name + " has tag " + there.tag + ", this podlanectl's has " + own.tag);
    }
    return {};
}

bool is_known_pin(std::string_view name) {
    return std::ranges::find(kMapNames, name) != kMapNames.end() ||
           std::ranges::find(kProgramNames, name) != kProgramNames.end() || name == PODLANE_PIN_PACING ||
           name == kNetnsLink;
}

Result<void> unlink_pin(const std::string &path) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT)
        return system_error(ErrorCode::bpf, "removing pin " + path, errno);
    return {};
}

Result<void> look_at_pins(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    const std::vector<std::string> others = TRY(maps_of_other_versions(root));
    for (const std::string &name : TRY(pin_names(live_directory(root))))
        if (!is_known_pin(name) && std::ranges::find(others, name) == others.end()) {
            const std::string path = pin_path(root, name);
            report(findings, path + " is not a pin of this version", [path] { return unlink_pin(path); });
        }
    if (const std::string fault = TRY(netns_fault(root)); !fault.empty())
        report(findings, fault, [root, directory = node.state_directory] { return restore_netns(root, directory); });
    if (TRY(leftovers(root)).empty())
        return {};                             // and no ADD has to wait
    const Lock lock = TRY(Lock::shared(root)); // a loading ADD holds it exclusively
    for (const std::string &left : TRY(leftovers(root)))
        report(findings, left + " was left by an ADD or upgrade that was killed while loading the programs",
               [root, left]() -> Result<void> {
                   const Lock alone = TRY(Lock::exclusive(root));
                   return remove_pins(left);
               });
    return {};
}

std::function<Result<void>()> syncing(const std::string &root) {
    return [root]() -> Result<void> {
        TRY(sync_all_uplinks(root));
        return {};
    };
}

// Even if the configuration no longer selects the interface: it carries networks as long as it is listed.
std::function<Result<void>()> reattaching(const std::string &root, std::uint32_t ifindex) {
    return [root, ifindex]() -> Result<void> {
        const Lock lock = TRY(Lock::exclusive(root));
        const UplinkTables tables = TRY(UplinkTables::open(root));
        const Networks networks = TRY(open_networks(root, Access::read_only));
        for (const std::uint32_t id : TRY(tables.uplinks.find(ifindex)).value_or(uplink{}).networks)
            if (const auto entry = id == 0 ? std::nullopt : TRY(networks.find(id)))
                TRY(add_uplink(tables, ifindex, id, hook_kind_of(entry->attach)));
        return {};
    };
}

Result<void> look_at_uplinks(const NodeView &node, Findings &findings) {
    for (const UplinkReport &one : node.uplinks)
        if (one.name.empty())
            report(findings, "uplink " + std::to_string(one.ifindex) + " is gone", syncing(node.world.bpffs));
        else if (!one.has_programs)
            report(findings, "the programs on uplink " + one.name + " are missing or not the pinned ones",
                   reattaching(node.world.bpffs, one.ifindex));
    return {};
}

// Those that have an Ethernet header: others cannot be uplinks.
bool is_tunnel(const net::Link &link) {
    constexpr std::array<std::string_view, 4> kKinds = {"vxlan", "geneve", "gretap", "ip6gretap"};
    return std::ranges::find(kKinds, link.kind) != kKinds.end();
}

// The remedy's table, whatever its rules are by now.
Result<bool> has_tunnel_rules() {
    auto netfilter = net::Netlink::open_netfilter();
    const auto there =
        netfilter ? net::has_rules(*netfilter, "tunnels", "pods") : Result<bool>(std::move(netfilter).error());
    return !there && net::lacks_nf_tables(there.error()) ? Result<bool>(false) : there;
}

Result<void> look_for_tunnels(const NodeView &node, Findings &findings) {
    for (const UplinkReport &one : node.uplinks)
        if (const auto link = TRY(net::find_link(*node.host, one.ifindex));
            link && is_tunnel(*link) && !TRY(has_tunnel_rules()))
            report(findings, "uplink " + link->name + " is a tunnel (" + link->kind +
                                 "), whose end on this node takes packets from pods as well");
    return {};
}

// Of networks that have one of their own: their pods have no other way out.
Result<void> look_for_uplinks_down(const NodeView &node, Findings &findings) {
    std::set<std::uint32_t> own;
    for (const auto &[key, route] :
         TRY(read_map<source_route_key, source_route>(node.world.bpffs, PODLANE_MAP_SOURCE_ROUTES)))
        own.insert(route.uplink);
    own.erase(0);
    for (const std::uint32_t ifindex : own)
        if (const auto link = TRY(net::find_link(*node.host, ifindex)); link && (link->flags & IFF_RUNNING) == 0)
            report(findings, "uplink " + link->name + " of pods " + (link->up ? "has no carrier" : "is down"), {},
                   link->up ? "connect it" : "ip link set " + link->name + " up");
    return {};
}

Result<void> look_for_uplinks(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    const Interfaces host_veths = TRY(open_interfaces(root, Access::read_only));
    const auto uplinks = TRY(read_map<std::uint32_t, uplink>(root, PODLANE_MAP_UPLINKS));
    for (const auto &[id, entry] : TRY(read_map<std::uint32_t, network>(root, PODLANE_MAP_NETWORKS))) {
        if (entry.has_uplinks == 0)
            continue;
        const auto found = TRY(find_uplinks(split<std::string>(field_text(entry.uplinks), " "), host_veths));
        if (found.refused && entry.has_uplinks == kFastUplinks)
            return *found.refused;
        for (const std::uint32_t ifindex : found.ifindexes) {
            const bool carried = std::ranges::any_of(uplinks, [&, network = id](const auto &one) {
                return one.first == ifindex &&
                       std::ranges::find(one.second.networks, network) != std::end(one.second.networks);
            });
            if (!carried)
                report(findings,
                       interface_name(ifindex) + " should be an uplink of network " +
                           std::string(field_text(entry.name)) + ", but is not",
                       syncing(root));
        }
    }
    return {};
}

// Entries of one map, with the interface they belong to.
struct OwnedEntry {
    std::uint32_t ifindex;
    std::function<Result<void>()> erase;
};

template <typename K, typename V, typename Owner>
Result<void> add_entries(const std::string &root, const char *map, Owner owner, std::vector<OwnedEntry> &all) {
    for (const auto &[key, value] : TRY(read_map<K, V>(root, map)))
        all.push_back({owner(key, value), [root, map, key = key]() -> Result<void> {
                           TRY(TRY(Map<K, V>::open(pin_path(root, map), Access::read_write)).remove(key));
                           return {};
                       }});
    return {};
}

struct OwnedMap {
    const char *name;
    Result<void> (*add)(const std::string &root, const char *map, std::vector<OwnedEntry> &all);
};

Result<void> add_counters(const std::string &root, const char *, std::vector<OwnedEntry> &all) {
    for (const std::uint32_t ifindex : TRY(TRY(open_counters(root, Access::read_only)).keys()))
        all.push_back({ifindex, [root, ifindex]() -> Result<void> {
                           TRY(TRY(open_counters(root, Access::read_write)).remove(ifindex));
                           return {};
                       }});
    return {};
}

template <typename V>
Result<void> add_by_ifindex(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<std::uint32_t, V>(
        root, map, [](std::uint32_t ifindex, const V &) { return ifindex; }, all);
}

Result<void> add_addresses(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<address_key, address>(
        root, map, [](const address_key &, const address &value) { return value.ifindex; }, all);
}

Result<void> add_sources(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<allowed_source_key, std::uint32_t>(
        root, map, [](const allowed_source_key &key, std::uint32_t) { return ntohl(key.ifindex); }, all);
}

Result<void> add_source_routes(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<source_route_key, source_route>(
        root, map, [](const source_route_key &key, const source_route &) { return key.ifindex; }, all);
}

Result<void> add_source_slots(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<source_slot_key, source_route>(
        root, map, [](const source_slot_key &key, const source_route &) { return key.ifindex; }, all);
}

Result<void> add_limit_states(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<limit_key, limit_state>(
        root, map, [](const limit_key &key, const limit_state &) { return key.ifindex; }, all);
}

Result<void> add_exempts(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<exempt_key, std::uint32_t>(
        root, map, [](const exempt_key &key, std::uint32_t) { return ntohl(key.ifindex); }, all);
}

Result<void> add_senders(const std::string &root, const char *map, std::vector<OwnedEntry> &all) {
    return add_entries<sender_key, std::uint32_t>(
        root, map, [](const sender_key &, std::uint32_t ifindex) { return ifindex; }, all);
}

constexpr std::array<OwnedMap, 13> kOwned = {{
    {PODLANE_MAP_INTERFACES, &add_by_ifindex<interface>},
    {PODLANE_MAP_ADDRESSES, &add_addresses},
    {PODLANE_MAP_COUNTERS, &add_counters},
    {PODLANE_MAP_KEPT_PATHS, &add_by_ifindex<kept_paths>},
    {PODLANE_MAP_BANDWIDTHS, &add_by_ifindex<bandwidth>},
    {PODLANE_MAP_SOURCES, &add_sources},
    {PODLANE_MAP_SOURCE_ROUTES, &add_source_routes},
    {PODLANE_MAP_SOURCE_SLOTS, &add_source_slots},
    {PODLANE_MAP_LIMITS, &add_limit_states},
    {PODLANE_MAP_EXEMPT, &add_exempts},
    {PODLANE_MAP_SENDERS, &add_senders},
    {PODLANE_MAP_ISOLATION, &add_by_ifindex<isolation>},
    {PODLANE_MAP_GROUP_CIDRS, &add_sources},
}};

// ADD records the endpoint before its other entries: an interface without a record after they were read is an orphan.
// Not so one that is there: of a pod that lives, the record alone may be lost, and without its entries the programs
// drop what it sends.
Result<void> look_for_orphans(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    std::vector<std::pair<const char *, OwnedEntry>> all;
    for (const OwnedMap &map : kOwned) {
        std::vector<OwnedEntry> entries;
        TRY(map.add(root, map.name, entries));
        for (OwnedEntry &entry : entries)
            all.emplace_back(map.name, std::move(entry));
    }
    std::set<std::uint32_t> known = {0};
    for (const auto &[ifindex, entry] : TRY(read_map<std::uint32_t, uplink>(root, PODLANE_MAP_UPLINKS)))
        known.insert(ifindex);
    for (const auto &[number, group] : TRY(read_map<std::uint32_t, limit_group>(root, PODLANE_MAP_LIMIT_GROUPS)))
        known.insert(number);
    for (const auto &[key, state] : TRY(read_map<limit_key, limit_state>(root, PODLANE_MAP_LIMITS)))
        known.insert(state.group); // its name may be lost
    for (const auto &[key, record] : TRY(read_map<endpoint_key, endpoint>(root, PODLANE_MAP_ENDPOINTS)))
        known.insert(record.ifindex);
    for (auto &[map, entry] : all)
        if (!known.contains(entry.ifindex) && !node.links.contains(entry.ifindex))
            report(findings,
                   "map " + std::string(map) + " has an entry of interface " + std::to_string(entry.ifindex) +
                       ", which belongs to no endpoint",
                   std::move(entry.erase));
    return {};
}

// Neither an ADD nor a DEL is under way while the lock is held exclusively.
Result<void> look_at_limit_groups(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    const Tables tables = TRY(Tables::open(root, Access::if_present));
    if (TRY(unused_limit_groups(tables)).empty())
        return {};
    const Lock lock = TRY(Lock::exclusive(root));
    for (const std::uint32_t number : TRY(unused_limit_groups(tables)))
        report(findings, "limit group number " + std::to_string(number) + " has no pod",
               [root, number]() -> Result<void> {
                   const Lock alone = TRY(Lock::exclusive(root));
                   const Tables now = TRY(Tables::open(root));
                   return TRY(unused_limit_groups(now)).contains(number) ? remove_limit_group(now, number)
                                                                         : Result<void>{};
               });
    return {};
}

Result<std::vector<EndpointEntry>> endpoints_without_limit_flags(const NodeView &node) {
    std::vector<EndpointEntry> all;
    for (const auto &[key, old] : node.endpoints) {
        const auto limits = TRY(node.tables->bandwidths.find(old.ifindex));
        const auto now = limits ? TRY(node.tables->endpoints.find(key)) : std::nullopt;
        if (now && now->ifindex == old.ifindex && !is_enforced(*now, *limits))
            all.emplace_back(key, *now);
    }
    return all;
}

// No change of a limit is under way while the lock is held.
Result<void> look_at_limit_flags(const NodeView &node, Findings &findings) {
    const std::string &root = node.world.bpffs;
    if (TRY(endpoints_without_limit_flags(node)).empty())
        return {};
    const Lock lock = TRY(Lock::shared(root));
    for (const auto &[key, record] : TRY(endpoints_without_limit_flags(node)))
        report(findings, "the limit of " + pod_words(key, record) + " in " PODLANE_MAP_BANDWIDTHS " is not enforced",
               [root, key = key] { return enforce_limits(root, key); });
    return {};
}

constexpr std::array<Check, 13> kStateChecks = {{
    {"map-full", Severity::wrong, "an ADD that finds a map full fails (error 102)",
     "podlanectl gc removes endpoints that are gone; else set a larger \"maxEndpoints\"", &look_at_maps},
    {"map-version", Severity::wrong,
     "another version of Podlane ran here, or runs beside this one: neither sees the other's entries",
     "podlanectl upgrade; or remove the pin once that version has no pods", &look_at_map_versions},
    {"program-version", Severity::wrong,
     "the programs in the kernel were loaded by another version, and stay until they are replaced",
     "podlanectl upgrade", &look_at_program_versions},
    {"pins", Severity::wrong, "a call was killed half-way, or another agent writes to the directory",
     "podlanectl doctor --fix", &look_at_pins},
    {"uplink", Severity::wrong,
     "the interface was recreated, or its hooks were cleared: traffic with other nodes takes the slow path through the "
     "host stack, and flows that it translates are not recognised",
     "podlanectl uplink sync (or doctor --fix)", &look_at_uplinks},
    {"uplink-new", Severity::wrong,
     "an interface appeared after the network's last ADD: its traffic takes the slow path",
     "podlanectl uplink sync "
     "(or doctor --fix)",
     &look_for_uplinks},
    {"tunnel", Severity::notice,
     "what a pod sends to the tunnel's end on a node comes out of it with any source: isolation and \"firstPacket\": "
     "\"direct\" take it for a packet of another node's pod",
     "keep pods from the ends of tunnels, on each node: nft add table inet tunnels; nft add chain inet tunnels pods "
     "'{ type filter hook prerouting priority raw; }'; nft add rule inet tunnels pods iifname 'cali*' udp dport "
     "'{ 4789, 6081, 8472 }' drop; nft add rule inet tunnels pods iifname 'cali*' meta l4proto "
     "'{ ipencap, ipv6, gre }' drop",
     &look_for_tunnels},
    {"uplink-down", Severity::notice,
     "it was set down or unplugged: pods of networks whose \"uplink\" it is reach nothing beyond the node", "",
     &look_for_uplinks_down},
    {"orphan", Severity::wrong, "an ADD or DEL was killed half-way: the entry is unused and wastes map space",
     "podlanectl doctor --fix", &look_for_orphans},
    {"limit-group", Severity::notice, "an ADD or DEL was killed half-way: the group is unused and wastes map space",
     "podlanectl doctor --fix, or the next DEL of a pod of its network", &look_at_limit_groups},
    {"unused-network", Severity::notice,
     "a call was killed half-way, or a record was lost: its rules and the programs on its uplinks stay",
     "podlanectl doctor --fix, or the next DEL of a pod of the network", &look_for_unused_networks},
    {"limit-flag", Severity::wrong,
     "a call of podlanectl bandwidth was killed half-way: the limit is listed, and the programs do not know of it",
     "podlanectl doctor --fix, or repeat podlanectl bandwidth", &look_at_limit_flags},
    {"masqueraded", Severity::wrong,
     "rules that were saved while other pods ran were restored, or another program added the address: pods that are "
     "masqueraded reach it under their own addresses, and whoever has it is masqueraded",
     "podlanectl doctor --fix", &look_at_masqueraded_addresses},
}};

} // namespace

std::span<const Check> state_checks() { return kStateChecks; }

} // namespace podlane::ctl::doctor
