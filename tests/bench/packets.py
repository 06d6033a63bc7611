# SPDX-License-Identifier: MIT
"""(c) What a packet costs in the programs alone, with few and with many endpoints: bench_packet and a table."""

import json

import node
import report

SIZES = (10, 10000)


def measure(settings, log):
    report.progress("packets by test run")
    sizes = ",".join(str(size) for size in SIZES)
    lines = [json.loads(line) for line in node.run(settings.bench_packet, "--endpoints", sizes).splitlines()]
    report.progress("")
    costs = {}
    for line in lines:
        log.write(part="packets", **line)
        costs.setdefault(line["packet"], {})[line["endpoints"]] = line
    header = ["", *(f"{kind}, {size}" for kind in ("hot", "spread") for size in (*SIZES, "ratio"))]
    rows = []
    for packet, by_size in costs.items():
        row = [packet]
        for kind in ("hot_ns", "spread_ns"):
            few, many = (by_size[size][kind] for size in SIZES)
            row += [f"{few:.0f}", f"{many:.0f}", f"{many / few:.2f}"]
        rows.append(row)
    report.table("ns per packet by BPF_PROG_TEST_RUN, by number of endpoints, medians", header, rows)
