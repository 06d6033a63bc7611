// SPDX-License-Identifier: MIT
// metrics: counters and gauges for Prometheus.
#include "maps/history.hpp"
#include "maps/version.hpp"
#include "tools/output/exposition.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/live/metrics_server.hpp"
#include "tools/podlanectl/live/nouns.hpp"
#include "tools/podlanectl/views/counter.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/history.hpp"
#include "tools/podlanectl/views/labels.hpp"
#include "tools/podlanectl/views/map.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"
#include "tools/podlanectl/views/uplink.hpp"

#include <array>
#include <functional>
#include <map>
#include <set>

namespace podlane::ctl {
namespace {

using output::Exposition;
using output::Labels;
using output::MetricsFormat;

// Everything is read before anything is printed.
struct Scrape {
    std::vector<EndpointEntry> endpoints;
    std::vector<AttachmentRecord> records;  // of the endpoints, in their order
    std::vector<EndpointCounters> counters; // first those of the endpoints, in their order
    std::vector<std::pair<std::uint32_t, bandwidth>> limits;
    std::vector<UplinkReport> uplinks;
    std::vector<MapReport> maps;
};

Result<Scrape> read_all(const Selection &selection, const std::string &state_directory, const World &world,
                        const ProgramsOnHook &on_hook) {
    Scrape all;
    auto endpoints = selected_endpoints(selection, world);
    // Endpoints come and go between two scrapes.
    if (!endpoints && (selection.selects_all() || endpoints.error().code != ErrorCode::missing))
        return std::move(endpoints).error();
    if (endpoints)
        all.endpoints = *std::move(endpoints);
    const AttachmentRecords records(state_directory, world.bpffs);
    for (const EndpointEntry &one : all.endpoints)
        all.records.push_back(TRY(recorded(records, one)));
    all.counters = TRY(read_counters(all.endpoints, true, world));
    all.limits = TRY((read_map<std::uint32_t, bandwidth>(world.bpffs, PODLANE_MAP_BANDWIDTHS)));
    all.uplinks = TRY(read_uplinks(world, on_hook));
    all.maps = TRY(read_maps(world));
    return all;
}

Labels labels_of(const EndpointEntry &entry) {
    const auto &[key, value] = entry;
    return {{"namespace", std::string(field_text(value.pod_namespace))},
            {"pod", std::string(field_text(value.pod_name))},
            {"container", std::string(field_text(key.container_id)).substr(0, 12)},
            {"interface", std::string(field_text(value.host_ifname))},
            {"network", std::string(field_text(value.network_name))}};
}

Labels with(Labels labels, std::string_view name, std::string value) {
    labels.emplace_back(name, std::move(value));
    return labels;
}

using Pick = std::uint64_t (*)(const count &counted);
std::uint64_t packets_of(const count &counted) { return counted.packets; }
std::uint64_t bytes_of(const count &counted) { return counted.bytes; }

void put_reasons(Exposition &out, const Labels &who, const counters &total, Pick pick, bool only_drops) {
    for (std::size_t reason = REASON_NONE + 1; reason < COUNTER_REASONS; ++reason) {
        const std::string kind(reason_kind_name(reason));
        if (total.by_reason[reason].packets == 0 || (only_drops && kind != "drop"))
            continue;
        Labels labels = only_drops ? who : with(who, "kind", kind);
        out.sample(with(std::move(labels), "reason", reason_name(reason)), pick(total.by_reason[reason]));
    }
}

// Labels of pods are without bounds in number: only the names that a cluster keeps are here.
void put_nodes(Exposition &out, const Scrape &all) {
    out.gauge("podlane_endpoint_info", "1; the node of an endpoint, as its configuration names it.");
    for (std::size_t i = 0; i < all.endpoints.size(); ++i)
        out.sample(with(labels_of(all.endpoints[i]), "node", all.records[i].node_name), 1);
    out.gauge("podlane_endpoint_group", "1; a group that the endpoint's container is a member of.");
    for (std::size_t i = 0; i < all.endpoints.size(); ++i)
        for (const std::string &group : recorded_groups(all.records[i]))
            out.sample(with(labels_of(all.endpoints[i]), "group", group), 1);
}

// Of the keys that the administrator has chosen: each value is a series.
void put_labels(Exposition &out, const Scrape &all, const std::set<std::string> &keys) {
    if (keys.empty())
        return;
    out.gauge("podlane_endpoint_label", "1; a label or an annotation of an endpoint's pod, of the chosen keys.");
    for (std::size_t i = 0; i < all.endpoints.size(); ++i)
        for (const std::string &key : keys)
            if (const auto said = said_of(all.records[i], key)) {
                Labels labels = with(labels_of(all.endpoints[i]), "source", said->is_label ? "label" : "annotation");
                out.sample(with(with(std::move(labels), "key", key), "value", said->value), 1);
            }
}

void put_endpoints(Exposition &out, const Scrape &all, const AdminQueries &queries) {
    std::map<std::string, std::uint64_t> by_network;
    for (const EndpointEntry &entry : all.endpoints)
        ++by_network[std::string(field_text(entry.second.network_name))];
    out.gauge("podlane_endpoints", "Endpoints of this node.");
    for (const auto &[network, number] : by_network)
        out.sample({{"network", network}}, number);
    out.counter("podlane_network_egress_drops", "Packets that \"egress\" kept from leaving the cluster.");
    for (const auto &[network, number] : by_network)
        if (const auto drops = queries.egress_drops(network))
            out.sample({{"network", network}}, *drops);

    struct Family {
        std::string_view name;
        std::string_view help;
        Pick pick;
        bool only_drops;
    };
    constexpr std::array<Family, 3> kFamilies = {{
        {"podlane_endpoint_packets", "Packets of an endpoint, by reason.", &packets_of, false},
        {"podlane_endpoint_bytes", "Bytes of an endpoint's frames, by reason.", &bytes_of, false},
        {"podlane_endpoint_drops", "Packets of an endpoint that were dropped, by reason.", &packets_of, true},
    }};
    for (const Family &family : kFamilies) {
        out.counter(family.name, family.help);
        for (std::size_t i = 0; i < all.endpoints.size(); ++i)
            put_reasons(out, labels_of(all.endpoints[i]), all.counters[i].total, family.pick, family.only_drops);
    }
}

void put_limits(Exposition &out, const Scrape &all) {
    constexpr std::uint64_t kBits = 8;
    out.gauge("podlane_endpoint_limit_bytes_per_second", "Bandwidth limit of an endpoint, seen from the pod.");
    for (const EndpointEntry &entry : all.endpoints)
        for (const auto &[ifindex, limit] : all.limits) {
            if (ifindex != entry.second.ifindex)
                continue;
            if (limit.ingress_rate_bits_per_s != 0)
                out.sample(with(labels_of(entry), "direction", "ingress"), limit.ingress_rate_bits_per_s / kBits);
            if (limit.egress_rate_bits_per_s != 0)
                out.sample(with(labels_of(entry), "direction", "egress"), limit.egress_rate_bits_per_s / kBits);
        }
}

void put_uplinks(Exposition &out, const Scrape &all) {
    out.gauge("podlane_uplink_programs", "1 if the programs are attached to an uplink, else 0.");
    for (const UplinkReport &one : all.uplinks)
        out.sample({{"interface", one.name}}, one.has_programs ? 1 : 0);
    const auto put = [&](Pick pick) {
        for (const UplinkReport &one : all.uplinks)
            for (const EndpointCounters &of : all.counters)
                if (of.ifindex == one.ifindex)
                    put_reasons(out, {{"interface", one.name}}, of.total, pick, false);
    };
    out.counter("podlane_uplink_packets", "Packets on an uplink, by reason.");
    put(&packets_of);
    out.counter("podlane_uplink_bytes", "Bytes of frames on an uplink, by reason.");
    put(&bytes_of);
}

void put_maps(Exposition &out, const Scrape &all) {
    struct Family {
        std::string_view name;
        std::string_view help;
        std::uint64_t (*value)(const MapReport &map);
    };
    constexpr std::array<Family, 3> kFamilies = {{
        {"podlane_map_entries", "Entries in a map.", [](const MapReport &m) { return m.entries; }},
        {"podlane_map_capacity", "Capacity of a map in entries.",
         [](const MapReport &m) { return std::uint64_t{m.facts.max_entries}; }},
        {"podlane_map_memory_bytes", "Memory of a map.", [](const MapReport &m) { return m.memory; }},
    }};
    for (const Family &family : kFamilies) {
        out.gauge(family.name, family.help);
        for (const MapReport &map : all.maps)
            if (map.there)
                out.sample({{"map", map.name}}, family.value(map));
    }
}

// Its packets are in podlane_endpoint_packets, by reason.
Result<void> put_flows(Exposition &out, const World &world) {
    std::array<std::uint64_t, 2> flows{};
    for (const auto &[key, value] : TRY(read_map<flow_key, flow>(world.bpffs, PODLANE_MAP_FLOWS)))
        ++flows[(value.flags & FLOW_TRANSLATED) != 0 ? 1 : 0];
    out.gauge("podlane_flows", "Directions of connections in the flow cache, as conntrack confirmed them.");
    out.sample({{"translated", "no"}}, flows[0]);
    out.sample({{"translated", "yes"}}, flows[1]);
    return {};
}

void put_operations(Exposition &out, const History &history) {
    constexpr double kNsPerS = 1e9;
    constexpr double kUsPerS = 1e6;
    std::vector<double> bounds;
    bounds.reserve(kOperationBoundsUs.size());
    for (const std::uint32_t bound : kOperationBoundsUs)
        bounds.push_back(bound / kUsPerS);
    out.histogram("podlane_cni_duration_seconds", "Duration of CNI calls.");
    for (std::uint8_t verb = 0; verb < OPERATION_VERBS; ++verb)
        for (const bool failed : {false, true}) {
            const operation_totals totals = history.totals(static_cast<operation_verb>(verb), failed);
            out.distribution({{"verb", std::string(verb_name(verb))}, {"outcome", failed ? "failed" : "ok"}}, bounds,
                             {std::begin(totals.buckets), std::end(totals.buckets)},
                             static_cast<double>(totals.duration_ns) / kNsPerS);
        }
}

struct Wanted {
    Selection selection;
    std::string state_directory;
    std::set<std::string> labels; // keys
};

// A node on which nothing was loaded yet is up as well, with no endpoints.
Result<std::string> exposition(const Wanted &wanted, const World &world, const AdminQueries &queries,
                               MetricsFormat format) {
    Exposition out(format);
    out.gauge("podlane_build_info", "Version of podlanectl.");
    out.sample({{"version", std::string(kVersion)}}, 1);
    const bool loaded = TRY(is_live(world.bpffs));
    out.gauge("podlane_loaded", "1 once the programs and maps were loaded, with the first pod after a boot.");
    out.sample({}, loaded ? 1 : 0);
    if (!loaded)
        return std::move(out).text();
    const Scrape all = TRY(read_all(wanted.selection, wanted.state_directory, world, queries.on_hook));
    put_nodes(out, all);
    put_labels(out, all, wanted.labels);
    put_endpoints(out, all, queries);
    put_limits(out, all);
    put_uplinks(out, all);
    put_maps(out, all);
    TRY(put_flows(out, world));
    put_operations(out, TRY(open_history(world)));
    return std::move(out).text();
}

Result<int> metrics(const Call &call, World &world) {
    Wanted wanted{TRY(Selection::of(call)), call.value(Opt::state_dir).value_or(kStateDirectory), {}};
    if (call.has(Opt::labels))
        wanted.labels = TRY(parse_label_keys(*call.value(Opt::labels)));
    if (call.has(Opt::listen))
        return serve_metrics(*call.value(Opt::listen), world,
                             [&](const AdminQueries &queries, MetricsFormat requested) {
                                 return exposition(wanted, world, queries, requested);
                             });
    const auto format = call.has(Opt::openmetrics) ? MetricsFormat::openmetrics : MetricsFormat::prometheus;
    world.print(TRY(exposition(wanted, world, {}, format)));
    return 0;
}

constexpr std::array<Command, 1> kMetricsCommands = {{
    {"", "Print counters, map fill and CNI operations as metrics, or serve them.",
     kSelect | Opts{Opt::listen, Opt::openmetrics, Opt::labels, Opt::state_dir, Opt::bpffs, Opt::help}, kWhich,
     "Prints the text format 0.0.4, which node_exporter's textfile collector reads. The server sends OpenMetrics to\n"
     "clients that accept it (Accept: application/openmetrics-text), and the same text to others. Labels and\n"
     "annotations of pods are left out but for those of --labels: each of their values is a series of its own.",
     metrics},
}};

} // namespace

const Noun kMetricsNoun = {"metrics", "metrics for Prometheus", kMetricsCommands};

} // namespace podlane::ctl
