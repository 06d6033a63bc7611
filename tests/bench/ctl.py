"""(e) What podlanectl takes to answer on a node with many endpoints."""

import json
import os

import node
import report

ENDPOINTS = 10000


def measure(settings, log):
    program = os.path.join(settings.bin, "bench_ctl")
    if not settings.podlanectl or not os.access(program, os.X_OK):
        print("podlanectl is missing (PODLANECTL_BIN): it is not measured")
        return
    by_command = {}
    for line in node.run(program, settings.podlanectl, str(ENDPOINTS), str(settings.rounds)).splitlines():
        one = json.loads(line)
        log.write(part="ctl", endpoints=ENDPOINTS, **one)
        by_command.setdefault(one["command"], []).append(one["ms"])
    rows = [[name, f"{report.median(ms):.0f}", f"{max(ms):.0f}"] for name, ms in by_command.items()]
    report.table(f"podlanectl, {ENDPOINTS} endpoints, {settings.rounds} rounds", ["", "median ms", "most ms"], rows)
