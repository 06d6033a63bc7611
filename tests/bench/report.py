# SPDX-License-Identifier: MIT
"""Results: one JSON line per measurement, and tables of medians with ratios against a peer of the same rounds."""

import json
import statistics
import sys


class Log:
    """Writes each measurement as a JSON line where a file was asked for."""

    def __init__(self, path):
        self.file = open(path, "w") if path else None

    def write(self, **keys):
        if self.file:
            self.file.write(json.dumps(keys) + "\n")
            self.file.flush()


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def median(values):
    """None if nothing was measured."""
    return statistics.median(values) if values else None


def ratio(values, reference):
    """The median of the ratios of each round, which a machine that drifts spoils least."""
    pairs = [v / r for v, r in zip(values, reference) if r]
    return median(pairs)


def cell(value, form):
    return "-" if value is None else form.format(value)


def table(title, header, rows):
    print(f"\n{title}")
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        first, *others = (str(text) for text in row)
        print("  " + first.ljust(widths[0]) + "".join("  " + o.rjust(w) for o, w in zip(others, widths[1:])))
    sys.stdout.flush()
