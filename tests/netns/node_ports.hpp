// SPDX-License-Identifier: MIT
// Node ports as kube-proxy writes them, on top of the rules of services.hpp for the same service.
#pragma once

#include "tests/netns/services.hpp"

namespace podlane::test {

struct NodePort {
    std::uint16_t port = 30080;
    bool local = false; // externalTrafficPolicy: the backend is on this node, and sees who called
};

// Input of iptables-restore --noflush or ip6tables-restore --noflush.
inline std::string iptables_rules(const Service &service, const NodePort &node_port) {
    std::string rules = "*nat\n"
                        ":KUBE-NODEPORTS - [0:0]\n"
                        "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";
    for (const std::string protocol : {"tcp", "udp"}) {
        const std::string ext = "KUBE-EXT-" + protocol;
        const std::string svc = "KUBE-SVC-" + protocol;
        rules += ":" + ext + " - [0:0]\n";
        rules +=
            "-A KUBE-NODEPORTS -p " + protocol + " --dport " + std::to_string(node_port.port) + " -j " + ext + "\n";
        if (!node_port.local) {
            rules += "-A " + ext + " -j KUBE-MARK-MASQ\n-A " + ext + " -j " + svc + "\n";
            continue;
        }
        rules += "-A " + ext + " -s " + service.pods + " -j " + svc + "\n";
        rules += "-A " + ext + " -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ\n";
        rules += "-A " + ext + " -m addrtype --src-type LOCAL -j " + svc + "\n";
        rules += "-A " + ext + " -j KUBE-SEP-" + protocol + "\n";
    }
    return rules + "COMMIT\n";
}

// Input of nft -f.
inline std::string nftables_rules(const Service &service, const NodePort &node_port) {
    const std::string ip = is_ipv4(service.cluster_ip) ? "ip" : "ip6";
    const std::string port = std::to_string(node_port.port);
    std::string external;
    if (node_port.local)
        external = "  " + ip + " saddr " + service.pods +
                   " goto service\n"
                   "  fib saddr type local jump mark-for-masquerade\n"
                   "  fib saddr type local goto service\n"
                   "  goto endpoint\n";
    else
        external = "  jump mark-for-masquerade\n"
                   "  goto service\n";
    return "table " + ip +
           " kube-proxy {\n"
           " chain external {\n" +
           external +
           " }\n"
           " chain services {\n"
           "  fib daddr type local meta l4proto . th dport vmap { tcp . " +
           port + " : goto external, udp . " + port +
           " : goto external }\n"
           " }\n"
           "}\n";
}

} // namespace podlane::test
