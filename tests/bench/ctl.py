# SPDX-License-Identifier: MIT
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
        by_command.setdefault(one["command"], []).append(one)
    rows = []
    for name, all_rounds in by_command.items():
        wall, cpu = ([one[key] for one in all_rounds] for key in ("ms", "cpu_ms"))
        rows.append([name, f"{report.median(wall):.0f}", f"{max(wall):.0f}", f"{report.median(cpu):.0f}"])
    header = ["", "wall ms", "most", "CPU ms"]
    report.table(f"podlanectl, {ENDPOINTS} endpoints, {settings.rounds} rounds, medians", header, rows)
