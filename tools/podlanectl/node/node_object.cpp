// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/node_object.hpp"

#include "loader/state_file.hpp"
#include "maps/file.hpp"
#include "maps/ip.hpp"
#include "maps/printable.hpp"
#include "maps/text.hpp"
#include "plugin/cni/json.hpp"
#include "plugin/cni/list.hpp"
#include "plugin/cni/pod_ranges.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

namespace podlane::ctl {
namespace {

namespace json = cni::json;

Error wrong(std::string sentence, std::string remedy) {
    return {ErrorCode::invalid_network_config, std::move(sentence), std::move(remedy)};
}

constexpr const char *kOrBySubnets = "correct it, or name the range with --subnets";

Result<std::vector<std::string>> checked(const std::vector<std::pair<std::string, std::string>> &named,
                                         const std::string &what) {
    auto ranges = cni::checked_ranges(named, what);
    return ranges ? std::move(ranges) : wrong(ranges.error().message, kOrBySubnets);
}

// A line's value, if it sets the variable.
std::optional<std::string_view> value_of(std::string_view line, std::string_view variable) {
    if (!line.starts_with(variable) || line.size() <= variable.size() || line[variable.size()] != '=')
        return std::nullopt;
    return line.substr(variable.size() + 1);
}

void add_ranges(std::string_view key, std::string_view value,
                std::vector<std::pair<std::string, std::string>> &ranges) {
    while (!value.empty()) {
        const std::size_t end = std::min(value.find(','), value.size());
        ranges.emplace_back(key, value.substr(0, end));
        value.remove_prefix(std::min(end + 1, value.size()));
    }
}

std::string text_at(const json::Printable &object, const char *key, const char *otherwise) {
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : otherwise;
}

std::vector<std::string> types_of(const json::Printable &list) {
    std::vector<std::string> types;
    const auto add = [&](const json::Printable &plugin) {
        if (std::string type = plugin.is_object() ? text_at(plugin, "type", "") : ""; !type.empty())
            types.push_back(std::move(type));
    };
    if (list.contains("plugins") && list["plugins"].is_array())
        for (const auto &plugin : list["plugins"])
            add(plugin);
    else
        add(list);
    return types;
}

// Bounded as every foreign document; keeps the order of the keys.
Result<json::Printable> parse_list(std::string_view text, const std::string &what) {
    TRY(json::parse_object(text, what));
    return json::Printable::parse(text, nullptr, false);
}

Result<std::vector<std::string>> read_pod_ranges(std::string_view text, const std::string &what) {
    const json::Value document = TRY(json::parse_object(text, what));
    if (const json::Node kind = json::Node(&document, {}).at("kind"); kind.present() && TRY(kind.text()) != "Node")
        return wrong(what + " is a " + json::quote(TRY(kind.text())) + ", expected a Node", {});
    return cni::ranges_of_node(document, what);
}

std::vector<ip_addr> addresses_of(const json::Node &node) {
    std::vector<ip_addr> addresses;
    const auto listed = node.at("status").at("addresses").elements();
    for (const json::Node &one : listed ? *listed : std::vector<json::Node>{}) // names of the host among them
        if (const auto text = one.at("address").text())
            if (const auto address = parse_ip(*text))
                addresses.push_back(*address);
    return addresses;
}

Result<ClusterNode> read_cluster_node(const json::Node &object) {
    const auto name = object.at("metadata").at("name").text();
    ClusterNode node{.name = printable(name ? *name : object.path()), .addresses = addresses_of(object)};
    const json::Node spec = object.at("spec");
    if (!spec.at("podCIDRs").present() && !spec.at("podCIDR").present())
        return node;
    for (const std::string &range : TRY(cni::ranges_of_node(object.value(), "node " + node.name)))
        node.ranges.push_back(TRY(parse_prefix(range)));
    return node;
}

Result<std::vector<ClusterNode>> read_items(std::string_view text, const std::string &what) {
    const json::Value document = TRY(json::parse_object(text, what, kLargestRead));
    const auto items = json::Node(&document, {}).at("items").elements();
    if (!items)
        return items.error().context(what);
    std::vector<ClusterNode> nodes;
    for (const json::Node &item : *items) {
        auto node = read_cluster_node(item);
        if (!node)
            return std::move(node).error().context(what + ": " + item.path());
        nodes.push_back(*std::move(node));
    }
    return nodes;
}

} // namespace

Result<std::vector<std::string>> pod_ranges_of_node(std::string_view text, const std::string &what) {
    auto ranges = read_pod_ranges(text, what);
    if (!ranges)
        return wrong(ranges.error().message,
                     "`kubectl get node NAME -o json` prints it, and kube-controller-manager assigns its ranges "
                     "(kubeadm init --pod-network-cidr RANGE); or name the range with --subnets");
    return ranges;
}

Result<std::vector<ClusterNode>> read_cluster_nodes(std::string_view text, const std::string &what) {
    auto nodes = read_items(text, what);
    return nodes ? std::move(nodes) : wrong(nodes.error().message, "`kubectl get nodes -o json` prints it");
}

Result<FlannelSubnet> read_flannel_subnet(std::string_view text, const std::string &what) {
    FlannelSubnet subnet;
    std::vector<std::pair<std::string, std::string>> subnets;
    std::vector<std::pair<std::string, std::string>> networks;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, std::min(text.find('\n'), text.size()));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        for (const char *key : {"FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET"})
            if (const auto value = value_of(line, key)) { // the daemon writes the node's address in it
                const auto prefix = parse_prefix(*value);
                subnets.emplace_back(key, prefix ? to_string(masked(*prefix)) : std::string(*value));
            }
        for (const char *key : {"FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK"})
            if (const auto value = value_of(line, key))
                add_ranges(key, *value, networks);
        if (const auto value = value_of(line, "FLANNEL_MTU")) {
            const auto number = parse_number<std::uint64_t>(*value);
            if (!number)
                return wrong(what + ": FLANNEL_MTU is " + json::quote(*value), "give --mtu and --subnets");
            subnet.mtu = *number;
        }
        subnet.masquerades = subnet.masquerades || line == "FLANNEL_IPMASQ=true";
    }
    subnet.subnets = TRY(checked(subnets, what));
    for (const auto &one : networks) // of a family there may be several
        for (std::string &range : TRY(checked({one}, what)))
            subnet.networks.push_back(std::move(range));
    return subnet;
}

