# SPDX-License-Identifier: MIT
"""Established connections that the node's rules translate or judge: to a Service, by a NodePort, with masquerade, and
behind many rules in FORWARD. Podlane carries them as its default, "firstPacket": "host", does."""

import node
import plugins
import report
import services
import streams

FIRST_NUMBER = 231
RULES = 1000
MEASUREMENTS = ("tcp_stream", "tcp_rr_one_cpu", "tcp_crr")
CLUSTER_IP = {4: "198.19.255.1", 6: "2001:db8:ffff:ffff::1"}
UPLINK = {4: "192.0.2.", 6: "2001:db8:f0::"}
LENGTH = {4: 24, 6: 64}
TABLES = {4: "iptables", 6: "ip6tables"}


def on_node(netns, family, *words):
    node.run("nsenter", f"--net=/run/netns/{netns}", TABLES[family], *words)


def translate(netns, service, server):
    """Behind all services that are loaded, as the last of them."""
    for family, address in service.items():
        on_node(netns, family, "-t", "nat", "-A", "PREROUTING", "-d", address, "-p", "tcp", "-j", "DNAT",
                "--to-destination", server[family])


class ToService(streams.Served):
    """The same two pods, by a ClusterIP."""

    def __init__(self, name, pair):
        self.name, self.pods, self.server, self.service = name, pair.pods, pair.server, CLUSTER_IP
        translate(pair.node, self.service, self.server)

    def mtu(self):
        return node.link(self.pods[0])["mtu"]

    def remove(self):
        """The pair does."""


class Outside(streams.Served):
    """A pod and a host on its node's uplink; the host opens connections to a NodePort, or the pod with masquerade."""

    def __init__(self, name, number, plugin, inbound, settings, service_count):
        self.name = name
        host, pod = node.add_netns(f"host-{name}-{number}"), node.add_netns(f"pod-{name}-{number}")
        self.pods = [pod, host] if inbound else [host, pod]
        self.netns = host, pod
        keys = {**plugin, "ipMasq": True, **({"uplinks": ["up0"]} if plugin["type"] == "podlane" else {})}
        chain = plugins.Chain(name, number, streams.FAMILIES, [keys], settings)
        subnets = {family: f"{UPLINK[family]}/{LENGTH[family]}" for family in streams.FAMILIES}
        uplink, far = node.connect_directly(chain.netns, host, subnets, "up0")
        self.node = chain.netns
        if service_count:  # before ADD, whose rules they would replace
            services.load(self.node, service_count, streams.FAMILIES)
        pod_addresses = plugins.addresses(chain.add(f"bench-{name}-{number}", pod)[1])
        self.server = pod_addresses if inbound else far
        if inbound:
            self.service = uplink
            translate(self.node, self.service, self.server)

    def mtu(self):
        return 1500

    def remove(self):
        node.delete_netns(*self.netns, self.node)


def peers(settings):
    return {"ptp": plugins.PTP, **({"podlane": plugins.PODLANE} if settings.podlane else {})}


def measure_service(settings, log, count):
    pairs = [streams.Pair(name, FIRST_NUMBER + i, [keys], settings, count)
             for i, (name, keys) in enumerate(reversed(peers(settings).items()))]
    to_service = [ToService(pair.name if pair.name == "ptp" else f"{pair.name}, Service", pair) for pair in pairs]
    for pair in pairs:
        pair.name += ", pod"
    streams.measure_all(settings, log, [*pairs, *to_service], f"ClusterIP, {count} services",
                        settings.only_traffic or MEASUREMENTS)


def measure_outside(settings, log, inbound, count):
    first = FIRST_NUMBER + (2 if inbound else 4)
    found = [Outside(name, first + i, keys, inbound, settings, count)
             for i, (name, keys) in enumerate(peers(settings).items())]
    what = "from outside to a NodePort" if inbound else "to the outside with masquerade"
    streams.measure_all(settings, log, found, f"{what}, {count} services", settings.only_traffic or ("tcp_stream",))


def measure_policy(settings, log):
    pairs = [streams.Pair(name, FIRST_NUMBER + 6 + i, keys and [keys], settings, 0)
             for i, (name, keys) in enumerate({"veth": None, **peers(settings)}.items())]
    for pair in pairs:
        if pair.node is None:
            continue
        for family in streams.FAMILIES:
            lines = [f"-A FORWARD -d {plugins.subnet(family, 250)} -p tcp --dport {port + 1} -j DROP"
                     for port in range(RULES)]
            node.run("nsenter", f"--net=/run/netns/{pair.node}", f"{TABLES[family]}-restore", "--noflush",
                     text="\n".join(["*filter", *lines, "COMMIT", ""]))
    streams.measure_all(settings, log, pairs, f"{RULES} rules in FORWARD",
                        settings.only_traffic or ("tcp_stream", "tcp_rr"))


def measure(settings, log):
    count = max(settings.services)
    report.progress("setting up, translated connections")
    measure_service(settings, log, count)
    for inbound in (True, False):
        measure_outside(settings, log, inbound, count)
    measure_policy(settings, log)
