# SPDX-License-Identifier: MIT
"""(b) Pod to pod traffic on one node: peers side by side, interleaved round by round."""

import json
import subprocess

import node
import plugins
import redirect
import report
import services

# name of a measurement -> (arguments of bench_traffic, {its figure: (title, form, factor)})
CPU = {"cpu_s_per_gb": ("CPU s/GB", "{:.4f}", 1), "own_cpu_s_per_gb": ("own s/GB", "{:.4f}", 1)}
LATENCY = {"p50_us": ("p50 us", "{:.1f}", 1), "p99_us": ("p99 us", "{:.1f}", 1)}
RATE = {"transactions_per_s": ("per s", "{:.0f}", 1)}
MEASUREMENTS = {
    "tcp_stream": (["--mode", "tcp_stream"], {"bytes_per_s": ("Gbit/s", "{:.2f}", 8e-9), **CPU}),
    "tcp_stream_4": (["--mode", "tcp_stream", "--flows", "4"], {"bytes_per_s": ("Gbit/s", "{:.2f}", 8e-9), **CPU}),
    "tcp_rr": (["--mode", "tcp_rr"], {**LATENCY, **RATE}),
    "tcp_rr_one_cpu": (["--mode", "tcp_rr", "--server-cpu", "0"], {**LATENCY, **RATE}),
    "tcp_crr": (["--mode", "tcp_crr"], {**RATE, **LATENCY}),
    "udp_pps": (
        ["--mode", "udp_pps"],
        {"packets_per_s": ("packets/s", "{:.0f}", 1), "packets_per_cpu_s": ("per CPU s", "{:.0f}", 1)},
    ),
}
FAMILIES = (4, 6)


class Served:
    """Two namespaces of one peer, `pods`, and the addresses of the first, `server`, which serves the second.

    `service`: addresses that the client connects to instead, and a node translates to those of the server."""

    service = None

    def measure(self, settings, arguments, family):
        command = [settings.bench_traffic, *arguments, "--seconds", str(settings.seconds)]
        command += ["--server-netns", self.pods[0], "--client-netns", self.pods[1], "--address", self.server[family]]
        if self.service:
            command += ["--service", self.service[family]]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {' '.join(command)}: {done.stderr.strip()}")
        measured = json.loads(done.stdout)
        if "bytes" in measured:
            measured["own_cpu_s_per_gb"] = measured["own_cpu_s"] / measured["bytes"] * 1e9
        return measured

    def mtu(self):
        return node.link(self.pods[0])["mtu"]


class Pair(Served):
    """Two pods of one peer on one node."""

    def __init__(self, name, number, peer_plugins, settings, service_count):
        self.name = name
        self.pods = [node.add_netns(f"pod-{name}-{number}-{i}") for i in (1, 2)]
        self.node = None
        if peer_plugins is None:
            subnets = {4: f"198.18.{number}./24", 6: f"2001:db8:{number}::/64"}
            self.server = node.connect_directly(*self.pods, subnets)[0]
            return
        chain = plugins.Chain(name, number, FAMILIES, peer_plugins, settings)
        self.node = chain.netns
        results = [chain.add(f"bench-{name}-{i}", pod)[1] for i, pod in enumerate(self.pods)]
        self.server = plugins.addresses(results[0])
        if name == "redirect":
            ends = [redirect.host_veth(result) for result in results]
            for end, other in (ends, reversed(ends)):
                redirect.attach(settings, self.node, end, "to_pod", other)
        if service_count:
            services.load(self.node, service_count, FAMILIES)

    def remove(self):
        node.delete_netns(*self.pods, *([self.node] if self.node else []))


def make_pairs(settings, first_number, service_count):
    peers = {"veth": None, "redirect": [plugins.PTP], "ptp": [plugins.PTP], "bridge": [plugins.BRIDGE]}
    if settings.podlane:
        peers["podlane"] = [plugins.PODLANE]
    return [
        Pair(name, first_number + i, chain, settings, service_count) for i, (name, chain) in enumerate(peers.items())
    ]


def measure(settings, log):
    for number, service_count in enumerate(settings.services):
        scenario = f"{service_count} services" if service_count else "no rules"
        report.progress(f"setting up, {scenario}")
        pairs = make_pairs(settings, 201 + 10 * number, service_count)
        measure_all(settings, log, pairs, scenario, settings.only_traffic or MEASUREMENTS)


def measure_all(settings, log, pairs, scenario, names):
    """Measures each of `names`, shows a table for each, and removes the pairs. The first one is the floor."""
    sizes = {pair.name: pair.mtu() for pair in pairs}
    if len(set(sizes.values())) != 1:
        raise RuntimeError(f"the MTUs differ, so nothing can be compared: {sizes}")
    for name in names:
        for family in FAMILIES:
            results = measure_rounds(settings, log, pairs, scenario, name, family)
            show(f"{name}, IPv{family}, {scenario}", pairs, results, MEASUREMENTS[name][1])
    for pair in pairs:
        pair.remove()


def measure_rounds(settings, log, pairs, scenario, name, family):
    results = {pair.name: [] for pair in pairs}
    for i in range(settings.traffic_rounds):
        report.progress(f"{name}, IPv{family}, {scenario}: round {i + 1} of {settings.traffic_rounds}")
        shift = i % len(pairs)
        for pair in pairs[shift:] + pairs[:shift]:
            node.wait_until_quiet(settings.wait_quiet)
            one = pair.measure(settings, MEASUREMENTS[name][0], family)
            results[pair.name].append(one)
            log.write(part="traffic", measurement=name, scenario=scenario, peer=pair.name, round=i, **one)
    report.progress("")
    return results


def show(title, pairs, results, figures):
    references = [pairs[0].name, *(pair.name for pair in pairs[1:] if pair.name == "ptp")]
    header = [""]
    for heading, _, _ in figures.values():
        header += [heading, *(f"to {peer}" for peer in references)]
    header.append("other CPU")
    rows = []
    for pair in pairs:
        row = [pair.name]
        for figure, (_, form, factor) in figures.items():
            values = {name: [one[figure] for one in ones] for name, ones in results.items()}
            own = values[pair.name]
            row.append(form.format(report.median(own) * factor))
            row += [f"{report.ratio(own, values[peer]):.3f}" for peer in references]
        noise = [1 - one["own_cpu_s"] / one["cpu_s"] for one in results[pair.name]]
        rows.append(row + [f"{report.median(noise):.0%}"])
    report.table(f"{title}, {len(results[pairs[0].name])} rounds, medians", header, rows)
