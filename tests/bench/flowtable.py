#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""What an nft flowtable carries without a look at the host's rules, and what it does to a flow that something changes meanwhile.

A node with two pods and a host outside, joined by veths, beside nothing but a flowtable. A flow counts as carried if
its packets no longer meet a counter in the FORWARD chain. Where the kernel has no flowtables (modules are loaded on
demand), run it under one that does: tests/kernels/kernel-run --kernel 6.12 -- tests/bench/flowtable.py
"""
import contextlib
import ctypes
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time

NODE, CLIENT, SERVER, OUTSIDE = "ft-node", "ft-client", "ft-server", "ft-outside"
PORT, CLUSTER_IP, CLUSTER_IP6 = 8080, "198.18.255.1", "2001:db8:5e::1"
ADDRESS = {CLIENT: "192.0.2.10", SERVER: "192.0.2.20", OUTSIDE: "203.0.113.9"}
ADDRESS6 = {CLIENT: "2001:db8::10", SERVER: "2001:db8::20", OUTSIDE: "2001:db8:9::9"}
LINK = {CLIENT: "client0", SERVER: "server0", OUTSIDE: "outside0"}
ROUNDS = 40
LIBC = ctypes.CDLL(None, use_errno=True)

RULES = f"""
flush ruleset
table inet peer {{
    flowtable fast {{ hook ingress priority filter; devices = {{ client0, server0, outside0 }}; }}
    chain services {{
        type nat hook prerouting priority dstnat;
        ip daddr {CLUSTER_IP} meta l4proto {{ tcp, udp }} dnat ip to {ADDRESS[SERVER]}
        ip6 daddr {CLUSTER_IP6} meta l4proto {{ tcp, udp }} dnat ip6 to {ADDRESS6[SERVER]}
    }}
    chain leaving {{ type nat hook postrouting priority srcnat; oifname outside0 masquerade; }}
    chain forward {{
        type filter hook forward priority filter;
        FLOW
        counter
    }}
    chain late {{ type filter hook forward priority filter + 10; }}
}}
"""


def run(words, check=True, **keys):
    return subprocess.run(words, check=check, capture_output=True, text=True, **keys)


def on_node(*words, check=True):
    return run(["ip", "netns", "exec", NODE, *words], check=check)


def connect(name):
    run(["ip", "netns", "add", name])
    run(["ip", "link", "add", LINK[name], "netns", NODE, "type", "veth", "peer", "name", "eth0", "netns", name])
    on_node("ip", "link", "set", LINK[name], "up")
    for family, own, bits, gateway in ((4, ADDRESS[name], 32, "169.254.1.1/32"), (6, ADDRESS6[name], 128, "fe80::1/64")):
        via = gateway.split("/")[0]
        on_node("ip", "addr", "add", gateway, "dev", LINK[name], *(["nodad"] if family == 6 else []))
        on_node("ip", f"-{family}", "route", "add", own, "dev", LINK[name])
        inside = ["ip", "-n", name, f"-{family}"]
        run([*inside, "addr", "add", f"{own}/{bits}", "dev", "eth0", *(["nodad"] if family == 6 else [])])
        run(["ip", "-n", name, "link", "set", "eth0", "up"])
        run([*inside, "route", "add", "default", "via", via, "dev", "eth0", "onlink"])


@contextlib.contextmanager
def lab():
    names = (CLIENT, SERVER, OUTSIDE)
    for name in (NODE, *names):
        run(["ip", "netns", "del", name], check=False)
    try:
        run(["ip", "netns", "add", NODE])
        for key in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.proxy_arp"):
            on_node("sysctl", "-qw", f"{key}=1")
        for name in names:
            connect(name)
        yield
    finally:
        for name in (NODE, *names):
            run(["ip", "netns", "del", name], check=False)


def socket_in(name, family, kind, protocol=0):
    """A socket belongs to the namespace of the thread that creates it."""
    made = []

    def make():
        with open(f"/run/netns/{name}") as namespace:
            LIBC.setns(namespace.fileno(), 0)
        try:
            made.append(socket.socket(family, kind, protocol))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    made[0].settimeout(3)
    return made[0]


def echo(name, family, kind, protocol=0):
    server = socket_in(name, family, kind, protocol)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("", PORT))
    server.settimeout(None)

    def stream():
        with contextlib.suppress(OSError):
            one, _ = server.accept()
            while data := one.recv(4096):
                one.sendall(data)

    def datagrams():
        with contextlib.suppress(OSError):
            while True:
                data, peer = server.recvfrom(4096)
                server.sendto(data, peer)

    if kind == socket.SOCK_STREAM:
        server.listen()
    threading.Thread(target=stream if kind == socket.SOCK_STREAM else datagrams, daemon=True).start()
    return server


def met_rules():
    """Packets that the last rule of FORWARD has counted."""
    return int(re.findall(r"counter packets (\d+)", on_node("nft", "list", "chain", "inet", "peer", "forward").stdout)[-1])


class Flow:
    def __init__(self, server, destination, family=socket.AF_INET, kind=socket.SOCK_STREAM, protocol=0, rule="tcp, udp"):
        rules = RULES.replace("FLOW", f"meta l4proto {{ {rule} }} ct state established flow add @fast")
        run(["ip", "netns", "exec", NODE, "nft", "-f", "-"], input=rules)
        forget_connections()
        self.server = echo(server, family, kind, protocol)
        self.client = socket_in(CLIENT, family, kind, protocol)
        self.client.connect((destination, PORT))
        for _ in range(4):
            self.ask()

    def ask(self):
        """Whether an echo came back."""
        try:
            self.client.send(b"x" * 100)
            return len(self.client.recv(4096)) > 0
        except OSError:
            return False

    def answered(self, rounds=ROUNDS):
        return sum(self.ask() for _ in range(rounds))

    def is_carried(self):
        before = met_rules()
        return self.answered() == ROUNDS and met_rules() - before < ROUNDS // 2

    def close(self):
        self.client.close()
        self.server.close()


def forget_connections():
    """Deletes all entries of conntrack, as `conntrack -F` does."""
    netlink = socket_in(NODE, socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER
    kind, flags = 1 << 8 | 2, 5  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE; NLM_F_REQUEST, NLM_F_ACK
    netlink.send(struct.pack("=IHHIIBBH", 20, kind, flags, 1, 0, 0, 0, 0))
    netlink.recv(4096)
    netlink.close()


def remove_rules():
    on_node("nft", "flush", "chain", "inet", "peer", "services")


def remove_service():
    remove_rules()
    forget_connections()


def carried(*flow, **keys):
    one = Flow(*flow, **keys)
    try:
        return "carried" if one.is_carried() else "not carried"
    finally:
        one.close()


def what_it_carries():
    tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM
    yield "TCP, pod to pod, IPv4", lambda: carried(SERVER, ADDRESS[SERVER])
    yield "TCP, pod to pod, IPv6", lambda: carried(SERVER, ADDRESS6[SERVER], socket.AF_INET6)
    yield "TCP through a ClusterIP, IPv4", lambda: carried(SERVER, CLUSTER_IP)
    yield "TCP through a ClusterIP, IPv6", lambda: carried(SERVER, CLUSTER_IP6, socket.AF_INET6)
    yield "TCP to the outside, masqueraded", lambda: carried(OUTSIDE, ADDRESS[OUTSIDE])
    yield "UDP, pod to pod", lambda: carried(SERVER, ADDRESS[SERVER], kind=udp)
    yield "UDP through a ClusterIP", lambda: carried(SERVER, CLUSTER_IP, kind=udp)
    yield "SCTP, pod to pod", lambda: carried(SERVER, ADDRESS[SERVER], kind=tcp, protocol=132, rule="tcp, udp, sctp")


def after(change, *, undo=lambda: None, kind=socket.SOCK_STREAM):
    """A carried flow through a ClusterIP, before and after a change."""

    def measure():
        flow = Flow(SERVER, CLUSTER_IP, kind=kind)
        try:
            if not flow.is_carried():
                return "not carried before either"
            change()
            time.sleep(1.5)
            before = met_rules()
            answers = flow.answered(8)
            met = met_rules() - before
            if not answers:
                return "nothing passes"
            return f"{answers} of 8 answered, {'still carried' if met < 4 else 'by the rules'}"
        finally:
            undo()
            flow.close()

    return measure


def limited():
    """Packets to the server while its host-side veth has a TBF: its qdisc counts them, or not."""
    flow = Flow(SERVER, CLUSTER_IP)
    try:
        on_node("tc", "qdisc", "add", "dev", "server0", "root", "tbf", "rate", "1gbit", "burst", "1mb", "latency", "50ms")
        is_carried = flow.is_carried()
        sent = int(re.search(r"Sent \d+ bytes (\d+) pkt", on_node("tc", "-s", "qdisc", "show", "dev", "server0").stdout)[1])
        return f"{'carried' if is_carried else 'not carried'}, the qdisc saw {sent} packets"
    finally:
        on_node("tc", "qdisc", "del", "dev", "server0", "root", check=False)
        flow.close()


def what_changes_do():
    drop = ("nft", "add", "rule", "inet", "peer", "late", "drop")
    block = ("ip", "xfrm", "policy", "setdefault", "fwd", "block")
    accept = ("ip", "xfrm", "policy", "setdefault", "fwd", "accept")
    yield "a rule that drops everything is added to FORWARD", after(lambda: on_node(*drop))
    yield "the rules that did the translation are deleted", after(remove_rules)
    yield "they and the entries of conntrack are deleted, TCP", after(remove_service)
    yield "they and the entries of conntrack are deleted, UDP", after(remove_service, kind=socket.SOCK_DGRAM)
    yield "IPsec becomes required (xfrm policy setdefault)", after(lambda: on_node(*block), undo=lambda: on_node(*accept))
    yield "the server's route is withdrawn", after(
        lambda: on_node("ip", "route", "replace", "unreachable", ADDRESS[SERVER]),
        undo=lambda: on_node("ip", "route", "replace", ADDRESS[SERVER], "dev", "server0"))
    yield "a qdisc on the server's host-side veth", limited


def main():
    if os.geteuid() != 0:
        sys.exit("flowtable.py: run it as root")
    print(f"kernel {os.uname().release}")
    with lab():
        for kind, rows in (("carries", what_it_carries()), ("then", what_changes_do())):
            for name, measure in rows:
                try:
                    result = measure()
                except (OSError, subprocess.CalledProcessError) as error:
                    result = f"cannot be tried: {error} {getattr(error, 'stderr', '') or ''}".strip()
                print(f"| {name} | {result} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
