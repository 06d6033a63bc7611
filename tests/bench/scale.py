# SPDX-License-Identifier: MIT
"""(f) What ADD, DEL, GC and doctor cost on a node with many pods. No IPAM plugin is run: prevResult has the address."""

import json
import os

import node
import plugins
import report

PODS = [int(number) for number in os.environ.get("PODLANE_PODS", "10 100 1000").split()]
DEAD = 100
RATE = {"ingressRate": 8_000_000, "ingressBurst": 64_000_000}
PEER = "dual stack, ptp"
VARIANTS = {
    "plain": {},
    "dual stack": {},
    PEER: {},
    "ipMasq": {"ipMasq": True},
    # Isolation by group, and a guarantee in a group of limits.
    "grouped": {"groups": ["name:tenant-a"], "isolation": "group", **RATE, "limitGroup": "tenant-a",
                "limitGroups": {"tenant-a": {"ingressRate": 8_000_000_000}}},
}


class Network:
    """Podlane after an IPAM plugin that has handed out one address after the other."""

    def __init__(self, number, keys, settings, ipv6=False):
        self.settings = settings
        self.ipv6 = ipv6
        state = f"{node.WORK}/state-{number}"
        self.chain = plugins.Chain("scale", number, [], [{"type": "podlane", "stateDir": state, **keys}], settings)
        self.plugin = self.chain.plugins[0]
        self.plugin["cniVersion"] = "1.1.0"
        self.pods = 0
        node.run("ip", "-n", self.chain.netns, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
        node.run("ip", "-n", self.chain.netns, "address", "add", "203.0.113.2/24", "dev", "up0")
        node.run("ip", "-n", self.chain.netns, "link", "set", "up0", "up")
        node.run("ip", "-n", self.chain.netns, "route", "add", "default", "via", "203.0.113.1")

    def call(self, command, number):
        ips = [{"address": f"198.18.{number // 250}.{number % 250 + 2}/15"}]
        if self.ipv6:
            ips.append({"address": f"2001:db8:77::{number + 2:x}/64"})
        step = self.run_plugin(command, number, ips)
        return (step["user_us"] + step["sys_us"]) / 1000, step["wall_us"] / 1000

    def run_plugin(self, command, number, ips):
        lease = {"cniVersion": "1.1.0", "ips": ips}
        return self.chain._call(command, self.plugin, f"pod{number}", f"{self.chain.netns}-{number}", lease, False)[0]

    def make_namespaces(self, first, last):
        node.run("ip", "-batch", "-", text="".join(f"netns add {self.chain.netns}-{i}\n" for i in range(first, last)))

    def grow(self, pods):
        self.make_namespaces(self.pods, pods)
        for number in range(self.pods, pods):
            self.call("ADD", number)
        self.pods = pods

    def one_more(self, rounds):
        """CPU and wall time of the ADD and DEL of one more pod, in ms."""
        self.make_namespaces(self.pods, self.pods + rounds)
        measured = [(self.call("ADD", n), self.call("DEL", n)) for n in range(self.pods, self.pods + rounds)]
        node.run("ip", "-batch", "-",
                 text="".join(f"netns delete {self.chain.netns}-{i}\n" for i in range(self.pods, self.pods + rounds)))
        return measured

    def collect(self, dead):
        """GC of a runtime that no longer lists the last pods, whose namespaces are still there."""
        valid = [{"containerID": f"pod{i}", "ifname": "eth0"} for i in range(self.pods - dead)]
        config = {**self.plugin, "cni.dev/valid-attachments": valid}
        environment = {"PATH": os.environ["PATH"], "CNI_COMMAND": "GC", "CNI_PATH": self.settings.cni_path}
        step, output, said = plugins.execute(
            self.settings, [self.settings.podlane], environment, self.chain.netns, json.dumps(config))
        if step["exit"] != 0:
            raise RuntimeError(f"GC: {output}{said}")
        self.pods -= dead
        return step

    def remove(self):
        """The kernel has lists of all network namespaces: what is measured next is alone again."""
        names = [f"{self.chain.netns}-{i}" for i in range(self.pods + DEAD)] + [self.chain.netns]
        node.run("ip", "-force", "-batch", "-", text="".join(f"netns delete {name}\n" for name in names
                                                             if os.path.exists(f"/run/netns/{name}")))

    def doctor(self):
        command = [self.settings.podlanectl, "doctor", "--bpffs", self.plugin["bpffs"]]
        command += ["--state-dir", self.plugin["stateDir"]]
        step, output, said = plugins.execute(self.settings, command, dict(os.environ), self.chain.netns)
        if step["exit"] not in (0, 1) or said:
            raise RuntimeError(f"doctor: {output}{said}")
        return step, output


class Peer(Network):
    """The reference `ptp` with the same addresses, which its IPAM plugin `static` gives."""

    def make_namespaces(self, first, last):
        super().make_namespaces(first, last)
        for number in range(first, last):  # without duplicate address detection, which ptp waits for
            node.run("nsenter", f"--net=/run/netns/{self.chain.netns}-{number}",
                     "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")

    def run_plugin(self, command, number, ips):
        addresses = [{**ip, "gateway": gateway} for ip, gateway in zip(ips, ("198.18.0.1", "2001:db8:77::1"))]
        ipam = {"type": "static", "addresses": addresses, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
        plugin = {"type": "ptp", "cniVersion": "1.0.0", "name": "peer", "ipam": ipam}
        return self.chain._call(command, plugin, f"pod{number}", f"{self.chain.netns}-{number}", None, False)[0]


def total(step):
    return {"wall_ms": step["wall_us"] / 1000, "cpu_ms": (step["user_us"] + step["sys_us"]) / 1000}


def measure(settings, log):
    if not settings.podlane:
        return
    rows, once = [], []
    for number, (name, keys) in enumerate(VARIANTS.items(), 1):
        network = (Peer if name == PEER else Network)(number, keys, settings, name.startswith("dual stack"))
        for pods in PODS:
            report.progress(f"scale, {name}: {pods} pods")
            network.grow(pods)
            measured = network.one_more(settings.rounds)
            row = [report.median([m[verb][what] for m in measured]) for verb in (0, 1) for what in (0, 1)]
            log.write(part="scale", variant=name, pods=pods, add_cpu_ms=row[0], add_ms=row[1], del_cpu_ms=row[2], del_ms=row[3])
            rows.append([name, str(pods), *(f"{value:.1f}" for value in row)])
        if name == PEER:
            network.remove()
            continue
        doctors = [network.doctor() for _ in range(3)] if settings.podlanectl else []
        steps = {"doctor": min((total(step) for step, _ in doctors), key=lambda one: one["wall_ms"])} if doctors else {}
        steps[f"GC of {DEAD}"] = total(network.collect(DEAD))
        for what, step in steps.items():
            log.write(part="scale", variant=name, what=what, **step)
            once.append([name, what, f"{step['wall_ms']:.0f}", f"{step['cpu_ms']:.0f}"])
        network.remove()
        if doctors:
            print("\n".join(doctors[-1][1].splitlines()[-1:]))
    report.progress("")
    for name in VARIANTS:
        few, many = ([float(cell) for cell in row[2:]] for row in (
            next(row for row in rows if row[0] == name), [row for row in rows if row[0] == name][-1]))
        print(f"{name}: {PODS[-1]} pods by {PODS[0]}: ADD {many[0] / few[0]:.2f}, DEL {many[2] / few[2]:.2f} of the CPU time")
    header = ["", "pods", "ADD CPU ms", "ADD ms", "DEL CPU ms", "DEL ms"]
    report.table(f"one more pod, {settings.rounds} rounds, medians", header, rows)
    report.table(f"with {PODS[-1]} pods", ["", "", "wall ms", "CPU ms"], once)
