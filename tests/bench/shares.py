# SPDX-License-Identifier: MIT
"""(g) One limit for a group of pods, each with a guarantee: Podlane's limitGroup beside HTB with two levels."""

import ctypes
import json
import os
import signal
import subprocess
import threading
import time

import bandwidth
import node
import plugins
import report

TICK = 0.02  # seconds between two readings of a counter
AUTO_BURST = 2147483647
CLONE_NEWNET = 0x40000000
TCP_ON_THE_WIRE = bandwidth.FRAME / (bandwidth.FRAME - bandwidth.TCP_HEADERS[4])
UDP_ON_THE_WIRE = (bandwidth.DATAGRAM + bandwidth.UDP_HEADERS[4]) / bandwidth.DATAGRAM


class Group:
    """Pods that share a rate, and a receiver without limits."""

    def __init__(self, peer, number, count, rate, settings):
        self.settings, self.peer, self.rate, self.count = settings, peer, rate, count
        name = f"{peer}-{number}"
        shared = {"egressRate": rate // count, "egressBurst": AUTO_BURST, "limitGroup": "bench",
                  "limitGroups": {"bench": {"egressRate": rate}}}
        chain = plugins.Chain(name, number, (4,), [{**plugins.PODLANE, **shared} if peer == "podlane" else plugins.PTP],
                              settings)
        self.node = chain.netns
        self.pods, self.addresses = [], []
        for one in range(count):
            self.pods.append(node.add_netns(f"member{one}-{name}"))
            self.addresses.append(plugins.addresses(chain.add(f"bench-{one}", self.pods[-1])[1])[4])
        chain.plugins = [{key: value for key, value in one.items() if key not in shared} for one in chain.plugins]
        self.free = node.add_netns(f"free-{name}")
        result = chain.add("bench-free", self.free)[1]
        self.address = plugins.addresses(result)[4]
        if peer == "htb":
            self.shape(result["interfaces"][0]["name"])

    def shape(self, device):
        """All packets to the receiver pass its host-side veth."""
        tc = ("tc", "-n", self.node)
        node.run(*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "fff")
        node.run(*tc, "class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", str(self.rate))
        for one, address in enumerate(self.addresses):
            number = f"1:{one + 16:x}"
            node.run(*tc, "class", "add", "dev", device, "parent", "1:1", "classid", number, "htb",
                     "rate", str(self.rate // self.count), "ceil", str(self.rate))
            node.run(*tc, "filter", "add", "dev", device, "parent", "1:", "protocol", "ip", "u32", "match", "ip", "src",
                     f"{address}/32", "flowid", number)

    def remove(self):
        node.delete_netns(*self.pods, self.free, self.node)

    def start(self, pod, seconds, *arguments):
        command = [self.settings.bench_limit, "--seconds", str(seconds), "--client-netns", self.pods[pod]]
        command += ["--server-netns", self.free, "--address", self.address, *map(str, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def ping(self, seconds):
        command = ["ip", "netns", "exec", self.pods[0], "ping", "-n", "-i", "0.02", "-w", str(int(seconds))]
        return subprocess.Popen([*command, self.address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


class Received:
    """Bytes that the receiver's interface has got, read all the time."""

    def __init__(self, netns):
        self.readings, self.stopped = [], False
        self.thread = threading.Thread(target=self.read, args=(netns,))
        self.thread.start()

    def read(self, netns):
        with open(f"/run/netns/{netns}") as there:
            if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), CLONE_NEWNET) != 0:
                raise RuntimeError(f"setns: {os.strerror(ctypes.get_errno())}")
        while not self.stopped:
            with open("/proc/thread-self/net/dev") as counters:
                line = next(one for one in counters if one.strip().startswith("eth0:"))
            self.readings.append((time.monotonic(), int(line.split(":")[1].split()[0])))
            time.sleep(TICK)

    def stop(self):
        self.stopped = True
        self.thread.join()

    def rate(self, start, end):
        inside = [one for one in self.readings if start <= one[0] <= end]
        return (inside[-1][1] - inside[0][1]) * 8 / (inside[-1][0] - inside[0][0])

    def reaches(self, rate, since):
        """Seconds after `since` until five readings in a row have had the rate."""
        later = [one for one in self.readings if one[0] >= since]
        for first, last in zip(later, later[5:]):
            if (last[1] - first[1]) * 8 / (last[0] - first[0]) >= rate:
                return first[0] - since
        return None


def all_busy(group, seconds, arguments):
    """The least and the greatest part of its guarantee that a pod gets, the sum, and a ping from one of them."""
    running = [group.start(pod, seconds, *arguments) for pod in range(group.count)]
    ping = group.ping(seconds)
    done = [json.loads(one.communicate()[0]) for one in running]
    rates, on_the_wire = [], UDP_ON_THE_WIRE if "--udp" in arguments else TCP_ON_THE_WIRE
    for one in done:
        middle = one["samples"][10:-3]
        rates.append(sum(middle) * 8 * 10 / len(middle) * on_the_wire / (group.rate / group.count))
    times = [float(line.split("time=")[1].split()[0]) for line in ping.communicate()[0].splitlines() if "time=" in line]
    return {"least": min(rates), "most": max(rates), "sum": sum(rates) / group.count,
            "p99": bandwidth.percentile(times, 0.99)}


def half_leaves(group, seconds, arguments):
    """How long after half of the pods fell silent the others have 95 % of the rate, and how much they have then."""
    received = Received(group.free)
    running = [group.start(pod, seconds * 2, *arguments) for pod in range(group.count)]
    time.sleep(seconds)
    for one in running[group.count // 2:]:
        os.killpg(one.pid, signal.SIGKILL)
    left = time.monotonic()
    for one in running:
        one.communicate()
    received.stop()
    return {"borrowed_after": received.reaches(0.95 * group.rate, left),
            "with_half": received.rate(left + 1, left + seconds - 1) / group.rate}


def measure(settings, log):
    number, rows = 200, []
    for rate in settings.rates:
        for count in settings.members:
            for peer in ("htb", "podlane") if settings.podlane else ("htb",):
                number += 1
                report.progress(f"setting up {count} pods, {peer}")
                group = Group(peer, number, count, rate, settings)
                # UDP of half of the pods is the rate twice.
                for kind, arguments in {"cubic": (), "UDP": ("--udp", 4 * rate // count)}.items():
                    report.progress(f"{count} pods, {kind}, {peer}")
                    one = all_busy(group, settings.limit_seconds, arguments)
                    one |= half_leaves(group, settings.limit_seconds, arguments)
                    log.write(part="shares", rate=rate, pods=count, kind=kind, peer=peer, **one)
                    rows.append([f"{rate / bandwidth.MBIT:g}", count, kind, peer, f"{one['least']:.1%}",
                                 f"{one['most']:.1%}", f"{one['sum']:.1%}", report.cell(one["p99"], "{:.2f}"),
                                 report.cell(one["borrowed_after"], "{:.2f}"), f"{one['with_half']:.1%}"])
                group.remove()
    report.progress("")
    header = ["Mbit/s", "pods", "", "peer", "least", "most", "sum", "ping p99", "borrowed after, s", "half alone"]
    report.table("pods that share a limit; of their guarantee and of the rate, in frames", header, rows)
