# SPDX-License-Identifier: MIT
"""The floor of what programs on host-side veths can reach: ptp, with programs that do nothing but redirect."""

import node


def host_veth(result):
    """The interface of an ADD result that is on the node."""
    return next(interface["name"] for interface in result["interfaces"] if not interface.get("sandbox"))


def attach(settings, netns, device, program, to):
    """Puts a program of redirect.bpf.c on a device's ingress: `to_pod` (behind a host-side veth) or `to_node`."""
    pins = f"{node.BPFFS}-redirect-{netns}-{device}"
    node.run("bpftool", "prog", "loadall", settings.redirect, pins, "pinmaps", pins)
    number = [str(byte) for byte in node.link(netns, to)["ifindex"].to_bytes(4, "little")]
    node.run("bpftool", "map", "update", "pinned", f"{pins}/redirect_to", "key", "0", "0", "0", "0", "value", *number)
    # "tc -n" would have a /sys of its own, without our bpffs.
    tc = ["nsenter", f"--net=/run/netns/{netns}", "tc"]
    node.run(*tc, "qdisc", "add", "dev", device, "clsact")
    node.run(*tc, "filter", "add", "dev", device, "ingress", "bpf", "da", "pinned", f"{pins}/{program}")
