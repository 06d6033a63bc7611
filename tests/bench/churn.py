# SPDX-License-Identifier: MIT
"""(e) A download through a limit beside connections that come and go: Podlane, TBF, and without a limit."""

import json
import subprocess

import bandwidth
import report

# What it is called, and the arguments of bench_churn.
CASES = {
    "alone": (),
    "20 new/s": ("--new", 20),
    "100 new/s": ("--new", 100),
    "400 new/s": ("--new", 400),
    "400 new/s, closed after 0.2 s": ("--new", 400, "--close-after", 0.2),
    "2,000 new/s": ("--new", 2000),
    "10,000 idle": ("--idle", 10000),
    "100 new/s of 20 kB": ("--new", 100, "--fetch", 20000),
}


def run(settings, pods, direction, family, congestion, arguments):
    """The limited pod serves (egress) or downloads (ingress)."""
    server, client = ("limited", "free") if direction == "egress" else ("free", "limited")
    command = [settings.bench_churn, "--server-netns", pods.pods[server], "--client-netns", pods.pods[client]]
    command += ["--address", pods.addresses[server][family], "--congestion", congestion]
    command += ["--seconds", str(settings.limit_seconds), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(settings, log):
    number = 140
    for rate in settings.rates:
        peers = [*settings.limit_peers, "none"] if settings.podlane else ["tbf"]
        pods = {}
        for peer in peers:
            number += 1
            pods[peer] = bandwidth.Limited(peer, number, rate, settings)
        rows = []
        for name in settings.churn_cases or CASES:
            for direction in settings.directions:
                if direction == "both":
                    continue
                for congestion in settings.congestion:
                    for peer in peers:
                        report.progress(f"{name}, {direction}, {congestion}, {peer}")
                        one = run(settings, pods[peer], direction, settings.families[0], congestion, CASES[name])
                        log.write(part="churn", rate=rate, case=name, direction=direction, congestion=congestion,
                                  peer=peer, **one)
                        times = one["fetched_ms"]
                        rows.append([name, direction, congestion, peer, f"{one['mbit']:.1f}", one["fetches"],
                                     f"{times['p50']:.2f}", f"{times['p99']:.2f}", one["unfinished"] + one["missed"]])
        report.progress("")
        for one in pods.values():
            one.remove()
        header = ["beside the download", "", "", "peer", "Mbit/s", "fetches", "p50 ms", "p99 ms", "unfinished"]
        title = f"a download through {rate / bandwidth.MBIT:g} Mbit/s, {settings.limit_seconds:g} s each"
        report.table(title, header, rows)