Result<std::string> read_network_file(const std::string &path) {
    constexpr std::size_t kLargest = std::size_t{1} << 20U;
    return read_file(path, kLargest, O_NONBLOCK);
}

ForeignNetwork foreign_network(const std::string &file, const Result<std::string> &text) {
    ForeignNetwork network{.file = file};
    const auto list = text ? parse_list(*text, file) : Result<json::Printable>(text.error());
    const auto checked = text ? cni::status_input(*text) : Result<std::optional<std::string>>(text.error());
    if (!checked)
        network.unread = printable(checked.error().message);
    if (!list)
        return network;
    network.name = printable(text_at(*list, "name", ""));
    for (const std::string &type : types_of(*list))
        network.types.push_back(printable(type));
    return network;
}

Result<std::vector<ForeignNetwork>> networks_in(const std::string &conf_dir) {
    constexpr std::array<std::string_view, 3> kExtensions{".conf", ".conflist", ".json"};
    std::vector<ForeignNetwork> networks;
    for (const std::string &name : TRY(names_in(conf_dir, Hidden::too)))
        if (std::ranges::any_of(kExtensions, [&](std::string_view one) { return name.ends_with(one); }))
            networks.push_back(foreign_network(name, read_network_file(conf_dir + "/" + name)));
    return networks;
}

Result<std::string> with_podlane_behind(std::string_view text, const std::string &what, const std::string &podlane) {
    json::Printable list = TRY(parse_list(text, what));
    const std::vector<std::string> types = types_of(list);
    if (types.empty())
        return wrong(what + " names no plugin", "name another directory with --conf-dir, or use --mode main");
    if (std::ranges::find(types, "podlane") != types.end())
        return std::string(text);
    if (!list.contains("plugins")) {
        json::Printable alone = list;
        list = {{"cniVersion", text_at(alone, "cniVersion", "0.4.0")}, {"name", text_at(alone, "name", "")}};
        alone.erase("cniVersion");
        alone.erase("name");
        list["plugins"] = json::Printable::array({alone});
    }
    json::Printable &plugins = list["plugins"];
    if (plugins.size() != types.size())
        return wrong(what + ": an element of plugins has no type", "correct it, or use --mode main");
    plugins.insert(plugins.begin() + 1, json::Printable::parse(podlane, nullptr, false));
    return json::print(list) + "\n";
}

Result<std::string> with_keys(std::string_view text, std::string_view keys) {
    const json::Printable added = TRY(parse_list(keys, "--keys"));
    if (added.contains("type"))
        return wrong("--keys has \"type\", by which the runtime finds the plugin", "leave it out");
    json::Printable list = TRY(parse_list(text, "the network"));
    if (!list.contains("plugins"))
        return wrong("--keys: the network has no list of plugins", "write the keys into its file");
    for (json::Printable &plugin : list["plugins"])
        if (text_at(plugin, "type", "") == "podlane")
            plugin.update(added);
    return json::print(list) + "\n";
}

} // namespace podlane::ctl
