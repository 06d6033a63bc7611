// SPDX-License-Identifier: MIT
#include "tools/podlanectl/node/node_object.hpp"

#include "maps/file.hpp"
#include "maps/ip.hpp"
#include "maps/text.hpp"
#include "plugin/cni/json.hpp"
#include "tools/podlanectl/node/installed.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

namespace podlane::ctl {
namespace {

namespace json = cni::json;

Error wrong(std::string sentence, std::string remedy) {
    return {ErrorCode::invalid_network_config, std::move(sentence), std::move(remedy)};
}

constexpr const char *kAssign =
    "kube-controller-manager assigns it: kubeadm init --pod-network-cidr RANGE; or name the "
    "range with --subnets";

// A range that pods can have addresses of: neither everything, nor multicast, loopback, link-local or one address.
bool is_pod_range(const Prefix &prefix) {
    const ip_addr &addr = prefix.addr;
    constexpr std::uint8_t kWidest = 4;
    const bool ipv4 = is_ipv4(addr);
    const std::uint32_t first = ntohl(ipv4 ? addr.word[3] : addr.word[0]) >> 24U;
    const bool is_special =
        is_link_local(addr) || (ipv4 ? first == 0 || first == 127 || first >= 224 : first >= 0xfe || first == 0);
    return !is_special && prefix.length >= kWidest && !is_host_prefix(prefix) && prefix == masked(prefix);
}

Result<std::vector<std::string>> checked_ranges(const std::vector<std::pair<std::string, std::string>> &named,
                                                const std::string &what) {
    std::vector<std::string> ranges;
    std::array<bool, 2> seen{};
    for (const auto &[key, text] : named) {
        const auto prefix = parse_prefix(text);
        if (!prefix || text.find('/') == std::string::npos || !is_pod_range(*prefix))
            return wrong(what + ": " + key + " is " + json::quote(text) + ", expected a range such as 198.18.1.0/24",
                         "correct it, or name the range with --subnets");
        if (std::exchange(seen.at(is_ipv4(prefix->addr) ? 1 : 0), true))
            return wrong(what + ": " + key + " is a second range of its family",
                         "name the range that is used with --subnets");
        ranges.push_back(to_string(*prefix));
    }
    return ranges;
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

ForeignNetwork read_network(const std::string &path) {
    ForeignNetwork network{.file = std::filesystem::path(path).filename()};
    const auto text = read_file(path);
    const auto list = text ? parse_list(*text, path) : Result<json::Printable>(text.error());
    if (!list || !list->is_object())
        return network;
    network.name = text_at(*list, "name", "");
    network.types = types_of(*list);
    return network;
}

Result<std::vector<std::string>> read_pod_ranges(std::string_view text, const std::string &what) {
    const json::Value document = TRY(json::parse_object(text, what));
    const json::Node node(&document, "");
    if (const json::Node kind = node.at("kind"); kind.present() && TRY(kind.text()) != "Node")
        return wrong(what + " is a " + json::quote(TRY(kind.text())) + ", expected a Node",
                     "kubectl get node NAME -o json");
    const json::Node spec = node.at("spec");
    TRY(spec.must_be_object());
    std::vector<std::pair<std::string, std::string>> named;
    if (const json::Node many = spec.at("podCIDRs"); many.present())
        for (const json::Node &one : TRY(many.elements("[\"198.18.1.0/24\"]")))
            named.emplace_back(one.path(), TRY(one.text()));
    else if (const json::Node single = spec.at("podCIDR"); single.present())
        named.emplace_back(single.path(), TRY(single.text()));
    if (named.empty())
        return wrong(what + " has no spec.podCIDRs: the node has no range for pods", kAssign);
    return checked_ranges(named, what);
}

} // namespace

Result<std::vector<std::string>> pod_ranges_of_node(std::string_view text, const std::string &what) {
    auto ranges = read_pod_ranges(text, what);
    if (ranges || !ranges.error().hint.empty())
        return ranges;
    Error error = std::move(ranges).error();
    error.hint = "kubectl get node NAME -o json prints it; or name the range with --subnets";
    return error;
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
    subnet.subnets = TRY(checked_ranges(subnets, what));
    for (const auto &one : networks) // of a family there may be several
        for (std::string &range : TRY(checked_ranges({one}, what)))
            subnet.networks.push_back(std::move(range));
    return subnet;
}

std::vector<ForeignNetwork> networks_in(const std::string &conf_dir) {
    std::vector<std::string> paths;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator(conf_dir, error)) {
        const std::string extension = entry.path().extension();
        if (extension == ".conf" || extension == ".conflist" || extension == ".json")
            paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    std::vector<ForeignNetwork> networks;
    networks.reserve(paths.size());
    for (const std::string &path : paths)
        networks.push_back(read_network(path));
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

} // namespace podlane::ctl
