// SPDX-License-Identifier: MIT
// Findings of podlanectl doctor about networks: in the runtime's configuration, and in the maps.
#pragma once

#include "tests/netns/doctor.hpp"

namespace podlane::test {

// The runtime's configuration of a network, Podlane's own plugin alone.
inline void configure(const Doctor &d, Json keys, const std::string &range = "198.18.77.0/24") {
    keys.update({{"type", "podlane"}, {"ipam", {{"type", "host-local"}, {"ranges", {{{{"subnet", range}}}}}}}});
    std::ofstream(d.node_.dir() + "/10-podlane.conflist")
        << Json{{"cniVersion", "1.0.0"}, {"name", "pods"}, {"plugins", {keys}}};
}

// As `kubectl get nodes -o json` prints them: this node, and those with these ranges.
inline void list_nodes(Doctor &d, const std::vector<std::pair<std::string, std::vector<std::string>>> &others) {
    const Json addresses = {{{"type", "Hostname"}, {"address", "a"}},
                            {{"type", "InternalIP"}, {"address", "203.0.113.2"}}};
    Json items = Json::array();
    items.push_back({{"metadata", {{"name", "a"}}},
                     {"spec", {{"podCIDRs", {"198.18.64.0/24"}}}},
                     {"status", {{"addresses", addresses}}}});
    for (const auto &[name, ranges] : others)
        items.push_back(
            {{"metadata", {{"name", name}}}, {"spec", ranges.empty() ? Json::object() : Json{{"podCIDRs", ranges}}}});
    const std::string file = d.node_.dir() + "/nodes";
    std::ofstream(file) << Json{{"kind", "List"}, {"items", items}};
    d.nodes_ = " --nodes " + file;
}

const std::vector<Fault> kNetworkFaults = {
    {"NetworkFileWithAComma", "network-file", "20-more.conf: the network's configuration", false,
     [](Doctor &d) { std::ofstream(d.node_.dir() + "/20-more.conf") << R"({"name": "more", "type": "podlane",})"; },
     false},
    {"NetworkFileWithoutAList", "network-file", "10-podlane.conflist: plugins is ", false,
     [](Doctor &d) {
         std::ofstream(d.node_.dir() + "/10-podlane.conflist") << R"({"name": "pods", "plugins": {"type": "podlane"}})";
     },
     false},
    {"NobodyMasquerades", "no-masquerade", "198.18.77.0/24 of network pods is neither masqueraded nor", false,
     [](Doctor &d) {
         configure(d, {{"ipMasq", false}});
     },
     false},
    {"ServicesAmongThePods", "service-range", "198.18.0.0/15, which contains the ClusterIP 198.19.0.1", false,
     [](Doctor &d) {
         configure(d, {{"ipMasq", true}, {"clusterCIDRs", {"198.18.0.0/15"}}});
         d.on_node("nft add table ip kube-proxy; add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . "
                   "inet_service : verdict ; elements = { 198.19.0.1 . tcp . 443 : accept } ; }");
     },
     false},
    {"NoRouteToOtherNodes", "cluster-route", "no route leads to other nodes' pods in 198.18.64.0/18", false,
     [](Doctor &d) {
         configure(d, {{"ipMasq", true}, {"clusterCIDRs", {"198.18.64.0/18"}}});
     },
     false},
    {"NoRouteToOneNode", "node-route", "no route but the default one leads to 198.18.66.0/24 of node c", false,
     [](Doctor &d) {
         list_nodes(d, {{"b", {"198.18.65.0/24"}}, {"c", {"198.18.66.0/24"}}});
         d.on_node("ip route add 198.18.65.0/24 via 203.0.113.1");
     },
     false},
    {"NoLoopbackPlugin", "loopback", "there is no plugin loopback in ", false,
     [](Doctor &d) {
         d.node_.remove_plugin("loopback");
         d.setup_ += "mount -t tmpfs none /run && mkdir /run/containerd && : > /run/containerd/containerd.sock && ";
     },
     false},
    {"RangeOfTheNodesNetwork", "range-overlap", "203.0.113.0/25 of network pods overlaps 203.0.113.0/24 of up0", false,
     [](Doctor &d) {
         configure(d, {{"ipMasq", true}}, "203.0.113.0/25");
     }},
    {"NetworkGone", "asked-entry", "the entry of network pods", true,
     [](Doctor &d) { (void)require(d.open(&open_networks).remove(network_id("pods"))); }},
    {"UplinkOfUnknownNetwork", "unused-network", "names network 4711, which is not in networks_v1", true,
     [](Doctor &d) {
         const auto uplinks = d.open(&open_uplinks);
         auto [ifindex, value] = require(uplinks.entries()).at(0);
         value.networks[1] = 4711;
         require(uplinks.update(ifindex, value));
     },
     false},
    {"NetworkWithoutPods", "unused-network", "network former has no pod", true,
     [](Doctor &d) {
         network former{};
         ASSERT_TRUE(set_field(former.name, "former"));
         require(d.open(&open_networks).update(network_id("former"), former));
     },
     false},
    {"NetworkWithoutUplinkPrograms", "asked-entry", "network pods has no programs on uplinks", true,
     [](Doctor &d) {
         const auto networks = d.open(&open_networks);
         auto entry = *require(networks.find(network_id("pods")));
         entry.has_uplinks = 0;
         require(networks.update(network_id("pods"), entry));
     }},
};

} // namespace podlane::test
