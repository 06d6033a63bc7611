# SPDX-License-Identifier: MIT
"""(g) What the first ADD of a boot takes, on a new node each time, and after `podlanectl load`. No IPAM plugin is run."""

import os
import shutil

import node
import plugins
import report
import scale


def load(network):
    command = [network.settings.podlanectl, "load", "--conf-dir", node.WORK, "--bpffs", network.plugin["bpffs"]]
    step, output, said = plugins.execute(network.settings, command, dict(os.environ), network.chain.netns)
    if step["exit"] != 0:
        raise RuntimeError(f"load: {output}{said}")
    return step["wall_us"] / 1000


def measure(settings, log):
    if not settings.podlane or not settings.podlanectl:
        return
    measured = {"first ADD": [], "podlanectl load": [], "first ADD after load": [], "second ADD": []}
    for number in range(settings.rounds):
        report.progress(f"first ADD: round {number + 1} of {settings.rounds}")
        cold, loaded = (scale.Network(2 * number + i, {"ipMasq": True}, settings) for i in (1, 2))
        measured["podlanectl load"].append(load(loaded))
        for network, what in (cold, "first ADD"), (loaded, "first ADD after load"):
            network.make_namespaces(0, 2)
            measured[what].append(network.call("ADD", 0)[1])
        measured["second ADD"].append(loaded.call("ADD", 1)[1])
        for network in cold, loaded:
            node.delete_netns(*(f"{network.chain.netns}-{i}" for i in (0, 1)), network.chain.netns)
            shutil.rmtree(network.plugin["bpffs"])
    report.progress("")
    for what, values in measured.items():
        log.write(part="first", what=what, wall_ms=values)
    rows = [[what, f"{report.median(values):.0f}", f"{min(values):.0f}", f"{max(values):.0f}"]
            for what, values in measured.items()]
    report.table(f"the first pod of a node, {settings.rounds} rounds", ["", "median ms", "least", "most"], rows)
