# SPDX-License-Identifier: MIT
"""(f) Mixes of flows through one limit, beside a ping: Podlane, TBF, and without a limit."""

import json
import os
import re
import subprocess
import threading

import bandwidth
import report

BULK = ("download", "count=1")
# Its name, and its flows: (their names, --flow of bench_mix). RATE is the limit.
MIXES = {
    "keep-alive": [BULK, ("50 of 10 kB, think 0.5 s", "count=50,fetch=10000,think=0.5")],
    "small messages": [BULK, ("20 of 200 B, think 10 ms", "count=20,fetch=200,think=0.01")],
    "on and off": [BULK, ("1 s on, 1 s off", "on=1,off=1")],
    "video": [("4 downloads", "count=4"), ("5 Mbit/s", "rate=5000000")],
    "elephant and mice": [BULK, ("100 of 10 kB, new", "count=100,fetch=10000,think=1,new=1")],
    "three controls": [("cubic", "cc=cubic"), ("reno", "cc=reno"), ("bbr", "cc=bbr")],
    "MPTCP": [("MPTCP", "mptcp=1"), ("TCP", "count=1")],
    "UDP with GSO": [BULK, ("UDP, 1/4 of the rate", "udp={quarter}")],
    "own pacing": [BULK, ("SO_MAX_PACING_RATE 1/10", "pacing={tenth}")],
}


class Starved:
    """The share of the time in which threads of a process and its children could run that they waited for a CPU. If
    it is large the figures are the machine's: senders that do not run leave their share to nobody."""

    def __init__(self, pid):
        self.pid, self.times, self.stopped = pid, {}, threading.Event()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.stopped.wait(0.2):
            self.visit(self.pid)

    def visit(self, pid):
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat") as times:
                    self.times[task] = [int(one) for one in times.read().split()[:2]]
                with open(f"/proc/{pid}/task/{task}/children") as children:
                    for child in children.read().split():
                        self.visit(child)
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has just ended

    def share(self):
        self.stopped.set()
        self.thread.join()
        ran, waited = (sum(one[place] for one in self.times.values()) for place in (0, 1))
        return waited / (ran + waited) if ran + waited else 0


def run(settings, pods, direction, flows, rate):
    """What each kind of flow got, the ping beside them, and how much they waited for a CPU."""
    (server, client), = bandwidth.SENDERS[direction]
    family = settings.families[0]
    command = [settings.bench_mix, "--server-netns", pods.pods[server], "--client-netns", pods.pods[client]]
    command += ["--address", pods.addresses[server][family], "--seconds", str(settings.limit_seconds)]
    for _, flow in flows:
        command += ["--flow", flow.format(quarter=rate // 4, tenth=rate // 10)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    starved = Starved(running.pid)
    ping = pods.ping(family)
    printed = running.communicate()[0]
    waited = starved.share()
    said = ping.communicate()[0]
    if running.returncode:
        raise RuntimeError(f"{' '.join(command)} failed")
    return json.loads(printed), [float(ms) for ms in re.findall(r"time=([\d.]+) ms", said)], waited


def rows_of(flows, got, pings, waited, peer, direction, name):
    rows = []
    for (what, _), one in zip(flows, got, strict=True):
        times = [f"{one[key]:.1f}" if one["fetches"] else "-" for key in ("p50", "p99")]
        rows.append([name, direction, what, peer, f"{one['mbit']:.1f}", f"{one['least']:.2f}", one["fetches"] or "-",
                     *times, report.cell(bandwidth.percentile(pings, 0.99), "{:.1f}"), f"{waited:.1%}"])
    return rows


def measure(settings, log):
    for rate in settings.rates:
        pods = bandwidth.limited_by(settings, rate, 170)
        rows = []
        for name in settings.mixes or MIXES:
            for direction in (one for one in settings.directions if one in ("egress", "ingress", "elsewhere")):
                for peer in pods:
                    report.progress(f"{name}, {direction}, {peer}")
                    got, pings, waited = run(settings, pods[peer], direction, MIXES[name], rate)
                    log.write(part="mixes", rate=rate, mix=name, direction=direction, peer=peer, flows=got, pings=pings,
                              waited=waited)
                    rows += rows_of(MIXES[name], got, pings, waited, peer, direction, name)
        report.progress("")
        for one in pods.values():
            one.remove()
        header = ["mix", "", "", "peer", "Mbit/s", "least", "fetches", "p50 ms", "p99 ms", "ping p99",
                  "waited for a CPU"]
        report.table(f"through {rate / bandwidth.MBIT:g} Mbit/s, {settings.limit_seconds:g} s each", header, rows)
