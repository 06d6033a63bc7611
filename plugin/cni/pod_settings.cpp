// SPDX-License-Identifier: MIT
#include "plugin/cni/pod_settings.hpp"

#include "maps/abi/endpoint.h"
#include "maps/printable.hpp"
#include "plugin/cni/annotation_values.hpp"
#include "plugin/cni/bandwidth.hpp"
#include "plugin/cni/environment.hpp"
#include "plugin/cni/isolation.hpp"
#include "plugin/cni/keys.hpp"
#include "plugin/cni/labels.hpp"
#include "plugin/cni/unicast.hpp"
#include "plugin/cni/values.hpp"
#include "plugin/cni/words.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace podlane::cni {
namespace {

using json::Node;

constexpr std::array<std::pair<std::string_view, PodSetting>, kPodSettings> kSettings{
    {{"bandwidth", PodSetting::bandwidth},
     {"addresses", PodSetting::addresses},
     {"addressesWithoutIpam", PodSetting::addresses_without_ipam},
     {"pools", PodSetting::pools},
     {"mac", PodSetting::mac},
     {"allowedSources", PodSetting::allowed_sources},
     {"mtu", PodSetting::mtu},
     {"fastPath", PodSetting::fast_path},
     {"sysctls", PodSetting::sysctls},
     {"limitGroup", PodSetting::limit_group},
     {"groups", PodSetting::groups},
     {"routes", PodSetting::routes},
     {"gateway", PodSetting::gateway},
     {"keepAddress", PodSetting::keep_address}}};

constexpr std::string_view kWords =
    "one of \"bandwidth\", \"addresses\", \"addressesWithoutIpam\", \"pools\", \"mac\", \"allowedSources\", \"mtu\", "
    "\"fastPath\", \"sysctls\", \"limitGroup\", \"groups\", \"routes\", \"gateway\", \"keepAddress\"";

std::size_t index_of(PodSetting setting) { return static_cast<std::size_t>(setting); }

std::optional<PodSetting> setting_of(std::string_view word) {
    for (const auto &[name, setting] : kSettings)
        if (word == name)
            return setting;
    return std::nullopt;
}

// Without a bound a pod could take any address, or write any setting.
Result<void> check_bounds(const Node &node, PodSetting setting, const Permission &permission) {
    const bool addresses = setting == PodSetting::addresses_without_ipam || setting == PodSetting::allowed_sources ||
                           setting == PodSetting::gateway;
    if (addresses && permission.within.empty())
        return node.wrong(R"(its bounds, as in {"within": ["198.18.1.0/24"]})");
    if (setting == PodSetting::sysctls && permission.names.empty())
        return node.wrong(R"(which ones, as in {"names": ["net.core.somaxconn"]})");
    if ((setting == PodSetting::limit_group || setting == PodSetting::groups) && permission.names.empty())
        return node.wrong(R"(which ones, as in {"names": ["tenant-a"]})");
    return {};
}

Result<void> read_permission(const Node &node, PodSetting setting, Permission &into) {
    constexpr std::array<std::string_view, 2> kBounds{"within", "names"};
    into.granted = true;
    if (node.value().is_boolean())
        into.granted = TRY(node.boolean());
    else
        TRY(check_keys(node, kBounds));
    TRY(read_prefixes(node.at("within"), into.within));
    TRY(json::read(node.at("names"), into.names));
    for (const std::string &name : into.names)
        if (setting == PodSetting::sysctls && !is_pod_sysctl(name))
            return node.at("names").wrong("names below net, such as \"net.core.somaxconn\"");
    if (setting == PodSetting::groups && !std::ranges::all_of(into.names, is_group_name))
        return node.at("names").wrong("names of groups");
    return into.granted ? check_bounds(node, setting, into) : Result<void>{};
}

using Apply = Result<void> (*)(const Node &annotation, const Permission &permission, Config &into);

// Requests of the runtime take precedence over the pod's annotations.
Result<void> apply_addresses(const Node &annotation, const Permission &permission, Config &into) {
    auto addresses = TRY(addresses_in(annotation, permission));
    if (into.ipam_type.empty())
        return annotation.wrong("\"ipam\" in the configuration, whose plugin the addresses are requested from");
    if (into.requested_ips.empty())
        into.pod_addresses = std::move(addresses);
    return {};
}

Result<void> apply_own_addresses(const Node &annotation, const Permission &permission, Config &into) {
    into.own_addresses = TRY(addresses_in(annotation, permission));
    return into.ipam_type.empty() ? Result<void>(annotation.wrong("\"ipam\" in the configuration, which it replaces"))
                                  : Result<void>{};
}

Result<std::vector<std::string>> names_in(const Node &annotation, const Permission &permission) {
    auto names = TRY(list_in(annotation));
    for (const std::string &name : names)
        if (!permission.names.empty() && std::ranges::find(permission.names, name) == permission.names.end())
            return annotation.wrong("what podMay has in \"names\"");
    return names;
}

template <auto Calicos> Result<void> apply_pools(const Node &annotation, const Permission &permission, Config &into) {
    for (std::string &name : TRY(names_in(annotation, permission))) {
        if (into.pools.contains(name)) {
            into.pods_pools.push_back(std::move(name));
            continue;
        }
        if constexpr (Calicos != nullptr)
            if (into.ipam_type == "calico-ipam") {
                (into.*Calicos).push_back(std::move(name));
                continue;
            }
        return annotation.wrong("names of \"pools\" in the configuration");
    }
    return {};
}

Result<void> apply_mac(const Node &annotation, const Permission & /*permission*/, Config &into) {
    const auto mac = parse_mac(TRY(annotation.text()));
    if (!mac || !is_interface_mac(*mac))
        return annotation.wrong(kInterfaceMac);
    if (!into.requested_mac)
        into.requested_mac = *mac;
    return {};
}

Result<void> apply_sources(const Node &annotation, const Permission &permission, Config &into) {
    for (const Prefix &prefix : TRY(prefixes_in(annotation, permission)))
        if (std::ranges::find(into.allowed_sources, prefix) == into.allowed_sources.end())
            into.allowed_sources.push_back(prefix);
    return {};
}

// Lowers it at most: the plan takes the smaller one.
Result<void> apply_mtu(const Node &annotation, const Permission & /*permission*/, Config &into) {
    const std::string text = TRY(annotation.text());
    std::optional<std::uint32_t> mtu;
    const json::Value number = parse_quantity(text).value_or(0);
    if (text.find_first_not_of("0123456789") != std::string::npos || !read_mtu(Node(&number, {}), mtu) || !mtu)
        return annotation.wrong("a whole number from 68 to 65535");
    into.pod_mtu = mtu;
    return {};
}

Result<void> apply_fast_path(const Node &annotation, const Permission & /*permission*/, Config &into) {
    FastPath wanted = into.fast_path;
    TRY(read_fast_path(annotation, wanted));
    into.fast_path = std::min(into.fast_path, wanted);
    return {};
}

Result<void> apply_sysctls(const Node &annotation, const Permission &permission, Config &into) {
    for (const std::string &item : TRY(list_in(annotation))) {
        const std::size_t equals = std::min(item.find('='), item.size());
        const std::string name = item.substr(0, equals);
        if (equals + 1 >= item.size() || !is_printable(item) || item.size() > kLongestLabelValue)
            return annotation.wrong("NAME=VALUE, separated by commas");
        if (std::ranges::find(permission.names, name) == permission.names.end())
            return annotation.wrong("what podMay has in \"names\"");
        into.sysctls[name] = item.substr(equals + 1);
    }
    return {};
}

// One of those that the operator lets the pod choose from.
Result<void> apply_limit_group(const Node &annotation, const Permission &permission, Config &into) {
    const std::string name = TRY(annotation.text());
    if (std::ranges::find(permission.names, name) == permission.names.end())
        return annotation.wrong("what podMay has in \"names\"");
    into.limit_group = name;
    return {};
}

// Beside those that the configuration puts it in.
Result<void> apply_groups(const Node &annotation, const Permission &permission, Config &into) {
    for (std::string &name : TRY(names_in(annotation, permission)))
        if (std::ranges::find(into.groups, name) == into.groups.end())
            into.groups.push_back(std::move(name));
    return {};
}

// Beside those of the configuration. Every next hop is the host-side veth.
Result<void> apply_routes(const Node &annotation, const Permission &permission, Config &into) {
    for (const Prefix &prefix : TRY(prefixes_in(annotation, permission)))
        into.routes.push_back({.destination = prefix});
    return {};
}

constexpr std::array<Word<bool>, 2> kTruth{{{"true", true}, {"false", false}}};

Result<void> apply_default_route(const Node &annotation, const Permission & /*permission*/, Config &into) {
    bool wanted = false;
    TRY(read_word(annotation, kTruth, wanted));
    into.default_route = wanted;
    return {};
}

// The next hop on the network's uplink, in place of the configured one of its family. It never chooses the uplink.
Result<void> apply_gateway(const Node &annotation, const Permission &permission, Config &into) {
    if (into.uplink.empty() && !into.table)
        return annotation.wrong("\"uplink\" in the configuration, on whose link the gateway is");
    std::vector<ip_addr> gateways;
    for (const Prefix &one : TRY(prefixes_in(annotation, permission))) {
        const bool ipv4 = is_ipv4(one.addr);
        const auto of_family = [&](const ip_addr &addr) { return is_ipv4(addr) == ipv4; };
        if (!is_host_prefix(one) || std::ranges::any_of(gateways, of_family))
            return annotation.wrong("at most one address of each family");
        if (!is_unicast(one.addr))
            return annotation.wrong("the unicast address of a router");
        std::erase_if(into.gateways, of_family);
        gateways.push_back(one.addr);
    }
    std::ranges::copy(gateways, std::back_inserter(into.gateways));
    return {};
}

Result<void> apply_keep_address(const Node &annotation, const Permission & /*permission*/, Config &into) {
    bool keeps = false;
    TRY(read_word(annotation, kTruth, keeps));
    into.pod_keeps_address = keeps;
    return {};
}

struct Annotation {
    std::string_view name;
    PodSetting setting;
    Apply apply; // null: read with the limits
};

constexpr auto kNoCalicos = static_cast<std::vector<std::string> Config::*>(nullptr);
constexpr auto kKnown = std::to_array<Annotation>({
    {"kubernetes.io/ingress-bandwidth", PodSetting::bandwidth, nullptr},
    {"kubernetes.io/egress-bandwidth", PodSetting::bandwidth, nullptr},
    {"podlane/ingressRate", PodSetting::bandwidth, nullptr},
    {"podlane/ingressBurst", PodSetting::bandwidth, nullptr},
    {"podlane/egressRate", PodSetting::bandwidth, nullptr},
    {"podlane/egressBurst", PodSetting::bandwidth, nullptr},
    {"qos.projectcalico.org/ingressBandwidth", PodSetting::bandwidth, nullptr},
    {"qos.projectcalico.org/ingressBurst", PodSetting::bandwidth, nullptr},
    {"qos.projectcalico.org/egressBandwidth", PodSetting::bandwidth, nullptr},
    {"qos.projectcalico.org/egressBurst", PodSetting::bandwidth, nullptr},
    {"cni.projectcalico.org/ipAddrs", PodSetting::addresses, apply_addresses},
    {"podlane/addresses", PodSetting::addresses, apply_addresses},
    {"cni.projectcalico.org/ipAddrsNoIpam", PodSetting::addresses_without_ipam, apply_own_addresses},
    {"podlane/addressesWithoutIpam", PodSetting::addresses_without_ipam, apply_own_addresses},
    {"cni.projectcalico.org/ipv4pools", PodSetting::pools, apply_pools<&Config::calico_pools4>},
    {"cni.projectcalico.org/ipv6pools", PodSetting::pools, apply_pools<&Config::calico_pools6>},
    {"podlane/pools", PodSetting::pools, apply_pools<kNoCalicos>},
    {"cni.projectcalico.org/hwAddr", PodSetting::mac, apply_mac},
    {"podlane/mac", PodSetting::mac, apply_mac},
    {"cni.projectcalico.org/allowedSourcePrefixes", PodSetting::allowed_sources, apply_sources},
    {"podlane/allowedSources", PodSetting::allowed_sources, apply_sources},
    {"podlane/mtu", PodSetting::mtu, apply_mtu},
    {"podlane/fastPath", PodSetting::fast_path, apply_fast_path},
    {"podlane/sysctls", PodSetting::sysctls, apply_sysctls},
    {"podlane/limitGroup", PodSetting::limit_group, apply_limit_group},
    {"podlane/groups", PodSetting::groups, apply_groups},
    {"podlane/routes", PodSetting::routes, apply_routes},
    {"podlane/defaultRoute", PodSetting::routes, apply_default_route},
    {"podlane/gateway", PodSetting::gateway, apply_gateway},
    {"podlane/keepAddress", PodSetting::keep_address, apply_keep_address},
});

// Of Calico's that set something, and that Podlane has nothing for.
constexpr std::array<std::string_view, 3> kNotSupported{
    "cni.projectcalico.org/floatingIPs", "cni.projectcalico.org/interfaceName", "cni.projectcalico.org/networks"};

bool sets_something(std::string_view name) {
    return name.starts_with("podlane/") || std::ranges::find(kNotSupported, name) != kNotSupported.end();
}

std::string_view word_of(PodSetting setting) {
    return std::ranges::find(kSettings, setting, &std::pair<std::string_view, PodSetting>::second)->first;
}

std::string source_of(const Node &setting, std::string_view name) {
    const bool is_of_attachment = setting.path().starts_with("args.");
    return is_of_attachment ? "key " + json::quote(name) + " of args.cni" : "annotation " + json::quote(name);
}

// Logged, unless the configuration has it refused.
Result<void> turn_down(const std::string &sentence, std::string hint, const Config &config,
                       std::vector<std::string> &warnings) {
    if (config.refuse_annotations)
        return Error{ErrorCode::invalid_network_config, sentence, std::move(hint)};
    warnings.push_back(sentence + "; it is ignored");
    return {};
}

} // namespace

