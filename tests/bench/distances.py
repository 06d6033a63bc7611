# SPDX-License-Identifier: MIT
"""(h) Flows of different round trips through one limit: Podlane beside TBF."""

import json
import subprocess

import bandwidth
import node
import plugins
import report

ROUND_TRIPS = (1, 10, 50, 100)  # ms
SETTLE = 5  # seconds: a congestion window grows by round trips
SUBNETS = {4: "198.19.{}./24", 6: "2001:db8:fa{}::/64"}
# Who is limited, and who sends to whom.
DIRECTIONS = {"egress": True, "elsewhere": False}


class Distant(bandwidth.Limited):
    """Behind the node's uplink a router, and behind it a host at each round trip."""

    def __init__(self, peer, number, rate, settings):
        super().__init__(peer, number, rate, settings)
        router, self.wires = self.pods["elsewhere"], []
        node.run("ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for place, ms in enumerate(ROUND_TRIPS):
            host = node.add_netns(f"ms{ms}-{self.name}")
            subnets = {family: subnet.format(place) for family, subnet in SUBNETS.items()}
            wire = self.pods[f"wire{ms}"] = node.add_netns(f"wire{ms}-{self.name}")
            here, there = node.connect_directly(router, host, subnets, f"ms{ms}", wire)
            self.wires.append(self.lengthen(wire, ms))
            for family in bandwidth.FAMILIES:
                node.run("ip", "-n", host, "route", "add", "default", "via", here[family])
            self.pods[f"ms{ms}"], self.addresses[f"ms{ms}"] = host, there

    def lengthen(self, wire, ms):
        """On the way to the host: there the packets belong to no socket, which would send less for them."""
        command = ["ip", "netns", "exec", wire, self.settings.bench_delay, "--from", "near", "--to", "far", "--ms", str(ms)]
        carrying = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if carrying.stdout.readline() != "ready\n":
            raise RuntimeError(f"{' '.join(command)} failed")
        return carrying

    def remove(self):
        for carrying in self.wires:
            carrying.kill()
            carrying.wait()
        super().remove()

    def run(self, direction, family, round_trips, flows, congestion):
        """What bench_limit says of the flows of each round trip, all at once."""
        running = []
        for ms in round_trips:
            ends = ("limited", f"ms{ms}") if DIRECTIONS[direction] else (f"ms{ms}", "limited")
            running.append(self.start(*ends, family, "--flows", flows, "--congestion", congestion, "--settle", SETTLE))
        printed = [one.communicate()[0] for one in running]
        if any(one.returncode for one in running):
            raise RuntimeError(f"{' '.join(running[0].args)} failed")
        return [json.loads(one) for one in printed]


def figures(runs, rate, family):
    """All flows together, once they have settled."""
    on_the_wire = bandwidth.FRAME / (bandwidth.FRAME - bandwidth.TCP_HEADERS[family])
    settled = [one["samples"][int(SETTLE / 0.1):] for one in runs]
    bits = sum(sum(samples) * 80 / len(samples) for samples in settled)
    shares = [share for one in runs for share in one["shares"]]
    segments = sum(one["settled_segments"] for one in runs)
    return {"wire": bits * on_the_wire / rate, "jain": bandwidth.jain(shares),
            "retransmitted": sum(one["settled_retransmitted"] for one in runs) / segments if segments else 0,
            "mbit": [sum(samples) * 80 / len(samples) / bandwidth.MBIT for samples in settled]}


def cases(settings):
    for direction in (one for one in settings.directions if one in DIRECTIONS):
        for congestion in settings.congestion:
            for ms in ROUND_TRIPS:
                yield f"{ms} ms", direction, congestion, (ms,), 1
            for flows in (1, 4):
                yield f"all, {flows} of each", direction, congestion, ROUND_TRIPS, flows


def measure(settings, log):
    number, family = 230, settings.families[0]
    for rate in settings.rates:
        all_pods, rows = [], []
        for peer in settings.limit_peers:
            number += 1
            all_pods.append(Distant(peer, number, rate, settings))
        for name, direction, congestion, round_trips, flows in cases(settings):
            for pods in all_pods:
                report.progress(f"{rate / bandwidth.MBIT:g} Mbit/s, {name}, {direction}, {congestion}, {pods.peer}")
                one = figures(pods.run(direction, family, round_trips, flows, congestion), rate, family)
                log.write(part="distances", rate=rate, case=name, direction=direction, congestion=congestion,
                          peer=pods.peer, **one)
                rows.append([name, direction, congestion, pods.peer, f"{one['wire']:.1%}", f"{one['jain']:.3f}",
                             f"{one['retransmitted']:.3%}", " ".join(f"{mbit:.1f}" for mbit in one["mbit"])])
        report.progress("")
        for pods in all_pods:
            pods.remove()
        header = ["round trip", "", "", "peer", "of rate", "Jain", "retrans", "Mbit/s of each round trip"]
        title = f"limit of {rate / bandwidth.MBIT:g} Mbit/s, burst 100 ms, {settings.limit_seconds - SETTLE:g} s each"
        report.table(title, header, rows)
