# SPDX-License-Identifier: MIT
"""Network namespaces of a measurement. They live in a mount namespace of our own and end with it, whatever happens."""

import json
import os
import subprocess
import sys
import time

INSIDE = "PODLANE_BENCH_INSIDE"
WORK = "/run/podlane-bench"  # on the private tmpfs
BPFFS = "/sys/fs/bpf/podlane-bench"


def run(*command, text=None):
    """Runs a command; a failure is a RuntimeError with what it said."""
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {(done.stderr + done.stdout).strip()}")
    return done.stdout


def enter_private_namespaces():
    """Starts this program again in mount and network namespaces of its own, with a private /run, bpffs and state directory.

    Nothing has to be cleaned up: named namespaces, leases and pinned objects go when the last process is gone,
    also after Ctrl-C or SIGKILL.
    """
    if os.environ.get(INSIDE) != "yes":
        if os.geteuid() != 0:
            sys.exit("tests/bench/run: network namespaces need root; use sudo")
        os.environ[INSIDE] = "yes"
        command = ["unshare", "--mount", "--net", "--propagation", "private", sys.executable]
        os.execvp(command[0], command + sys.argv)
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    run("mount", "-t", "bpf", "bpf", "/sys/fs/bpf")
    os.makedirs("/var/lib/podlane", exist_ok=True)
    run("mount", "-t", "tmpfs", "-o", "mode=0700", "tmpfs", "/var/lib/podlane")
    os.makedirs("/run/netns")
    os.makedirs(WORK)


def add_netns(name):
    """A namespace with its loopback up, as a runtime hands it to the plugins."""
    run("ip", "netns", "add", name)
    run("ip", "-n", name, "link", "set", "lo", "up")
    return name


def delete_netns(*names):
    for name in names:
        run("ip", "netns", "delete", name)


def link(netns, ifname="eth0"):
    return json.loads(run("ip", "-json", "-n", netns, "link", "show", ifname))[0]


def connect_directly(first, second, subnets, ifname="eth0", wire=None):
    """A bare veth between two namespaces: no node in between. Returns the addresses of both by family.

    If a namespace is given as the wire, each is connected to that: to its interfaces "near" and "far".
    """
    if wire is None:
        run("ip", "link", "add", ifname, "netns", first, "type", "veth", "peer", "name", ifname, "netns", second)
    for netns, end in ((first, "near"), (second, "far")) if wire else ():
        run("ip", "link", "add", ifname, "netns", netns, "type", "veth", "peer", "name", end, "netns", wire)
        run("ip", "-n", wire, "link", "set", end, "up")
    addresses = []
    for host, netns in ((2, first), (3, second)):
        own = {family: subnet.split("/")[0] + str(host) for family, subnet in subnets.items()}
        for family, address in own.items():
            length = subnets[family].split("/")[1]
            extra = ["nodad"] if family == 6 else []
            run("ip", "-n", netns, "address", "add", f"{address}/{length}", "dev", ifname, *extra)
        run("ip", "-n", netns, "link", "set", ifname, "up")
        addresses.append(own)
    return addresses


def busy_share(seconds):
    """What share of the CPU time of the next `seconds` is in use."""

    def ticks():
        with open("/proc/stat") as stat:
            numbers = [int(word) for word in stat.readline().split()[1:9]]
        return sum(numbers), numbers[3] + numbers[4] + numbers[7]  # idle, iowait, steal

    all_before, idle_before = ticks()
    time.sleep(seconds)
    all_after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / max(all_after - all_before, 1)


def wait_until_quiet(at_most):
    """Returns when others use hardly any CPU, or after so many seconds."""
    end = time.monotonic() + at_most
    while time.monotonic() < end and busy_share(0.2) > 0.1:
        pass
