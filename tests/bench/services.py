# SPDX-License-Identifier: MIT
"""The iptables rules kube-proxy writes for many services, loaded into a node's namespace."""

import node

NAT_START = """*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
"""

FILTER = """*filter
:KUBE-FORWARD - [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible" -j KUBE-EXTERNAL-SERVICES
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m comment --comment "kubernetes forwarding" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
"""

FAMILIES = {
    4: {"load": "iptables-restore", "length": 32, "service": "198.19.{}.{}", "pod": "203.0.113.{}", "to": "{}:8080",
        "pods": "203.0.113.0/24"},
    6: {"load": "ip6tables-restore", "length": 128, "service": "2001:db8:ffff::{:x}:{:x}", "pod": "2001:db8:fffe::{:x}",
        "to": "[{}]:8080", "pods": "2001:db8:fffe::/64"},
}


def rules(family, count):
    """The text for iptables-restore: `count` services of one port and one endpoint each."""
    words = FAMILIES[family]
    chains, lines = [], []
    for i in range(count):
        service = f"{words['service'].format(i // 250, i % 250 + 1)}/{words['length']}"
        pod = words["pod"].format(i % 250 + 1)
        svc, sep, name = f"KUBE-SVC-{i:016d}", f"KUBE-SEP-{i:016d}", f"bench/service-{i}:http"
        chains += [f":{svc} - [0:0]", f":{sep} - [0:0]"]
        lines += [
            f'-A KUBE-SERVICES -d {service} -p tcp -m comment --comment "{name} cluster IP" -m tcp --dport 80 -j {svc}',
            f'-A {svc} ! -s {words["pods"]} -d {service} -p tcp -m comment --comment "{name} cluster IP"'
            " -m tcp --dport 80 -j KUBE-MARK-MASQ",
            f'-A {svc} -m comment --comment "{name}" -j {sep}',
            f'-A {sep} -s {pod}/{words["length"]} -m comment --comment "{name}" -j KUBE-MARK-MASQ',
            f'-A {sep} -p tcp -m comment --comment "{name}" -m tcp -j DNAT --to-destination {words["to"].format(pod)}',
        ]
    lines.append("-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")
    return "\n".join([NAT_START.rstrip(), *chains, *lines, "COMMIT"]) + "\n" + FILTER


def load(netns, count, families):
    for family in families:
        node.run("nsenter", f"--net=/run/netns/{netns}", FAMILIES[family]["load"], text=rules(family, count))
