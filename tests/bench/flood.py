# SPDX-License-Identifier: MIT
"""(i) A pod floods another with new flows: what it costs the established connections of two others."""

import json
import subprocess
import sys
import time

import node
import plugins
import report
import services
import streams

FIRST_NUMBER = 241
RATE = 100_000
LEAD = 3  # seconds before the measurement, in which a conntrack table of the default size fills up
FLOODS = {"none": None, "other CPU": 0, "same CPU": 1}  # of its sender and its receiver
IDLE = 63  # connections that send nothing before the end
REQUESTS = ["--mode", "tcp_rr", "--flows", str(1 + IDLE), "--client-cpu", "1", "--server-cpu", "1"]
FLUSH = ("import socket, struct; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12);"  # NETLINK_NETFILTER
         "s.send(struct.pack('=IHHIII', 20, 1 << 8 | 2, 5, 0, 0, 0)); s.recv(64)")  # ctnetlink's delete, acknowledged


def inside(netns, *command):
    return node.run("nsenter", f"--net=/run/netns/{netns}", *command)


def tcp_counters(netns):
    names, values = (line.split()[1:] for line in inside(netns, "cat", "/proc/net/snmp").splitlines()
                     if line.startswith("Tcp:"))
    return dict(zip(names, map(int, values)))


def conntrack_counters(netns):
    names, *cpus = inside(netns, "cat", "/proc/net/stat/nf_conntrack").splitlines()
    cpus = [[int(value, 16) for value in cpu.split()] for cpu in cpus]
    found = {name: sum(cpu[i] for cpu in cpus) for i, name in enumerate(names.split())}
    return {**found, "entries": cpus[0][0]}  # which each CPU repeats


class Node(streams.Served):
    """Four pods of a node with kube-proxy's rules: `pods` are measured, the first of `flooding` is flooded."""

    def __init__(self, name, number, keys, settings):
        self.name = name
        chain = plugins.Chain(name, number, streams.FAMILIES, [keys], settings)
        self.node = chain.netns
        pods = [node.add_netns(f"pod-{name}-{i}") for i in range(4)]
        addresses = [plugins.addresses(chain.add(f"bench-{name}-{i}", pod)[1]) for i, pod in enumerate(pods)]
        services.load(self.node, 0, streams.FAMILIES)
        self.pods, self.server = pods[:2], addresses[0]
        self.flooding, self.flooded = pods[2:], addresses[2]

    def flood(self, settings, family, cpu):
        command = [settings.bench_traffic, "--mode", "udp_flows", "--rate", RATE, "--client-cpu", cpu,
                   "--server-cpu", cpu, "--seconds", LEAD + settings.seconds + 1, "--address", self.flooded[family],
                   "--server-netns", self.flooding[0], "--client-netns", self.flooding[1]]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)

    def measure_beside(self, settings, family, flood_cpu):
        """A connection that breaks, or a request without an answer for 3 s, fails the measurement: "broken"."""
        inside(self.node, sys.executable, "-c", FLUSH)
        conntrack = conntrack_counters(self.node)
        tcp = [tcp_counters(pod) for pod in self.pods]
        flood = None if flood_cpu is None else self.flood(settings, family, flood_cpu)
        time.sleep(LEAD if flood else 0)
        try:
            one = {"broken": 0, **self.measure(settings, REQUESTS, family)}
        except RuntimeError as error:
            print(error)
            one = {"broken": 1}
        for name in "RetransSegs", "EstabResets":
            one[name] = sum(tcp_counters(pod)[name] - before[name] for pod, before in zip(self.pods, tcp))
        if flood:
            sent = json.loads(flood.communicate()[0])
            one |= {"flows_per_s": sent["sent"] / sent["seconds"], "arrived": sent["received"] / sent["sent"]}
        after = conntrack_counters(self.node)
        one |= {name: after[name] - conntrack[name] for name in ("early_drop", "drop")}
        return {**one, "entries": after["entries"]}


def ratio(values, reference):
    pairs = [(v, r) for v, r in zip(values, reference) if v and r]
    return report.cell(report.ratio(*zip(*pairs)) if pairs else None, "{:.3f}")


def show(family, peers, results):
    """Medians of the rounds; of what is lost, the sums."""
    rows = []
    for (peer, flood), ones in results.items():
        def values(key, peer=peer, flood=flood):
            return [one.get(key) for one in results[peer, flood]]

        def median(key, form):
            return report.cell(report.median([value for value in values(key) if value is not None]), form)

        p50 = values("p50_us")
        rows.append([peer, flood, median("p50_us", "{:.1f}"), ratio(p50, values("p50_us", flood="none")),
                     ratio(p50, values("p50_us", peer=peers[-1])), median("p99_us", "{:.1f}"),
                     *(sum(one[key] for one in ones) for key in ("RetransSegs", "EstabResets", "broken")),
                     median("flows_per_s", "{:.0f}"), median("arrived", "{:.1%}"),
                     *(median(key, "{:.0f}") for key in ("entries", "early_drop", "drop"))])
    header = ["", "flood", "p50 us", "to none", "to ptp", "p99 us", "retrans", "resets", "broken", "flows/s", "arrived",
              "entries", "evicted", "refused"]
    report.table(f"tcp_rr beside a flood, IPv{family}, {len(ones)} rounds", header, rows)


def measure(settings, log):
    peers = {"ptp": plugins.PTP}
    if settings.podlane:
        peers = {"podlane": plugins.PODLANE, "podlane-off": {**plugins.PODLANE, "fastPath": "off"}, **peers}
    with open("/proc/sys/net/netfilter/nf_conntrack_max") as most:
        print(f"flood: both measured pods on CPU 1; nf_conntrack_max {most.read().strip()}")
    nodes = [Node(name, FIRST_NUMBER + i, keys, settings) for i, (name, keys) in enumerate(peers.items())]
    for family in streams.FAMILIES:
        results = {(name, flood): [] for name in peers for flood in FLOODS}
        for i in range(settings.traffic_rounds):
            report.progress(f"flood, IPv{family}: round {i + 1} of {settings.traffic_rounds}")
            turns = [(one, flood) for one in nodes for flood in FLOODS]
            shift = i * (len(FLOODS) + 1) % len(turns)
            for one, flood in turns[shift:] + turns[:shift]:
                node.wait_until_quiet(settings.wait_quiet)
                measured = {**one.measure_beside(settings, family, FLOODS[flood]), "family": family}
                results[one.name, flood].append(measured)
                log.write(part="flood", peer=one.name, round=i, flood=flood, **measured)
        report.progress("")
        show(family, list(peers), results)
    for one in nodes:
        node.delete_netns(*one.pods, *one.flooding, one.node)
