// SPDX-License-Identifier: MIT
// doctor: what the runtime's configuration of Podlane's networks needs of the node and of its routes.
#include "loader/net/route.hpp"
#include "maps/file.hpp"
#include "plugin/masquerade.hpp"
#include "tools/podlanectl/doctor/doctor.hpp"
#include "tools/podlanectl/doctor/nat_rules.hpp"

#include <algorithm>
#include <array>

namespace podlane::ctl::doctor {
namespace {

Result<void> look_at_files(const NodeView &node, Findings &findings) {
    for (const ForeignNetwork &file : TRY(networks_in(node.conf_dir)))
        if (!file.unread.empty())
            report(findings,
                   "the runtime passes over " + node.conf_dir + "/" + printable(file.file) + ": " + file.unread);
    return {};
}

bool overlap(const Prefix &a, const Prefix &b) { return contains(a, b) || contains(b, a); }

Result<std::vector<net::RouteSpec>> routes_of_node(const NodeView &node) {
    std::vector<net::RouteSpec> all;
    for (const net::Family family : {net::Family::ipv4, net::Family::ipv6})
        std::ranges::move(TRY(net::list_routes(*node.host, 0, family)), std::back_inserter(all));
    return all;
}

bool is_default(const net::RouteSpec &route) { return route.destination.length == 0; }

Result<void> look_at_masquerade(const NodeView &node, Findings &findings) {
    for (const RuntimeNetwork &network : TRY(node.networks)) {
        if (network.masquerades)
            (void)TRY(choose_masquerade()); // its next ADD would fail
        if (network.masquerades || network.has_uplink || !network.makes_links)
            continue;
        const auto routes = TRY(routes_of_node(node));
        for (const Prefix &range : network.ranges) {
            const bool is_known = std::ranges::any_of(routes, [&](const net::RouteSpec &route) {
                return net::is_of_daemon(route) || (net::is_of_link(route) && contains(route.destination, range));
            });
            if (!is_known && !TRY(is_masqueraded_by_others(range)))
                report(findings, to_string(range) + " of network " + network.name +
                                     " is neither masqueraded nor announced to a router");
        }
    }
    return {};
}

Result<void> look_at_service_range(const NodeView &node, Findings &findings) {
    const auto has_clusters = [](const RuntimeNetwork &network) { return !network.clusters.empty(); };
    const auto networks = TRY(node.networks);
    if (std::ranges::none_of(networks, has_clusters))
        return {};
    const auto services = TRY(cluster_ips());
    for (const RuntimeNetwork &network : networks)
        for (const Prefix &cluster : network.clusters) {
            const auto inside =
                std::ranges::find_if(services, [&](const ip_addr &addr) { return contains(cluster, addr); });
            if (inside != services.end())
                report(findings, "\"clusterCIDRs\" of network " + network.name + " has " + to_string(cluster) +
                                     ", which contains the ClusterIP " + to_string(*inside));
        }
    return {};
}

Result<void> look_at_cluster_routes(const NodeView &node, Findings &findings) {
    for (const RuntimeNetwork &network : TRY(node.networks)) {
        if (network.clusters.empty() || network.has_uplink)
            continue;
        const auto routes = TRY(routes_of_node(node));
        const auto is_own = [&](const Prefix &prefix) {
            return std::ranges::any_of(network.ranges, [&](const Prefix &range) { return contains(range, prefix); });
        };
        for (const Prefix &cluster : network.clusters)
            if (!is_own(cluster) && std::ranges::none_of(routes, [&](const net::RouteSpec &route) {
                    return !is_default(route) && !is_own(route.destination) && overlap(route.destination, cluster);
                }))
                report(findings,
                       "no route leads to other nodes' pods in " + to_string(cluster) + " of network " + network.name);
    }
    return {};
}

Result<bool> is_own(net::Netlink &host, const ip_addr &address) {
    const auto route = TRY(net::route_to(host, address));
    return route && route->type == net::kLocal;
}

Result<void> look_at_node_routes(const NodeView &node, Findings &findings) {
    for (const ClusterNode &other : node.cluster) {
        bool is_this = false;
        for (const ip_addr &address : other.addresses)
            is_this = is_this || TRY(is_own(*node.host, address));
        if (is_this)
            continue;
        for (const Prefix &range : other.ranges) {
            const auto route = TRY(net::route_to(*node.host, range.addr));
            if (!route || route->type != net::kUnicast || is_default(*route))
                report(findings, std::string("no route") + (route && is_default(*route) ? " but the default one" : "") +
                                     " leads to " + to_string(range) + " of node " + other.name);
        }
    }
    return {};
}

Result<void> look_at_loopback(const NodeView &node, Findings &findings) {
    constexpr const char *kContainerd = "/run/containerd/containerd.sock";
    if (TRY(exists(kContainerd)) && TRY(exists(node.bin_dir + "/podlane")) && !TRY(exists(node.bin_dir + "/loopback")))
        report(findings, "there is no plugin loopback in " + node.bin_dir);
    return {};
}

Result<void> look_at_ranges(const NodeView &node, Findings &findings) {
    for (const RuntimeNetwork &network : TRY(node.networks)) {
        if (network.has_uplink || !network.makes_links)
            continue;
        for (const net::RouteSpec &route : TRY(routes_of_node(node)))
            for (const Prefix &range : network.ranges)
                if (net::is_of_link(route) && overlap(route.destination, range))
                    report(findings,
                           to_string(range) + " of network " + network.name + " overlaps " +
                               to_string(route.destination) + " of " +
                               (node.links.contains(route.ifindex) ? node.links.at(route.ifindex).name
                                                                   : "interface " + std::to_string(route.ifindex)));
    }
    return {};
}

constexpr std::array<Check, 7> kNetworkChecks = {{
    {"network-file", Severity::notice, "pods are not attached to its network, and get another one or none",
     "correct the file, or remove it", &look_at_files},
    {"no-masquerade", Severity::notice,
     "without \"ipMasq\", replies from outside the cluster, the API server's among them, arrive only if the routers "
     "there "
     "have a route to the pods",
     "set \"ipMasq\": true, or have a router or the cloud's route table lead the range to this node",
     &look_at_masquerade},
    {"service-range", Severity::notice,
     "packets to a Service without endpoints leave the node with the pod's address, and with \"firstPacket\": "
     "\"direct\" "
     "and several default routes first packets are not translated",
     "write the pods' own ranges into \"clusterCIDRs\", without the Services'", &look_at_service_range},
    {"cluster-route", Severity::notice,
     "packets to them follow the default route: they arrive only if the router there knows each node's range",
     "have a routing daemon, flannel, a script or the cloud's route table lead each node's range to it; none is needed "
     "on the only node",
     &look_at_cluster_routes},
    {"node-route", Severity::notice,
     "packets to the pods there arrive only if the node has a default route, and the router behind it knows the range",
     "have what installs the other routes (a routing daemon, flannel, a script) install it; by hand: ip route replace "
     "RANGE via ADDRESS, that of the node",
     &look_at_node_routes},
    {"loopback", Severity::notice, "containerd brings up lo with it: without it no pod of containerd's starts",
     "install the CNI plugins of the distribution (containernetworking-plugins) into that directory",
     &look_at_loopback},
    {"range-overlap", Severity::wrong,
     "addresses of pods are addresses of machines too: some of them are not reached, by the pods or by the node",
     "give the network another range, or remove the interface if another CNI plugin has left it", &look_at_ranges},
}};

} // namespace

std::span<const Check> network_checks() { return kNetworkChecks; }

} // namespace podlane::ctl::doctor
