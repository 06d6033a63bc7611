// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/runtime_network.hpp"

#include "loader/record.hpp"
#include "loader/state_file.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/values.hpp"
#include "plugin/pod_ranges.hpp"
#include "tools/podlanectl/node/node_object.hpp"

#include <algorithm>

namespace podlane::ctl {
namespace {

using cni::json::Node;

std::vector<Node> elements_of(const Node &list) {
    auto elements = list.present() ? list.elements() : std::vector<Node>{};
    return elements ? *std::move(elements) : std::vector<Node>{};
}

void add_prefix(const Node &text, std::vector<Prefix> &prefixes) {
    const auto value = text.present() ? text.text() : std::string();
    if (const auto prefix = value ? parse_prefix(*value) : Result<Prefix>(value.error()); prefix)
        prefixes.push_back(masked(*prefix));
}

bool is_true(const Node &node) {
    const auto value = node.present() ? node.boolean() : false;
    return value && *value;
}

bool is_podlane(const Node &plugin) {
    const Node type = plugin.at("type");
    const auto text = type.present() ? type.text() : std::string();
    return text && *text == "podlane";
}

// Of host-local, or of a pool that is merged into its configuration.
void add_ranges(const Node &ipam, std::vector<Prefix> &ranges) {
    if (!ipam.present() || !ipam.must_be_object())
        return;
    add_prefix(ipam.at("subnet"), ranges);
    for (const Node &set : elements_of(ipam.at("ranges")))
        for (const Node &range : elements_of(set))
            if (range.must_be_object())
                add_prefix(range.at("subnet"), ranges);
}

void add_plugin(const Node &plugin, RuntimeNetwork &network) {
    if (!plugin.must_be_object())
        return;
    network.masquerades = network.masquerades || is_true(plugin.at("ipMasq"));
    add_ranges(plugin.at("ipam"), network.ranges);
    if (!is_podlane(plugin))
        return;
    if (const Node pools = plugin.at("pools"); pools.present() && pools.must_be_object())
        for (const auto &[name, pool] : pools.value().items())
            add_ranges(Node(&pool, name), network.ranges);
    network.has_uplink = plugin.at("uplink").present();
    if (const Node directory = plugin.at("stateDir"); directory.present())
        if (std::string path; cni::read_directory(directory, path))
            network.state_dir = path;
    for (const Node &cluster : elements_of(plugin.at("clusterCIDRs")))
        add_prefix(cluster, network.clusters);
}

} // namespace

std::optional<RuntimeNetwork> podlane_network(const ForeignNetwork &file, std::string_view text,
                                              const std::string &state_dir) {
    const auto list = cni::json::parse_object(text, file.file);
    if (!list || std::ranges::find(file.types, "podlane") == file.types.end())
        return std::nullopt;
    RuntimeNetwork network{.name = file.name, .makes_links = file.types.front() == "podlane"};
    const Node document(&*list, "");
    std::vector<Node> plugins{document};
    if (document.at("plugins").present())
        plugins = elements_of(document.at("plugins"));
    for (const Node &plugin : plugins) {
        if (!plugin.present())
            continue;
        const cni::json::Value completed = with_kept_pod_ranges(plugin.value(), state_dir);
        add_plugin(Node(&completed, plugin.path()), network);
    }
    return network;
}

Result<std::vector<RuntimeNetwork>> podlane_networks_in(const std::string &conf_dir, const std::string &state_dir) {
    std::vector<RuntimeNetwork> networks;
    for (const ForeignNetwork &one : TRY(networks_in(conf_dir))) {
        const auto text = read_network_file(conf_dir + "/" + one.file);
        if (auto network = text ? podlane_network(one, *text, state_dir) : std::nullopt)
            networks.push_back(*std::move(network));
    }
    return networks;
}

namespace {

// By records or settings. A directory that cannot be read may be.
bool is_used(const std::string &state_directory) {
    const auto places = names_in(state_directory);
    return !places || std::ranges::any_of(*places, [&](const std::string &place) {
        const auto records = names_in(state_directory + "/" + place);
        return place.starts_with("settings-") || (records && std::ranges::any_of(*records, [](const std::string &one) {
                                                      return one.find(':') != std::string::npos;
                                                  }));
    });
}

} // namespace

std::string configured_state_directory(const std::string &conf_dir) {
    if (is_used(kStateDirectory))
        return kStateDirectory;
    const auto networks = podlane_networks_in(conf_dir, kStateDirectory);
    const std::string first = networks && !networks->empty() ? networks->front().state_dir : std::string();
    const auto differs = [&](const RuntimeNetwork &one) { return one.state_dir != first; };
    return first.empty() || std::ranges::any_of(*networks, differs) ? kStateDirectory : first;
}

} // namespace podlane::ctl
