// SPDX-License-Identifier: MIT
#include "plugin/plan_json.hpp"

#include "maps/words.hpp"
#include "plugin/cni/json.hpp"

#include <arpa/inet.h>

#include <string_view>

namespace podlane {
namespace {

using Json = cni::json::Printable;

std::string_view masquerade_word(endpoint_masquerade by) {
    return by == ENDPOINT_MASQUERADE_NFTABLES ? "nftables" : "iptables";
}

// As `ip address` and `ip route` print them.
std::string address_text(const net::Address &one) {
    return to_string(one.prefix) + ((one.flags & net::kNoDad) != 0 ? " nodad" : "") +
           (one.scope == net::kScopeLink ? " scope link" : "");
}

std::string route_text(const net::RouteSpec &route) {
    std::string text = to_string(route.destination);
    const auto add = [&](const char *word, const auto &value) {
        if (value)
            text += std::string(" ") + word + " " + std::to_string(*value);
    };
    if (route.gateway)
        text += " via " + to_string(*route.gateway);
    if (route.scope == net::kScopeLink)
        text += " scope link";
    add("table", route.table);
    add("metric", route.priority);
    add("mtu", route.mtu);
    add("advmss", route.advmss);
    return text + (route.onlink ? " onlink" : "") + (route.append ? " append" : "");
}

template <typename T> Json list(const std::vector<T> &all, auto text) {
    Json values = Json::array();
    for (const T &one : all)
        values.push_back(text(one));
    return values;
}

Json texts(const auto &all) {
    Json values = Json::array();
    for (const auto &one : all)
        values.push_back(to_string(one));
    return values;
}

Json settings_json(const std::vector<Setting> &all) {
    Json values = Json::object();
    for (const Setting &one : all) {
        std::string path;
        for (const std::string &part : one.path)
            path += (path.empty() ? "" : "/") + part;
        values[path] = one.value;
    }
    return values;
}

Json neighbours_json(const std::vector<net::Neighbour> &all) {
    Json values = Json::object();
    for (const net::Neighbour &one : all)
        values[to_string(one.addr)] = to_string(one.mac);
    return values;
}

// Without one, no program, map or network is concerned.
bool has_host_veth(const Plan &plan) { return !plan.host_ifname.empty(); }

Json links_json(const Plan &plan) {
    Json pod = {{"name", plan.ifname}, {"ifindex", plan.pod_ifindex}, {"mac", to_string(plan.pod_mac)}};
    pod["mtu"] = plan.mtu;
    pod["namespace"] = plan.netns;
    const bool is_created = plan.mode != ENDPOINT_AFTER_MAIN;
    if (!has_host_veth(plan))
        return {{"created", is_created}, {"container", std::move(pod)}};
    Json host = {{"name", plan.host_ifname}, {"ifindex", plan.ifindex}, {"mac", to_string(plan.host_mac)}};
    host["mtu"] = plan.mtu;
    host["alias"] = plan.alias;
    return {{"created", is_created}, {"container", std::move(pod)}, {"host", std::move(host)}};
}

Json programs_json(const Plan &plan) {
    Json all = {{"by", attach_name(attach_of(plan.hook_kind))}};
    for (const HookProgram &one : kPodPrograms)
        all[one.hook == Hook::ingress ? "ingress" : "egress"] = one.name;
    return all;
}

Json source_json(const source_route &route) {
    Json value = {{"source", to_string(route.source)}, {"owner", route.ifindex}};
    if (route.uplink != 0)
        value["uplink"] = route.uplink;
    if (!is_none(route.gateway))
        value["gateway"] = to_string(route.gateway);
    return value;
}

Json limits_json(const bandwidth &limits) {
    return {{"ingressRate", limits.ingress_rate_bits_per_s},
            {"ingressBurst", limits.ingress_burst_bits},
            {"egressRate", limits.egress_rate_bits_per_s},
            {"egressBurst", limits.egress_burst_bits}};
}

Json isolation_json(const IsolationEntry &entry) {
    return {{"groups", entry.groups},
            {"accepted", entry.accepted},
            {"host", (entry.flags & ISOLATION_HOST) != 0},
            {"outside", (entry.flags & ISOLATION_OUTSIDE) != 0}};
}

// By map; an entry's key is the host-side veth's ifindex if nothing else is said.
Json entries_json(const Plan &plan, const EndpointEntries &entries, const SourceEntries &sources) {
    Json all = {{PODLANE_MAP_ENDPOINTS, 1}};
    if (!has_host_veth(plan))
        return all;
    all[PODLANE_MAP_COUNTERS] = 1;
    if (!entries.exempts.empty())
        all[PODLANE_MAP_EXEMPT] = list(entries.exempts, [](const auto &one) {
            const bool is_ingress = ntohl(one.first.direction) == LIMIT_INGRESS;
            return std::string(is_ingress ? "ingress " : "egress ") + to_string(prefix_of(one.first)) +
                   (one.second != 0 ? "" : " unshaped");
        });
    if (entries.limits) {
        all[PODLANE_MAP_BANDWIDTHS] = limits_json(*entries.limits);
        all[PODLANE_MAP_LIMITS] = {"ingress", "egress"};
    }
    if (const auto &group = plan.network.limit_group)
        all[PODLANE_MAP_LIMIT_GROUPS] = {
            {std::string(field_text(group->entry.name)), limits_json(group->entry.configured)}};
    if (entries.keeps_paths)
        all[PODLANE_MAP_KEPT_PATHS] = 1;
    if (!entries.allowed_sources.empty())
        all[PODLANE_MAP_SOURCES] = texts(entries.allowed_sources);
    if (const auto &isolation = entries.isolation)
        all[PODLANE_MAP_ISOLATION] = isolation_json(*isolation);
    if (entries.isolation && !entries.isolation->remotes.empty())
        all[PODLANE_MAP_GROUP_CIDRS] = list(entries.isolation->remotes, [](const auto &one) {
            return to_string(one.first) + (one.second ? "" : " refused");
        });
    all[PODLANE_MAP_INTERFACES] = {{"network", entries.interface_entry.network}, {"flags", flag_words(plan.flags)}};
    all[PODLANE_MAP_ADDRESSES] = list(entries.addresses, [](const auto &one) { return to_string(one.first.addr); });
    all[PODLANE_MAP_SENDERS] = list(
        entries.senders, [](const sender_key &one) { return std::to_string(one.netns) + " " + to_string(one.addr); });
    if (!sources.routes.empty())
        all[PODLANE_MAP_SOURCE_ROUTES] = list(sources.routes, [](const auto &one) { return source_json(one.second); });
    if (!sources.slots.empty())
        all[PODLANE_MAP_SOURCE_SLOTS] = list(sources.slots, [](const auto &one) { return source_json(one.second); });
    return all;
}

Json network_json(const Plan &plan) {
    const NetworkPlan &network = plan.network;
    Json value = {{"name", field_text(network.entry.name)}, {"number", network.id}};
    value["programsOnUplinks"] = network.entry.has_uplinks != 0;
    if (network.own_address_rules)
        value["ownAddressRules"] = true;
    if (network.is_tracked)
        value["conntrackRule"] = true;
    const bool are_default = network.uplinks.empty() && network.entry.has_uplinks != 0;
    value["uplinks"] = are_default ? Json("of the default routes") : Json(network.uplinks);
    value["clusterCIDRs"] = texts(network.cluster_cidrs);
    return value;
}

} // namespace

std::string to_json(const Plan &plan, const EndpointEntries &entries, const SourceEntries &sources, int indent) {
    Json all = {{"mode", mode_name(plan.mode)}, {"links", links_json(plan)}};
    all["container"] = {{"settings", settings_json(plan.pod_settings)},
                        {"addresses", list(plan.pod_addresses, address_text)},
                        {"routes", list(plan.pod_routes, route_text)},
                        {"neighbours", neighbours_json(plan.pod_neighbours)}};
    if (plan.mode != ENDPOINT_AFTER_MAIN)
        all["container"]["lo"] = "up";
    if (!plan.pod_qdisc.empty())
        all["container"]["qdisc"] = plan.pod_qdisc;
    if ((plan.flags & INTERFACE_POD_RULES) != 0)
        all["container"]["rulesFrom"] = texts(plan.addresses);
    std::vector<Setting> settings = plan.node_settings;
    settings.insert(settings.end(), plan.host_settings.begin(), plan.host_settings.end());
    all["node"] = {{"settings", settings_json(settings)},
                   {"addresses", list(plan.host_addresses, address_text)},
                   {"routes", list(plan.host_routes, route_text)},
                   {"neighbours", neighbours_json(plan.host_neighbours)}};
    if (plan.uplink != 0)
        all["node"]["announcedOn"] = plan.uplink;
    if (has_host_veth(plan))
        all["programs"] = programs_json(plan);
    if (!plan.qdisc.empty())
        all["qdisc"] = plan.qdisc;
    all["entries"] = entries_json(plan, entries, sources);
    if (has_host_veth(plan))
        all["network"] = network_json(plan);
    if (plan.masquerade != ENDPOINT_MASQUERADE_NONE)
        all["nat"] = {{"by", masquerade_word(plan.masquerade)}, {"addresses", texts(plan.masqueraded)}};
    if (!plan.egress_sets.empty())
        all["egress"] = {{"by", "nftables"}, {"interface", plan.host_ifname}, {"sets", plan.egress_sets}};
    if (!plan.ipam_type.empty())
        all["lease"] = {{"of", plan.ipam_type}, {"addresses", texts(plan.addresses)}};
    return cni::json::print(all, indent);
}

} // namespace podlane
