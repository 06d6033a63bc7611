// SPDX-License-Identifier: MIT
// A node's services as kube-proxy writes them, for iptables and for nftables: one ClusterIP, one backend.
#pragma once

#include "maps/ip.hpp"

#include <cstdint>
#include <string>

namespace podlane::test {

struct Service {
    ip_addr cluster_ip{};
    std::uint16_t port = 80;
    ip_addr backend{};
    std::uint16_t backend_port = 8080;
    std::string pods; // the cluster's pod range, as a prefix
};

// Input of iptables-restore or ip6tables-restore; chains and their order are kube-proxy's.
inline std::string iptables_rules(const Service &service) {
    const bool v4 = is_ipv4(service.cluster_ip);
    const std::string bits = v4 ? "/32" : "/128";
    const std::string vip = to_string(service.cluster_ip) + bits;
    const std::string backend = to_string(service.backend);
    const std::string target = (v4 ? backend : "[" + backend + "]") + ":" + std::to_string(service.backend_port);
    std::string rules = "*filter\n"
                        ":KUBE-FORWARD - [0:0]\n"
                        "-A FORWARD -j KUBE-FORWARD\n"
                        "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"
                        "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n"
                        "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
                        "COMMIT\n"
                        "*nat\n"
                        ":KUBE-SERVICES - [0:0]\n"
                        ":KUBE-POSTROUTING - [0:0]\n"
                        ":KUBE-MARK-MASQ - [0:0]\n"
                        "-A PREROUTING -j KUBE-SERVICES\n"
                        "-A OUTPUT -j KUBE-SERVICES\n"
                        "-A POSTROUTING -j KUBE-POSTROUTING\n"
                        "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n"
                        "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n"
                        "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n"
                        "-A KUBE-POSTROUTING -j MASQUERADE --random-fully\n";
    for (const std::string protocol : {"tcp", "udp"}) {
        const std::string svc = "KUBE-SVC-" + protocol;
        const std::string sep = "KUBE-SEP-" + protocol;
        const std::string match = "-d " + vip + " -p " + protocol + " --dport " + std::to_string(service.port);
        rules += ":" + svc + " - [0:0]\n:" + sep + " - [0:0]\n";
        rules += "-A KUBE-SERVICES " + match + " -j " + svc + "\n";
        rules += "-A " + svc + " ! -s " + service.pods + " " + match + " -j KUBE-MARK-MASQ\n";
        rules += "-A " + svc + " -j " + sep + "\n";
        rules += "-A " + sep + " -s " + backend + bits + " -j KUBE-MARK-MASQ\n";
        rules += "-A " + sep + " -p " + protocol + " -j DNAT --to-destination " + target + "\n";
    }
    return rules + "COMMIT\n";
}

// Input of nft -f.
inline std::string nftables_rules(const Service &service) {
    const std::string ip = is_ipv4(service.cluster_ip) ? "ip" : "ip6";
    const std::string backend = to_string(service.backend);
    const std::string target =
        (ip == "ip" ? backend : "[" + backend + "]") + ":" + std::to_string(service.backend_port);
    std::string rules = "table " + ip +
                        " kube-proxy {\n"
                        " chain mark-for-masquerade { meta mark set meta mark or 0x4000; }\n"
                        " chain endpoint {\n"
                        "  " +
                        ip + " saddr " + backend +
                        " jump mark-for-masquerade\n"
                        "  meta l4proto { tcp, udp } dnat to " +
                        target +
                        "\n"
                        " }\n"
                        " chain service {\n"
                        "  " +
                        ip + " saddr != " + service.pods +
                        " jump mark-for-masquerade\n"
                        "  goto endpoint\n"
                        " }\n"
                        " chain services {\n"
                        "  " +
                        ip + " daddr . meta l4proto . th dport vmap {";
    for (const std::string protocol : {"tcp", "udp"})
        rules += " " + to_string(service.cluster_ip) + " . " + protocol + " . " + std::to_string(service.port) +
                 " : goto service,";
    rules.back() = ' ';
    return rules + "}\n"
                   " }\n"
                   " chain nat-prerouting { type nat hook prerouting priority -100; jump services; }\n"
                   " chain nat-output { type nat hook output priority -100; jump services; }\n"
                   " chain nat-postrouting { type nat hook postrouting priority 100;\n"
                   "  mark and 0x4000 == 0 return\n"
                   "  meta mark set mark xor 0x4000\n"
                   "  masquerade fully-random\n"
                   " }\n"
                   " chain filter-forward { type filter hook forward priority -110; ct state invalid drop; }\n"
                   "}\n";
}

} // namespace podlane::test
