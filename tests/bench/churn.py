# SPDX-License-Identifier: MIT
"""(e) A download through a limit beside connections that come and go: Podlane, TBF, and without a limit."""

import json
import subprocess

import bandwidth
import report

# Its name, and the arguments of bench_churn.
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


# From several pods and from the node at once: (who serves, who downloads and fetches).
SENDERS = ("free", "free-2", "free-3", "node")
NODE = {4: "203.0.113.1", 6: "2001:db8:cafe::1"}
ENDS = {
    "egress": [("limited", "free")],
    "ingress": [("free", "limited")],
    "both": [("limited", "free"), ("free", "limited")],
    "senders": [(sender, "limited") for sender in SENDERS],
}
# Bytes of a fetch on the wire: of its server beside the payload (SYN-ACK, headers of one segment), and of its client.
# Acknowledgements, also of the other download, are not counted.
SERVED = 74 + 66
FETCHED = 74 + 66 + 70


def start(settings, pods, server, client, family, congestion, arguments):
    command = [settings.bench_churn, "--server-netns", pods.pods[server], "--client-netns", pods.pods[client]]
    command += ["--address", pods.addresses[server][family], "--congestion", congestion]
    command += ["--seconds", str(settings.limit_seconds), *map(str, arguments)]
    return subprocess.Popen([*command, "--wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def shared(arguments, number):
    """New and idle connections are divided among so many servers."""
    names = arguments[::2]
    values = [value / number if name in ("--new", "--idle") else value
              for name, value in zip(names, arguments[1::2], strict=True)]
    return [item for pair in zip(names, values, strict=True) for item in pair]


def run(settings, pods, direction, family, congestion, arguments):
    """The limited pod serves (egress) or downloads (ingress). Of both directions at once: the worse one; of several
    senders: what all got, and the worst of their times."""
    ends = ENDS[direction]
    if direction == "senders":
        arguments = shared(arguments, len(ends))
    running = [start(settings, pods, *one, family, congestion, arguments) for one in ends]
    for one in running:
        one.stdout.readline()
    for one in running:
        one.stdin.write("\n")
        one.stdin.flush()
    printed = [one.communicate()[0] for one in running]
    if any(one.returncode for one in running):
        raise RuntimeError(f"{' '.join(running[0].args)} failed")
    done = [json.loads(text) for text in printed]
    counted = {key: sum(one[key] for one in done) for key in ("fetches", "missed", "unfinished")}
    times = {key: max(one["fetched_ms"][key] for one in done) for key in done[0]["fetched_ms"]}
    got = [one["mbit"] for one in done]
    series = {key: done[0][key] for key in ("samples", "slowest_ms")}  # of the first, for the plot
    return {"mbit": min(got) if direction == "both" else sum(got), "fetched_ms": times, **counted, **series}


def left(settings, rate, direction, arguments, fetches):
    """Mbit/s of payload that the fetches leave to the download: of TCP over IPv4 or IPv6, with time stamps."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    headers = bandwidth.TCP_HEADERS[settings.families[0]]
    size = options.get("--fetch", 100)
    segments = -(-size // (bandwidth.FRAME - headers))
    frames = size + SERVED + (segments - 1) * headers
    if direction == "both":  # each limit carries half of the answers, and the questions of the other half
        frames = (frames + FETCHED) / 2
    others = fetches / settings.limit_seconds * frames * 8
    return (rate - others) * (bandwidth.FRAME - headers) / bandwidth.FRAME / bandwidth.MBIT


def measure(settings, log):
    for rate in settings.rates:
        pods = bandwidth.limited_by(settings, rate, 140)
        if "senders" in settings.directions:
            for one in pods.values():
                for sender in SENDERS[1:-1]:
                    one.add_free(sender)
                one.add_node(SENDERS[-1], NODE)
        rows = []
        for name in settings.churn_cases or CASES:
            for direction in settings.directions:
                for congestion in settings.congestion:
                    for peer in pods:
                        report.progress(f"{name}, {direction}, {congestion}, {peer}")
                        one = run(settings, pods[peer], direction, settings.families[0], congestion, CASES[name])
                        log.write(part="churn", rate=rate, case=name, direction=direction, congestion=congestion,
                                  peer=peer, **one)
                        times = one["fetched_ms"]
                        rest = left(settings, rate, direction, CASES[name], one["fetches"])
                        share = "-" if peer == "none" else f"{one['mbit'] / rest:.1%}"
                        rows.append([name, direction, congestion, peer, f"{one['mbit']:.1f}", share, one["fetches"],
                                     f"{times['p50']:.2f}", f"{times['p99']:.2f}", one["unfinished"] + one["missed"]])
        report.progress("")
        for one in pods.values():
            one.remove()
        header = ["beside the download", "", "", "peer", "Mbit/s", "of the rest", "fetches", "p50 ms", "p99 ms",
                  "unfinished"]
        title = f"a download through {rate / bandwidth.MBIT:g} Mbit/s, {settings.limit_seconds:g} s each"
        report.table(title, header, rows)