Result<void> read_pod_may(const Node &node, std::array<Permission, kPodSettings> &into) {
    if (!node.present())
        return {};
    into = {};
    const auto read_one = [&](const Node &at, std::string_view word, const Node &bounds) -> Result<void> {
        const auto setting = setting_of(word);
        if (!setting)
            return at.wrong(kWords);
        Permission &permission = into.at(index_of(*setting));
        permission.granted = true;
        return bounds.present() ? read_permission(bounds, *setting, permission)
                                : check_bounds(at, *setting, permission);
    };
    if (!node.value().is_object()) {
        for (const Node &element : TRY(node.elements(R"(["bandwidth", "mtu"])")))
            TRY(read_one(element, element.text() ? *element.text() : std::string(), Node(nullptr, {})));
        return {};
    }
    for (const auto &[word, bounds] : node.value().items())
        TRY(read_one(node.at(word), word, node.at(word)));
    return {};
}

Result<void> read_pod_may_not(const Node &node, bool &refuse) {
    constexpr std::array<Word<bool>, 2> kWords{{{"ignore", false}, {"refuse", true}}};
    return read_word(node, kWords, refuse);
}

Result<void> apply_annotations(const Node &root, Config &config, std::vector<std::string> &warnings) {
    const Node all = root.at_any_case("runtimeConfig").at_any_case(kPodAnnotations);
    if (!all.present() || !all.value().is_object())
        return {};
    for (const auto &[name, value] : all.value().items()) {
        const auto *const known = std::ranges::find(kKnown, name, &Annotation::name);
        const Node annotation = pod_setting(root, name);
        if (known == kKnown.end()) {
            if (sets_something(name))
                TRY(turn_down(source_of(annotation, name) + " sets nothing that Podlane knows", "remove it", config,
                              warnings));
            continue;
        }
        const Permission &permission = config.pod_may.at(index_of(known->setting));
        if (!annotation.present())
            continue;
        if (!permission.granted)
            TRY(turn_down(source_of(annotation, name) + " sets what the pod may not",
                          "remove it, or add \"" + std::string(word_of(known->setting)) + "\" to \"podMay\"", config,
                          warnings));
        else if (known->apply != nullptr)
            TRY(known->apply(annotation, permission, config));
    }
    return {};
}

} // namespace podlane::cni
