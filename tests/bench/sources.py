# SPDX-License-Identifier: MIT
"""(e) Pods with two interfaces: Podlane twice beside `ptp` with `sbr` for the second; and what the step costs a packet."""

import node
import plugins
import report
import streams
import verbs

MEASUREMENTS = ("tcp_rr", "tcp_rr_one_cpu", "tcp_crr")
FIRST_NUMBER = 231
LINKS = {4: "192.0.2.", 6: "2001:db8:f0::"}
LENGTHS = {4: 24, 6: 64}
SBR = [plugins.PTP, {"type": "sbr"}]


class Pod(streams.Served):
    """A pod with eth0 and net1 on one node; a client behind an uplink asks net1."""

    def __init__(self, name, number, second, settings, families=streams.FAMILIES):
        self.name = name
        first = [plugins.PODLANE if second == [plugins.PODLANE] else plugins.PTP]
        self.chains = [plugins.Chain(f"{name}-eth0", number, families, first, settings)]
        self.node = self.chains[0].netns
        self.chains.append(
            plugins.Chain(f"{name}-net1", number + 1, families, second, settings, netns=self.node, ifname="net1")
        )
        self.pods = [node.add_netns(f"pod-{name}-{number}"), node.add_netns(f"client-{name}-{number}")]
        subnets = {family: f"{LINKS[family]}/{LENGTHS[family]}" for family in streams.FAMILIES}
        uplink = node.connect_directly(self.node, self.pods[1], subnets, "up0")
        for family in families:
            default = {4: "default", 6: "::/0"}[family]
            node.run("ip", "-n", self.node, "route", "add", default, "via", uplink[1][family])
            node.run("ip", "-n", self.pods[1], "route", "add", default, "via", uplink[0][family])

    def up(self):
        results = [chain.add("bench-up", self.pods[0])[1] for chain in self.chains]
        self.server = plugins.addresses(results[1])
        return self

    def add(self, container):
        """ADD of both interfaces, and then DEL; the steps of each."""
        added = [chain.add(container, self.pods[0]) for chain in self.chains]
        deleted = [
            step
            for chain, (_, result) in reversed(list(zip(self.chains, added)))
            for step in chain.delete(container, self.pods[0], result)
        ]
        return {"ADD": [step for steps, _ in added for step in steps], "DEL": deleted}

    def remove(self):
        node.delete_netns(*self.pods, self.node)


def make_pods(settings, number, families=streams.FAMILIES):
    peers = {"ptp, ptp+sbr": SBR}
    if settings.podlane:
        peers["podlane twice"] = [plugins.PODLANE]
    return [
        Pod(name.replace(", ", "-").replace(" ", "-"), number + 4 * i, second, settings, families)
        for i, (name, second) in enumerate(peers.items())
    ]


def measure_verbs(settings, log):
    pods = make_pods(settings, FIRST_NUMBER, (4,))
    for pod in pods:
        pod.add("bench-first")
    measured = {pod.name: [] for pod in pods}
    for i in range(settings.rounds):
        report.progress(f"ADD and DEL of two interfaces: round {i + 1} of {settings.rounds}")
        shift = i % len(pods)
        for pod in pods[shift:] + pods[:shift]:
            measured[pod.name].append(pod.add(f"bench{i:06d}"))
            log.write(part="sources", kind="time", round=i, chain=pod.name, **measured[pod.name][-1])
    report.progress("")
    for verb in ("ADD", "DEL"):
        walls = {name: [verbs.total(one[verb])["wall"] for one in ones] for name, ones in measured.items()}
        rows = [
            [
                pod.name,
                f"{report.median(walls[pod.name]) / 1000:.2f}",
                report.cell(report.ratio(walls[pod.name], walls[pods[0].name]), "{:.3f}"),
            ]
            for pod in pods
        ]
        report.table(f"{verb} of both interfaces, IPv4, {settings.rounds} rounds, medians", ["", "wall ms", "ratio"], rows)
    for pod in pods:
        pod.remove()


def measure(settings, log):
    if not settings.only_traffic:
        measure_verbs(settings, log)
    report.progress("setting up pods with two interfaces")
    pods = [pod.up() for pod in make_pods(settings, FIRST_NUMBER + 10)]
    streams.measure_all(settings, log, pods, "over net1", settings.only_traffic or MEASUREMENTS)
