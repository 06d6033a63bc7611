// SPDX-License-Identifier: MIT
// network list: the networks of this node's pods, and their uplinks.
#include "tools/podlanectl/views/network.hpp"

#include "plugin/egress_rules.hpp"
#include "tools/output/words.hpp"
#include "tools/podlanectl/cli/cli.hpp"
#include "tools/podlanectl/views/decode.hpp"
#include "tools/podlanectl/views/nouns.hpp"
#include "tools/podlanectl/views/reader.hpp"
#include "tools/podlanectl/views/selection.hpp"

#include <algorithm>
#include <array>

namespace podlane::ctl {
namespace {

struct NetworkRow {
    std::uint32_t id;
    network value;
    std::uint64_t endpoints = 0;
    std::vector<std::string> cidrs{};
    std::vector<std::string> uplinks{}; // interfaces it uses now
    std::optional<std::uint64_t> egress_drops{};
};

// As configured.
Cell configured_cell(const NetworkRow &r) {
    const std::string_view patterns = field_text(r.value.uplinks);
    if (r.value.has_uplinks == 0)
        return {"none", output::Value()};
    return {std::string(patterns.empty() ? "default routes" : patterns), patterns};
}

Cell egress_cell(const NetworkRow &r) {
    return r.egress_drops ? number_cell(*r.egress_drops) : Cell{"-", output::Value()};
}

constexpr std::array<Column<NetworkRow>, 8> kNetworkColumns = {{
    {{"NETWORK", "", "network"}, [](const NetworkRow &r) { return text_cell(field_text(r.value.name), Tone::strong); }},
    {{"ID", "", "id"},
     [](const NetworkRow &r) {
         return Cell{output::hex_words(r.id), r.id};
     }},
    {{"ENDPOINTS", "", "endpoints", Align::right}, [](const NetworkRow &r) { return number_cell(r.endpoints); }},
    {{"CLUSTER CIDRS", "", "cluster_cidrs"}, [](const NetworkRow &r) { return list_cell(r.cidrs); }},
    {{"UPLINKS", "", "uplinks_wanted"}, configured_cell},
    {{"ON", "", "uplinks"}, [](const NetworkRow &r) { return list_cell(r.uplinks); }},
    {{"HOOK", "", "hook"}, [](const NetworkRow &r) { return text_cell(attach_name(r.value.attach)); }},
    {{"EGRESS DROPS", "", "egress_drops", Align::right}, egress_cell},
}};

} // namespace

std::map<std::uint32_t, std::string> network_names(const World &world) {
    std::map<std::uint32_t, std::string> names;
    if (const auto known = read_map<std::uint32_t, network>(world.bpffs, PODLANE_MAP_NETWORKS))
        for (const auto &[id, one] : *known)
            names.emplace(id, field_text(one.name));
    return names;
}

std::string network_words(const std::map<std::uint32_t, std::string> &names, std::uint32_t network) {
    const auto found = names.find(network);
    return found == names.end() ? output::hex_words(network) : found->second;
}

std::optional<std::uint64_t> egress_drops_of(const std::string &network) {
    const auto drops = egress_drops(network);
    return drops ? *drops : std::nullopt;
}

Result<output::Table> network_table(const Selection &selection, const World &world) {
    const Chosen chosen = TRY(Chosen::of(selection, world));
    std::vector<NetworkRow> rows;
    for (const auto &[id, value] : TRY(read_map<std::uint32_t, network>(world.bpffs, PODLANE_MAP_NETWORKS)))
        if (chosen.has(0, id))
            rows.push_back({id, value});
    const auto endpoints = TRY(read_map<endpoint_key, endpoint>(world.bpffs, PODLANE_MAP_ENDPOINTS));
    const auto cidrs = TRY(read_map<cluster_cidr_key, std::uint32_t>(world.bpffs, PODLANE_MAP_CIDRS));
    const auto uplinks = TRY(read_map<std::uint32_t, uplink>(world.bpffs, PODLANE_MAP_UPLINKS));
    for (NetworkRow &row : rows) {
        for (const auto &[key, value] : endpoints)
            row.endpoints += value.network == row.id ? 1 : 0;
        for (const auto &[key, value] : cidrs)
            if (network_of(key) == row.id)
                row.cidrs.push_back(to_string(prefix_of(key)));
        for (const auto &[ifindex, value] : uplinks)
            if (std::ranges::find(value.networks, row.id) != std::end(value.networks))
                row.uplinks.push_back(interface_name(ifindex));
        row.egress_drops = egress_drops_of(std::string(field_text(row.value.name)));
        std::ranges::sort(row.cidrs);
        std::ranges::sort(row.uplinks);
    }
    std::ranges::sort(rows, {}, [](const NetworkRow &row) { return field_text(row.value.name); });
    return output::make_table(kNetworkColumns, rows);
}

namespace {

Result<int> network_list(const Call &call, World &world) {
    world.print(TRY(network_table(TRY(Selection::of(call)), world)));
    return 0;
}

constexpr std::array<Command, 1> kNetworkCommands = {{
    {"list", "List networks with their endpoints, cluster CIDRs and uplinks.", kSelect | kRead, kWhich, "",
     network_list},
}};

} // namespace

const Noun kNetworkNoun = {"network", "networks of this node's pods, and their uplinks", kNetworkCommands};

} // namespace podlane::ctl
