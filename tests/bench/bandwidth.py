# SPDX-License-Identifier: MIT
"""(d) Bandwidth limits: Podlane beside TBF, as the reference `bandwidth` plugin sets it up behind `ptp`."""

import json
import re
import subprocess

import node
import plugins
import report

FAMILIES = (4, 6)
MBIT = 1_000_000
FRAME = 1514  # bytes of a full one, of which the headers are ...
TCP_HEADERS = {4: 14 + 20 + 32, 6: 14 + 40 + 32}
UDP_HEADERS = {4: 14 + 20 + 8, 6: 14 + 40 + 8}
DATAGRAM = 1400
MANY_FLOWS_FROM = 100 * MBIT  # 256 flows of less would send a frame each in a third of a second
JOIN_AT = 2
LIMITS = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
# Who sends to whom. "elsewhere" is behind the node's uplink: nobody paces it.
SENDERS = {"egress": [("limited", "free")], "ingress": [("free", "limited")], "elsewhere": [("elsewhere", "limited")],
           "both": [("limited", "free"), ("free", "limited")]}
UPLINKS = {4: "192.0.2./24", 6: "2001:db8:f0::/64"}


class Limited:
    """A limited pod of one peer, and one without limits beside it."""

    def __init__(self, peer, number, rate, settings):
        self.settings = settings
        self.peer = peer
        self.rate = rate
        limits = {key: rate if key.endswith("Rate") else rate // 10 for key in LIMITS}
        chains = {"podlane": [{**plugins.PODLANE, **limits}], "tbf": [plugins.PTP, {"type": "bandwidth", **limits}],
                  "none": [plugins.PODLANE]}
        self.name = f"{peer}-{number}"
        chain = plugins.Chain(self.name, number, FAMILIES, chains[peer], settings)
        self.node = chain.netns
        elsewhere, addresses = self.connect_elsewhere(number)
        self.pods = {who: node.add_netns(f"{who}-{self.name}") for who in ("limited", "free")}
        self.pods["elsewhere"] = elsewhere
        self.addresses = {"elsewhere": addresses}
        self.addresses["limited"] = plugins.addresses(chain.add("bench-limited", self.pods["limited"])[1])
        chain.plugins = [{key: value for key, value in one.items() if key not in LIMITS} for one in chain.plugins[:1]]
        self.addresses["free"] = plugins.addresses(chain.add("bench-free", self.pods["free"])[1])
        self.chain = chain

    def connect_elsewhere(self, number):
        """A host behind the node's uplink, by which both have their routes."""
        elsewhere = node.add_netns(f"elsewhere-{self.name}")
        here, there = node.connect_directly(self.node, elsewhere, UPLINKS, "up0")
        for family in FAMILIES:
            node.run("ip", "-n", self.node, "route", "add", "default", "via", there[family])
            subnet = plugins.subnet(family, number)
            node.run("ip", "-n", elsewhere, "route", "add", subnet, "via", here[family])
        return elsewhere, there

    def add_free(self, who):
        """One more pod without limits."""
        self.pods[who] = node.add_netns(f"{who}-{self.name}")
        self.addresses[who] = plugins.addresses(self.chain.add(f"bench-{who}", self.pods[who])[1])

    def add_node(self, who, addresses):
        """The node itself, by addresses of its own."""
        for address in addresses.values():
            node.run("ip", "-n", self.node, "addr", "add", address, "dev", "lo")
        self.pods[who] = self.node
        self.addresses[who] = addresses

    def remove(self):
        node.delete_netns(*{*self.pods.values(), self.node})

    def start(self, sender, receiver, family, *arguments):
        command = [self.settings.bench_limit, "--seconds", str(self.settings.limit_seconds)]
        command += ["--client-netns", self.pods[sender], "--server-netns", self.pods[receiver]]
        command += ["--address", self.addresses[receiver][family], *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def ping(self, family):
        command = ["ip", "netns", "exec", self.pods["limited"], "ping", "-n", "-D", "-i", "0.02"]
        command += ["-w", str(int(self.settings.limit_seconds)), self.addresses["free"][family]]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def measure(self, direction, family, *arguments):
        """What each sender got, and when the pings beside them came back after how many ms."""
        ping = self.ping(family)
        running = [self.start(*ends, family, *arguments) for ends in SENDERS[direction]]
        outputs = [one.communicate()[0] for one in running]
        pings = re.findall(r"\[([\d.]+)\].* time=([\d.]+) ms", ping.communicate()[0])
        if any(one.returncode for one in running):
            raise RuntimeError(f"{self.name}: {' '.join(running[0].args)} failed")
        times = [(float(at), float(ms)) for at, ms in pings]
        return {"runs": [json.loads(output) for output in outputs], "pings": times}


def limited_by(settings, rate, number):
    """A pod limited by each peer, and one without a limit; their numbers follow `number`."""
    peers = [*settings.limit_peers, "none"] if settings.podlane else ["tbf"]
    return {peer: Limited(peer, number + place, rate, settings) for place, peer in enumerate(peers, 1)}


def jain(shares):
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else None


def figures(measured, rate, family, udp):
    """Of the worst of the senders where there are two."""
    headers, payload = (UDP_HEADERS[family], DATAGRAM) if udp else (TCP_HEADERS[family], FRAME - TCP_HEADERS[family])
    on_the_wire = (payload + headers) / payload
    found = []
    for run in measured["runs"]:
        shares = run["shares"]
        mean = sum(shares) / len(shares) or 1
        found.append({
            "mbit": run["bytes"] * 8 / run["seconds"] / 1e6,
            "wire": run["bytes"] * 8 * on_the_wire / run["seconds"] / rate,
            "first": sum(run["samples"][:10]) * 8 * on_the_wire / rate,
            "retransmitted": run["retransmitted"] / run["segments"] if run["segments"] else 0,
            "jain": jain(shares),
            "off": max(abs(share / mean - 1) for share in shares),
        })
    worst = min(found, key=lambda one: one["wire"])
    worst["retransmitted"] = max(one["retransmitted"] for one in found)
    times = [ms for _, ms in measured["pings"]]
    return {**worst, "p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}


def cases(settings, rate):
    """(what it is called, direction, family, arguments of bench_limit)"""
    for family in settings.families:
        for direction in (one for one in settings.directions if one != "senders"):
            for congestion in settings.congestion:
                base = ("--congestion", congestion)
                for flows in settings.flows:
                    if flows <= 64 or rate >= MANY_FLOWS_FROM:
                        yield f"{flows} {congestion}", direction, family, (*base, "--flows", flows)
                if "idle" in settings.limit_cases:
                    yield f"1 {congestion}, 99 idle", direction, family, (*base, "--flows", 1, "--idle", 99)
                if "join" in settings.limit_cases:
                    joins = ("--join", 10, "--join-at", JOIN_AT, "--settle", JOIN_AT + 1)
                    yield f"1 {congestion}, then 11", direction, family, (*base, "--flows", 1, *joins)
            if "udp" in settings.limit_cases:
                yield "UDP, twice the rate", direction, family, ("--udp", 2 * rate)


def measure(settings, log):
    number = 100
    for rate in settings.rates:
        limited = []
        for peer in settings.limit_peers if settings.podlane else ["tbf"]:
            number += 1
            report.progress(f"setting up {peer}, {rate / MBIT:g} Mbit/s")
            limited.append(Limited(peer, number, rate, settings))
        rows = []
        for name, direction, family, arguments in cases(settings, rate):
            for pods in limited:
                report.progress(f"{rate / MBIT:g} Mbit/s, {name}, {direction}, IPv{family}, {pods.peer}")
                measured = pods.measure(direction, family, *arguments)
                one = figures(measured, rate, family, "UDP" in name)
                log.write(part="bandwidth", rate=rate, case=name, direction=direction, family=family, peer=pods.peer,
                          **one, **measured)
                rows.append(row(name, direction, family, pods.peer, one))
        report.progress("")
        for pods in limited:
            pods.remove()
        header = ["", "", "", "peer", "Mbit/s", "of rate", "1st s", "retrans", "Jain", "off", "ping p50", "p99 ms"]
        title = f"limit of {rate / MBIT:g} Mbit/s, burst 100 ms, {settings.limit_seconds:g} s each; of rate: frames"
        report.table(title, header, rows)


def row(name, direction, family, peer, one):
    pings = [report.cell(one[key], "{:.2f}") for key in ("p50", "p99")]
    return [name, direction, f"IPv{family}", peer, f"{one['mbit']:.2f}", f"{one['wire']:.1%}", f"{one['first']:.2f}",
            f"{one['retransmitted']:.3%}", f"{one['jain']:.3f}", f"{one['off']:.0%}", *pings]
