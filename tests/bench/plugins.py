# SPDX-License-Identifier: MIT
"""Chains of CNI plugins, run one process after the other as a runtime does, each process measured by bench_exec."""

import ipaddress
import json
import os
import subprocess

import node

GBIT = 1_000_000_000
BANDWIDTH = {"ingressRate": GBIT, "ingressBurst": 8 * GBIT // 100, "egressRate": GBIT, "egressBurst": 8 * GBIT // 100}
SUBNETS = {4: "198.18.{}.0/24", 6: "2001:db8:{}::/64"}


def subnet(family, number):
    return SUBNETS[family].format(number)


class Chain:
    """One network: the plugins of its conflist, the namespace of its node, its addresses."""

    def __init__(self, name, number, families, plugins, settings, netns=None, ifname="eth0"):
        """`netns`: of a node that is there already."""
        self.name = name
        self.ifname = ifname
        self.settings = settings
        self.families = families
        self.netns = netns or node.add_netns(f"node-{name}-{number}")
        self.data_dir = f"{node.WORK}/leases-{name}-{number}"
        ranges = [[{"subnet": subnet(family, number)}] for family in families]
        routes = [{"dst": {4: "0.0.0.0/0", 6: "::/0"}[family]} for family in families]
        ipam = {"type": "host-local", "ranges": ranges, "routes": routes, "dataDir": self.data_dir}
        self.plugins = [self._plugin(keys, ipam, number) for keys in plugins]

    def _plugin(self, keys, ipam, number):
        keys = {"cniVersion": "1.0.0", "name": f"bench{number}", **keys}
        if keys.get("ipam") == "host-local":
            keys["ipam"] = ipam
        if keys["type"] == "podlane":
            keys["bpffs"] = f"{node.BPFFS}-{self.netns}"
        return keys

    def add(self, container, pod_netns, memory=False):
        """ADD of the whole chain; returns the measurement of each plugin and the last result."""
        steps, result = [], None
        for plugin in self.plugins:
            step, result = self._call("ADD", plugin, container, pod_netns, result, memory)
            steps.append(step)
        return steps, result

    def delete(self, container, pod_netns, result, memory=False):
        return [self._call("DEL", plugin, container, pod_netns, result, memory)[0] for plugin in reversed(self.plugins)]

    def _call(self, command, plugin, container, pod_netns, result, memory):
        config = dict(plugin)
        if result is not None:
            config["prevResult"] = result
        path = self.settings.podlane if plugin["type"] == "podlane" else f"{self.settings.cni_path}/{plugin['type']}"
        environment = {
            "PATH": os.environ["PATH"],
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": f"/run/netns/{pod_netns}",
            "CNI_IFNAME": self.ifname,
            "CNI_PATH": self.settings.cni_path,
        }
        step, output, said = execute(self.settings, [path], environment, self.netns, json.dumps(config), memory)
        if step["exit"] != 0:
            raise RuntimeError(f"{self.name}: {plugin['type']} {command} failed: {(output + said).strip()}")
        return {"plugin": plugin["type"], **step}, json.loads(output) if command == "ADD" else None


def execute(settings, command, environment, netns, text="", memory=False):
    """One process under bench_exec: what it cost, its output, its standard error."""
    files = f"{node.WORK}/stdin", f"{node.WORK}/stdout"
    with open(files[0], "w") as stdin:
        stdin.write(text)
    measured = [settings.bench_exec, "--netns", netns, "--stdin", files[0], "--stdout", files[1]]
    done = subprocess.run(
        measured + ["--memory"] * memory + ["--"] + command, env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"bench_exec: {done.stderr.strip()}")
    with open(files[1]) as stdout:
        return json.loads(done.stdout), stdout.read(), done.stderr


def addresses(result):
    """The addresses of an ADD result by family."""
    found = {}
    for ip in result["ips"]:
        address = ipaddress.ip_interface(ip["address"]).ip
        found[address.version] = str(address)
    return found


PTP = {"type": "ptp", "ipam": "host-local"}
BRIDGE = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": "host-local"}
HOST_LOCAL = {"type": "host-local", "ipam": "host-local"}
PODLANE = {"type": "podlane", "ipam": "host-local"}
CHAINED = [{"type": "bandwidth", "runtimeConfig": {"bandwidth": BANDWIDTH}}, {"type": "sbr"}]
