# SPDX-License-Identifier: MIT
"""(d) Pod to pod traffic between two nodes, against the same routing without Podlane and against node to node."""

import node
import plugins
import redirect
import report
import services
import streams

MEASUREMENTS = ("tcp_stream", "tcp_crr")
FIRST_NUMBER = 221
UPLINKS = {4: "192.0.2.", 6: "2001:db8:f0::"}
LENGTHS = {4: 24, 6: 64}


class Nodes(streams.Served):
    """Two nodes of one peer whose uplinks are the ends of a veth, a pod on each; or two nodes alone."""

    def __init__(self, name, number, keys, settings, service_count):
        self.name = name
        subnets = {family: f"{UPLINKS[family]}/{LENGTHS[family]}" for family in streams.FAMILIES}
        if keys is None:
            self.nodes = self.pods = [node.add_netns(f"node-{name}-{number + i}") for i in (0, 1)]
            self.server = node.connect_directly(*self.nodes, subnets, "up0")[0]
            return
        ranges = [plugins.subnet(family, number + i) for i in (0, 1) for family in streams.FAMILIES]
        keys = {**keys, **({"uplinks": ["up0"], "clusterCIDRs": ranges} if keys["type"] == "podlane" else {})}
        chains = [plugins.Chain(name, number + i, streams.FAMILIES, [keys], settings) for i in (0, 1)]
        self.nodes = [chain.netns for chain in chains]
        self.pods = [node.add_netns(f"pod-{name}-{number + i}") for i in (0, 1)]
        uplinks = node.connect_directly(*self.nodes, subnets, "up0")
        for i, chain in enumerate(chains):
            for family in streams.FAMILIES:
                route = [plugins.subnet(family, number + 1 - i), "via", uplinks[1 - i][family]]
                node.run("ip", "-n", chain.netns, "route", "add", *route)
        results = [chain.add(f"bench-{name}-{i}", self.pods[i])[1] for i, chain in enumerate(chains)]
        self.server = plugins.addresses(results[0])
        if name == "redirect":
            for netns, result in zip(self.nodes, results):
                end = redirect.host_veth(result)
                redirect.attach(settings, netns, end, "to_node", "up0")
                redirect.attach(settings, netns, "up0", "to_pod", end)
        if service_count:
            for netns in self.nodes:
                services.load(netns, service_count, streams.FAMILIES)

    def mtu(self):
        return node.link(self.pods[0], "up0" if self.pods is self.nodes else "eth0")["mtu"]

    def remove(self):
        node.delete_netns(*{*self.nodes, *self.pods})


def make_peers(settings, first_number, service_count):
    peers = {"nodes": None, "redirect": plugins.PTP, "ptp": plugins.PTP}
    if settings.podlane:
        peers["podlane"] = plugins.PODLANE
    return [
        Nodes(name, first_number + 2 * i, keys, settings, service_count) for i, (name, keys) in enumerate(peers.items())
    ]


def measure(settings, log):
    for number, service_count in enumerate(settings.services):
        scenario = f"two nodes, {service_count} services" if service_count else "two nodes, no rules"
        report.progress(f"setting up, {scenario}")
        peers = make_peers(settings, FIRST_NUMBER + 10 * number, service_count)
        streams.measure_all(settings, log, peers, scenario, settings.only_traffic or MEASUREMENTS)
