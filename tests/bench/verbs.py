# SPDX-License-Identifier: MIT
"""(a) What ADD and DEL cost as whole processes: chains of plugins, interleaved round by round."""

import node
import plugins
import report

FAMILY_SETS = {"IPv4": (4,), "IPv4+IPv6": (4, 6)}
MEMORY_ROUNDS = 5


def make_chains(settings, families, first_number):
    wanted = {
        "host-local": [plugins.HOST_LOCAL],
        "ptp": [plugins.PTP],
        "bridge": [plugins.BRIDGE],
        "ptp+bandwidth+sbr": [plugins.PTP, *plugins.CHAINED],
    }
    if settings.podlane:
        wanted["podlane"] = [plugins.PODLANE]
        wanted["podlane, clsact"] = [{**plugins.PODLANE, "attach": "clsact"}]
        wanted["podlane after IPAM"] = [plugins.HOST_LOCAL, {"type": "podlane"}]
    return [
        plugins.Chain(name.replace(", ", "-").replace(" ", "-"), first_number + i, families, chain, settings)
        for i, (name, chain) in enumerate(wanted.items())
    ]


def without_ipam(chain, steps, key, host_local):
    """A chain's cost without the exec of host-local: measured apart if that is possible, else subtracted."""
    own = [s[key] for s in steps if s["plugin"] != "host-local"]
    return sum(own) if len(own) < len(steps) else sum(own) - host_local


class Round:
    """Measures every chain once, beginning with another one each time."""

    def __init__(self, chains, pods):
        self.chains, self.pods, self.count = chains, pods, 0

    def run(self, memory=False):
        shift = self.count % len(self.chains)
        container = f"bench{self.count:06d}"
        self.count += 1
        measured = {}
        for chain in self.chains[shift:] + self.chains[:shift]:
            pod = self.pods[chain.name]
            added, result = chain.add(container, pod, memory)
            deleted = chain.delete(container, pod, result, memory)
            measured[chain.name] = {"ADD": added, "DEL": deleted}
        return measured


def total(steps):
    return {"wall": sum(s["wall_us"] for s in steps), "cpu": sum(s["user_us"] + s["sys_us"] for s in steps)}


def measure(settings, log):
    for label, families in FAMILY_SETS.items():
        chains = make_chains(settings, families, 1 if label == "IPv4" else 101)
        pods = {chain.name: node.add_netns(f"pod-{chain.netns}") for chain in chains}
        rounds = Round(chains, pods)
        first = rounds.run()  # warms caches; Podlane's loads its programs
        measured = []
        for i in range(settings.rounds):
            report.progress(f"ADD and DEL, {label}: round {i + 1} of {settings.rounds}")
            measured.append(rounds.run())
        peaks = [rounds.run(memory=True) for _ in range(MEMORY_ROUNDS)]
        report.progress("")
        for kind, many in (("first", [first]), ("time", measured), ("memory", peaks)):
            for i, one in enumerate(many):
                for name, verbs in one.items():
                    log.write(part="verbs", kind=kind, families=label, round=i, chain=name, **verbs)
        show(label, chains, first, measured, peaks)
        node.delete_netns(*pods.values(), *(chain.netns for chain in chains))


def show(label, chains, first, measured, peaks):
    for verb in ("ADD", "DEL"):
        columns = {c.name: [total(one[c.name][verb]) for one in measured] for c in chains}
        bare = {}
        for chain in chains:
            ipam = [one["host-local"][verb][0]["wall_us"] for one in measured]
            bare[chain.name] = [
                without_ipam(chain, one[chain.name][verb], "wall_us", i) for one, i in zip(measured, ipam)
            ]
        rows = [row(c.name, verb, columns, bare, first, peaks) for c in chains]
        header = ["", "wall ms", "to ptp", "to chain", "no IPAM ms", "to ptp", "to chain", "CPU ms", "first ms", "peak KB"]
        report.table(f"{verb}, {label}, {len(measured)} rounds, medians", header, rows)


def row(name, verb, columns, bare, first, peaks):
    wall = [t["wall"] for t in columns[name]]
    walls = {peer: [t["wall"] for t in columns[peer]] for peer in ("ptp", "ptp+bandwidth+sbr")}
    own = bare[name] if name != "host-local" else []
    peak = [max(s["peak_kb"] for s in one[name][verb] if name == "host-local" or s["plugin"] != "host-local") for one in peaks]
    return [
        name,
        f"{report.median(wall) / 1000:.2f}",
        *(report.cell(report.ratio(wall, walls[peer]), "{:.3f}") for peer in walls),
        report.cell(report.median(own) and report.median(own) / 1000, "{:.2f}"),
        *(report.cell(report.ratio(own, bare[peer]), "{:.3f}") for peer in walls),
        f"{report.median([t['cpu'] for t in columns[name]]) / 1000:.2f}",
        f"{total(first[name][verb])['wall'] / 1000:.1f}",
        max(peak),
    ]
