// SPDX-License-Identifier: MIT
// map dump: the entries of each map in words, and the words that identify each.
#include "loader/pins.hpp"
#include "maps/abi/history.h"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/bandwidth.hpp"
#include "tools/podlanectl/views/counter.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/endpoint.hpp"
#include "tools/podlanectl/views/history.hpp"
#include "tools/podlanectl/views/map.hpp"
#include "tools/podlanectl/views/network.hpp"
#include "tools/podlanectl/views/path.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "tools/podlanectl/views/uplink.hpp"
#include "maps/nearest.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace podlane::ctl {
namespace {

// An entry with the names for its numbers.
template <typename K, typename V> struct Entry {
    K key;
    V value;
    std::string interface; // host-side veth
    std::string network;
};
using InterfaceEntry = Entry<std::uint32_t, interface>;
using AddressEntry = Entry<address_key, address>;
using SourceEntry = Entry<allowed_source_key, std::uint32_t>;
using BandwidthEntry = Entry<std::uint32_t, bandwidth>;
using SourceRouteEntry = Entry<source_route_key, source_route>;
using SourceSlotEntry = Entry<source_slot_key, source_route>;
using WatchEntry = Entry<std::uint32_t, watch>;
using IsolationEntry = Entry<std::uint32_t, isolation>;
using CidrEntry = Entry<cluster_cidr_key, std::uint32_t>;
using ForwardedEntry = Entry<flow_key, forwarded>;
using ExemptEntry = Entry<exempt_key, std::uint32_t>;
using LimitGroupEntry = Entry<std::uint32_t, limit_group>;
using SenderEntry = Entry<sender_key, std::uint32_t>;

// "10 Mbit/s" and the like; "-" for no limit.
Cell amount_cell(std::uint64_t amount, std::string (*words)(std::uint64_t)) {
    return {amount == 0 ? "-" : words(amount), amount};
}

constexpr std::array<Column<InterfaceEntry>, 8> kInterfaces = {{
    {{"INTERFACE", "", "host_interface"}, [](const InterfaceEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const InterfaceEntry &e) { return number_cell(e.key); }},
    {{"NETWORK", "", "network"}, [](const InterfaceEntry &e) { return text_cell(e.network); }},
    {{"IPV4", "", "ipv4"}, [](const InterfaceEntry &e) { return text_cell(ip_words(e.value.ipv4)); }},
    {{"IPV6", "", "ipv6"}, [](const InterfaceEntry &e) { return text_cell(ip_words(e.value.ipv6)); }},
    {{"LINK-LOCAL", "", "link_local"}, [](const InterfaceEntry &e) { return text_cell(ip_words(e.value.link_local)); }},
    {{"POD MAC", "", "pod_mac"}, [](const InterfaceEntry &e) { return text_cell(mac_words(e.value.pod_mac)); }},
    {{"FLAGS", "", "flags"}, [](const InterfaceEntry &e) { return list_cell(flag_words(e.value.flags)); }},
}};

constexpr std::array<Column<AddressEntry>, 8> kAddresses = {{
    {{"NETWORK", "", "network"}, [](const AddressEntry &e) { return text_cell(e.network); }},
    {{"ADDRESS", "", "address"}, [](const AddressEntry &e) { return text_cell(to_string(e.key.addr)); }},
    {{"INTERFACE", "", "host_interface"}, [](const AddressEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const AddressEntry &e) { return number_cell(e.value.ifindex); }},
    {{"MTU", "", "mtu", Align::right}, [](const AddressEntry &e) { return number_cell(e.value.mtu); }},
    {{"POD MAC", "", "pod_mac"}, [](const AddressEntry &e) { return text_cell(mac_words(e.value.pod_mac)); }},
    {{"HOST MAC", "", "host_mac"}, [](const AddressEntry &e) { return text_cell(mac_words(e.value.host_mac)); }},
    {{"FLAGS", "", "flags"}, [](const AddressEntry &e) { return list_cell(flag_words(e.value.flags)); }},
}};

constexpr std::array<Column<SourceEntry>, 3> kSources = {{
    {{"INTERFACE", "", "host_interface"}, [](const SourceEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const SourceEntry &e) { return number_cell(ntohl(e.key.ifindex)); }},
    {{"MAY SEND FROM", "", "prefix"}, [](const SourceEntry &e) { return text_cell(to_string(allowed_prefix(e.key))); }},
}};

constexpr std::array<Column<BandwidthEntry>, 6> kBandwidths = {{
    {{"INTERFACE", "", "host_interface"}, [](const BandwidthEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const BandwidthEntry &e) { return number_cell(e.key); }},
    {{"INGRESS", "", "ingress_rate_bits_per_s", Align::right},
     [](const BandwidthEntry &e) { return amount_cell(e.value.ingress_rate_bits_per_s, output::rate_words); }},
    {{"BURST", "", "ingress_burst_bits", Align::right},
     [](const BandwidthEntry &e) { return amount_cell(e.value.ingress_burst_bits, output::bits_words); }},
    {{"EGRESS", "", "egress_rate_bits_per_s", Align::right},
     [](const BandwidthEntry &e) { return amount_cell(e.value.egress_rate_bits_per_s, output::rate_words); }},
    {{"BURST", "", "egress_burst_bits", Align::right},
     [](const BandwidthEntry &e) { return amount_cell(e.value.egress_burst_bits, output::bits_words); }},
}};

constexpr std::array<Column<CidrEntry>, 2> kCidrs = {{
    {{"NETWORK", "", "network"}, [](const CidrEntry &e) { return text_cell(e.network); }},
    {{"PREFIX", "", "prefix"}, [](const CidrEntry &e) { return text_cell(to_string(prefix_of(e.key))); }},
}};

constexpr std::array<Column<SourceRouteEntry>, 7> kSourceRoutes = {{
    {{"INTERFACE", "", "host_interface"}, [](const SourceRouteEntry &e) { return text_cell(e.interface); }},
    {{"", "", "ifindex"}, [](const SourceRouteEntry &e) { return number_cell(e.key.ifindex); }},
    {{"SOURCE", "", "source"}, [](const SourceRouteEntry &e) { return text_cell(to_string(e.key.source)); }},
    {{"AS FROM", "", "as_from"}, [](const SourceRouteEntry &e) { return text_cell(interface_name(e.value.ifindex)); }},
    {{"UPLINK", "", "uplink"}, [](const SourceRouteEntry &e) { return text_cell(interface_name(e.value.uplink)); }},
    {{"GATEWAY", "", "gateway"}, [](const SourceRouteEntry &e) { return text_cell(ip_words(e.value.gateway)); }},
    {{"MTU", "", "mtu", Align::right}, [](const SourceRouteEntry &e) { return number_cell(e.value.mtu); }},
}};

constexpr std::array<Column<SourceSlotEntry>, 6> kSourceSlots = {{
    {{"INTERFACE", "", "host_interface"}, [](const SourceSlotEntry &e) { return text_cell(e.interface); }},
    {{"", "", "ifindex"}, [](const SourceSlotEntry &e) { return number_cell(e.key.ifindex); }},
    {{"FAMILY", "", "family"},
     [](const SourceSlotEntry &e) { return text_cell(e.key.is_ipv4 != 0 ? "ipv4" : "ipv6"); }},
    {{"NUMBER", "", "number", Align::right}, [](const SourceSlotEntry &e) { return number_cell(e.key.number); }},
    {{"SOURCE", "", "source"}, [](const SourceSlotEntry &e) { return text_cell(to_string(e.value.source)); }},
    {{"AS FROM", "", "as_from"}, [](const SourceSlotEntry &e) { return text_cell(interface_name(e.value.ifindex)); }},
}};

constexpr std::array<Column<ForwardedEntry>, 5> kForwarded = {{
    {{"PROTOCOL", "", "protocol"}, [](const ForwardedEntry &e) { return text_cell(protocol_name(e.key.protocol)); }},
    {{"SOURCE", "", "source"},
     [](const ForwardedEntry &e) { return text_cell(socket_words(e.key.source, e.key.source_port)); }},
    {{"DESTINATION", "", "destination"},
     [](const ForwardedEntry &e) { return text_cell(socket_words(e.key.destination, e.key.destination_port)); }},
    {{"CAME BY", "", "host_interface"}, [](const ForwardedEntry &e) { return text_cell(e.interface); }},
    {{"AT", "", "at_ns", Align::right}, [](const ForwardedEntry &e) { return number_cell(e.value.at_ns); }},
}};

constexpr std::array<Column<ExemptEntry>, 5> kExempts = {{
    {{"INTERFACE", "", "host_interface"}, [](const ExemptEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const ExemptEntry &e) { return number_cell(ntohl(e.key.ifindex)); }},
    {{"DIRECTION", "", "direction"},
     [](const ExemptEntry &e) { return text_cell(ntohl(e.key.direction) == LIMIT_INGRESS ? "ingress" : "egress"); }},
    {{"PREFIX", "", "prefix"}, [](const ExemptEntry &e) { return text_cell(to_string(prefix_of(e.key))); }},
    {{"SHAPED", "", "shaped"},
     [](const ExemptEntry &e) {
         const bool shaped = (e.value & PREFIX_SET) != 0;
         return Cell{shaped ? "yes" : "no", shaped};
     }},
}};

constexpr std::array<Column<LimitGroupEntry>, 5> kLimitGroups = {{
    {{"GROUP", "", "group"}, [](const LimitGroupEntry &e) { return text_cell(field_text(e.value.name)); }},
    {{"NETWORK", "", "network"}, [](const LimitGroupEntry &e) { return text_cell(e.network); }},
    {{"NUMBER", "", "number", Align::right}, [](const LimitGroupEntry &e) { return number_cell(e.key); }},
    {{"INGRESS RATE", "", "ingress_rate_bits_per_s", Align::right},
     [](const LimitGroupEntry &e) {
         return amount_cell(e.value.configured.ingress_rate_bits_per_s, &output::rate_words);
     }},
    {{"EGRESS RATE", "", "egress_rate_bits_per_s", Align::right},
     [](const LimitGroupEntry &e) {
         return amount_cell(e.value.configured.egress_rate_bits_per_s, &output::rate_words);
     }},
}};

constexpr std::array<Column<SenderEntry>, 4> kSenders = {{
    {{"NETNS", "", "netns_inode", Align::right}, [](const SenderEntry &e) { return number_cell(e.key.netns); }},
    {{"ADDRESS", "", "address"}, [](const SenderEntry &e) { return text_cell(to_string(e.key.addr)); }},
    {{"INTERFACE", "", "host_interface"}, [](const SenderEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const SenderEntry &e) { return number_cell(e.value); }},
}};

Cell flag_cell(bool flag) { return {flag ? "yes" : "no", flag}; }

// Of groups only keyed hashes are known: their names are in the records.
Cell hashes_cell(std::span<const __u64> hashes) {
    std::vector<std::string> texts;
    for (const __u64 hash : hashes) {
        std::array<char, 20> text{};
        std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
        if (hash != 0)
            texts.emplace_back(text.data());
    }
    return list_cell(texts);
}

constexpr std::array<Column<IsolationEntry>, 7> kIsolations = {{
    {{"INTERFACE", "", "host_interface"}, [](const IsolationEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const IsolationEntry &e) { return number_cell(e.key); }},
    {{"GROUPS", "", "groups"}, [](const IsolationEntry &e) { return hashes_cell(e.value.groups); }},
    {{"ACCEPTED", "", "accepted"}, [](const IsolationEntry &e) { return hashes_cell(e.value.accepted); }},
    {{"HOST", "", "host"}, [](const IsolationEntry &e) { return flag_cell((e.value.flags & ISOLATION_HOST) != 0); }},
    {{"OUTSIDE", "", "outside"},
     [](const IsolationEntry &e) { return flag_cell((e.value.flags & ISOLATION_OUTSIDE) != 0); }},
    {{"SINCE", "", "since_ns", Align::right}, [](const IsolationEntry &e) { return number_cell(e.value.since_ns); }},
}};

constexpr std::array<Column<SourceEntry>, 4> kGroupCidrs = {{
    {{"INTERFACE", "", "host_interface"}, [](const SourceEntry &e) { return text_cell(e.interface); }},
    {{"IFINDEX", "", "ifindex", Align::right}, [](const SourceEntry &e) { return number_cell(ntohl(e.key.ifindex)); }},
    {{"PREFIX", "", "prefix"}, [](const SourceEntry &e) { return text_cell(to_string(allowed_prefix(e.key))); }},
    {{"ACCEPTED", "", "accepted"}, [](const SourceEntry &e) { return flag_cell((e.value & PREFIX_SET) != 0); }},
}};

constexpr std::array<std::string_view, 3> kWatchModes = {"nothing", "drops", "all"};

constexpr std::array<Column<WatchEntry>, 4> kWatch = {{
    {{"WATCHED", "", "watched"},
     [](const WatchEntry &e) {
         return text_cell(e.value.mode < kWatchModes.size() ? kWatchModes.at(e.value.mode) : "unknown");
     }},
    {{"ONE IN", "", "one_in", Align::right}, [](const WatchEntry &e) { return number_cell(e.value.one_in); }},
    {{"BY", "", "pid", Align::right}, [](const WatchEntry &e) { return number_cell(e.value.pid); }},
    {{"LOST", "", "lost", Align::right}, [](const WatchEntry &e) { return number_cell(e.value.lost); }},
}};

std::uint32_t ifindex_of(std::uint32_t key, const auto &) { return key; }
std::uint32_t ifindex_of(std::uint32_t, const limit_group &) { return 0; }
std::uint32_t ifindex_of(const cluster_cidr_key &, std::uint32_t) { return 0; }
std::uint32_t ifindex_of(const source_route_key &key, const source_route &) { return key.ifindex; }
std::uint32_t ifindex_of(const source_slot_key &key, const source_route &) { return key.ifindex; }
std::uint32_t ifindex_of(const allowed_source_key &key, std::uint32_t) { return ntohl(key.ifindex); }
std::uint32_t ifindex_of(const exempt_key &key, std::uint32_t) { return ntohl(key.ifindex); }
std::uint32_t ifindex_of(const flow_key &, const forwarded &value) { return value.came_by; }
std::uint32_t ifindex_of(const sender_key &, std::uint32_t ifindex) { return ifindex; }
std::uint32_t ifindex_of(const address_key &, const address &value) { return value.ifindex; }

// Secret values are left out: the seed of the hash of groups.
bool is_secret(const auto &, const auto &) { return false; }
bool is_secret(std::uint32_t key, const isolation &) { return key == 0; }

std::uint32_t network_in(const auto &, const auto &) { return 0; }
std::uint32_t network_in(std::uint32_t, const limit_group &value) { return value.network; }
std::uint32_t network_in(const cluster_cidr_key &key, std::uint32_t) { return podlane::network_of(key); }
std::uint32_t network_in(std::uint32_t, const interface &value) { return value.network; }
std::uint32_t network_in(const address_key &key, const address &) { return key.network; }

template <typename K, typename V, std::size_t N>
Result<output::Table> dump(const Selection &selection, const World &world, std::string_view name,
                           const std::array<Column<Entry<K, V>>, N> &columns) {
    const auto networks = network_names(world);
    const Chosen chosen = TRY(Chosen::of(selection, world));
    std::vector<Entry<K, V>> entries;
    for (const auto &[key, value] : TRY(read_map<K, V>(world.bpffs, name)))
        if (!is_secret(key, value) && chosen.has(ifindex_of(key, value), network_in(key, value)))
            entries.push_back(
                {key, value, interface_name(ifindex_of(key, value)), network_words(networks, network_in(key, value))});
    return output::make_table(columns, entries);
}

Result<output::Table> dump_endpoints(const Selection &selection, const World &world) {
    return endpoint_table(TRY(selected_endpoints(selection, world)), world);
}

Result<output::Table> counters_of(const Selection &selection, const World &world, bool zeros) {
    Result<std::vector<EndpointEntry>> entries = selected_endpoints(selection, world);
    if (!entries && !selection.selects_all())
        return std::move(entries).error();
    // Endpoints name the pods of counters; without them only the interface is shown.
    return counter_table(
        TRY(read_counters(entries ? *entries : std::vector<EndpointEntry>{}, selection.selects_all(), world)), zeros);
}
Result<output::Table> dump_counters(const Selection &s, const World &w) { return counters_of(s, w, false); }
Result<output::Table> get_counters(const Selection &s, const World &w) { return counters_of(s, w, true); }

Result<output::Table> dump_uplinks(const Selection &selection, const World &world) {
    return uplink_table(TRY(selected_uplinks(selection, world)));
}

Result<output::Table> dump_history(const Selection &selection, const World &world) {
    return history_table(selection, HISTORY_OPERATIONS, world);
}

// A selection of endpoints leaves out entries that belong to none.
template <typename K, typename V, std::size_t N>
Result<output::Table> dump_node(const Selection &selection, const World &world, std::string_view name,
                                const std::array<Column<Entry<K, V>>, N> &columns) {
    output::Table table = TRY(dump({}, world, name, columns));
    if (!selection.selects_all()) {
        TRY(selected_endpoints(selection, world)); // fails if there is none
        table.rows.clear();
    }
    return table;
}

using Kind = KeyPart::Kind;
constexpr KeyPart kInterface{"INTERFACE", Kind::endpoint};
constexpr KeyPart kNetwork{"NETWORK"};
constexpr KeyPart kAddress{"ADDRESS", Kind::address};
constexpr KeyPart kPrefix{"PREFIX", Kind::prefix};
constexpr std::array<KeyPart, 4> kFlow{{{"host_interface", Kind::endpoint}, {"PROTOCOL"}, {"LOCAL"}, {"PEER"}}};

constexpr std::array<KnownMap, kMapNames.size()> kMaps = {{
    {PODLANE_MAP_ENDPOINTS, "the record of each attachment", dump_endpoints, {kInterface, {"ifname"}}, true},
    {PODLANE_MAP_INTERFACES,
     "per interface: what the programs need to know about a host-side veth",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_INTERFACES, kInterfaces); },
     {kInterface}},
    {PODLANE_MAP_ADDRESSES,
     "the endpoint that owns an address",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_ADDRESSES, kAddresses); },
     {kNetwork, kAddress}},
    {PODLANE_MAP_NETWORKS, "names of networks and their uplinks", network_table, {kNetwork, {"ID"}}},
    {PODLANE_MAP_PATHS, "the flow cache: the path of each flow", path_table, kFlow},
    {PODLANE_MAP_KEPT_PATHS, "paths that conntrack cannot restore", kept_path_table, kFlow},
    {PODLANE_MAP_FLOWS, "connections that conntrack has confirmed, by direction", flow_table, kFlow},
    {PODLANE_MAP_FORWARDED,
     "tuples of which the host stack has forwarded a packet",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_FORWARDED, kForwarded); },
     {KeyPart{"PROTOCOL"}, {"SOURCE"}, {"DESTINATION"}}},
    {PODLANE_MAP_COUNTERS,
     "packets and bytes by endpoint and reason",
     dump_counters,
     {kInterface},
     false,
     get_counters},
    {PODLANE_MAP_SOURCES,
     "additional source prefixes of an endpoint",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_SOURCES, kSources); },
     {kInterface, {"MAY SEND FROM", Kind::prefix}}},
    {PODLANE_MAP_BANDWIDTHS,
     "the configured limits of an endpoint",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_BANDWIDTHS, kBandwidths); },
     {kInterface}},
    {PODLANE_MAP_UPLINKS, "interfaces by which pods reach other nodes", dump_uplinks, {kInterface}},
    {PODLANE_MAP_CIDRS,
     "ranges of other nodes' pods",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_CIDRS, kCidrs); },
     {kNetwork, kPrefix}},
    {PODLANE_MAP_SOURCE_ROUTES,
     "the egress route of each container address",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_SOURCE_ROUTES, kSourceRoutes); },
     {kInterface, {"SOURCE", Kind::address}}},
    {PODLANE_MAP_SOURCE_SLOTS,
     "the addresses of a container's interfaces by number",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_SOURCE_SLOTS, kSourceSlots); },
     {kInterface, {"FAMILY"}, {"NUMBER"}}},
    {PODLANE_MAP_LIMITS,
     "state and counters of each limit",
     limit_state_table,
     {KeyPart{"host_interface", Kind::endpoint}, {"DIRECTION"}}},
    {PODLANE_MAP_LIMIT_GROUPS,
     "limits that pods share, as configured",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_LIMIT_GROUPS, kLimitGroups); },
     {KeyPart{"GROUP"}, kNetwork}},
    {PODLANE_MAP_EXEMPT,
     "prefixes that limits apply to, or exempt",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_EXEMPT, kExempts); },
     {kInterface, {"DIRECTION"}, kPrefix}},
    {PODLANE_MAP_SENDERS,
     "the endpoint of a socket's address, by network namespace",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_SENDERS, kSenders); },
     {KeyPart{"NETNS"}, kAddress}},
    {PODLANE_MAP_ISOLATION,
     "the groups of an endpoint, and those that it lets in",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_ISOLATION, kIsolations); },
     {kInterface}},
    {PODLANE_MAP_GROUP_CIDRS,
     "prefixes of other nodes' pods that an endpoint lets in, or not",
     [](const Selection &s, const World &w) { return dump(s, w, PODLANE_MAP_GROUP_CIDRS, kGroupCidrs); },
     {kInterface, kPrefix}},
    {PODLANE_MAP_WATCH, "what \"monitor\" watches",
     [](const Selection &s, const World &w) { return dump_node(s, w, PODLANE_MAP_WATCH, kWatch); }},
    {PODLANE_MAP_EVENTS, "events not read yet; only monitor can read them",
     [](const Selection &, const World &) -> Result<output::Table> { return output::Table{}; }},
    {PODLANE_MAP_HISTORY, "the last CNI calls", dump_history, {KeyPart{"number"}}},
}};

} // namespace

Result<const KnownMap *> find_map(std::string_view word) {
    std::string names;
    std::vector<std::string_view> bases;
    for (const KnownMap &map : kMaps) {
        const std::string_view base = split_version(map.name).first;
        if (map.name == word || base == word)
            return &map;
        bases.push_back(base);
        names += (names.empty() ? "" : ", ") + std::string(base);
    }
    for (const KnownMap &map : kMaps)
        if (map.name.starts_with(word))
            return &map;
    const std::string_view near = nearest(word, bases);
    return Error{ErrorCode::missing, "there is no map \"" + std::string(word) + "\"",
                 (near.empty() ? "" : "did you mean \"" + std::string(near) + "\"? ") + "maps: " + names};
}

std::span<const KnownMap> known_maps() { return kMaps; }

void print_entries(const KnownMap &map, const output::Table &entries, World &world) {
    if (map.as_records && !world.json)
        world.print(output::record_text(entries, world.style));
    else
        world.print(entries);
}

Result<int> map_dump(const Call &call, World &world) {
    const KnownMap *map = TRY(find_map(call.argument));
    print_entries(*map, TRY(map->dump(TRY(Selection::of_options(call)), world)), world);
    return 0;
}

} // namespace podlane::ctl
