// SPDX-License-Identifier: MIT
// Services and node ports with any number of endpoints, in the chains that kube-proxy writes for iptables and for
// nftables. The endpoint is the next one in turn, rather than random, so that two runs can be compared.
#pragma once

#include "maps/ip.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace podlane::test {

struct KubeService {
    std::string name;
    ip_addr cluster_ip{};
    std::uint16_t port = 80;
    std::vector<ip_addr> endpoints{}; // none: refused
    std::uint16_t backend_port = 8080;
    bool affinity = false;
    std::uint16_t node_port = 0; // 0: none
    bool local = false;          // externalTrafficPolicy: the first endpoint is on this node, and sees who called
};

class KubeProxy {
  public:
    // Strict: connections that are picked up in the middle are dropped.
    KubeProxy(std::vector<KubeService> services, std::string pods, bool strict = false)
        : services_(std::move(services)), pods_(std::move(pods)), v4_(is_ipv4(services_.front().cluster_ip)),
          strict_(strict) {}

    // Input of iptables-restore or ip6tables-restore.
    [[nodiscard]] std::string iptables() const {
        std::string filter = "*filter\n:KUBE-FORWARD - [0:0]\n:KUBE-SERVICES - [0:0]\n"
                             "-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES\n"
                             "-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES\n"
                             "-A FORWARD -j KUBE-FORWARD\n"
                             "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n"
                             "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n"
                             "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n";
        if (strict_)
            filter += "-A FORWARD -p tcp ! --syn -m conntrack --ctstate NEW -j DROP\n";
        std::string nat = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-POSTROUTING - [0:0]\n"
                          ":KUBE-MARK-MASQ - [0:0]\n"
                          "-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n"
                          "-A POSTROUTING -j KUBE-POSTROUTING\n"
                          "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n"
                          "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n"
                          "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n"
                          "-A KUBE-POSTROUTING -j MASQUERADE --random-fully\n";
        for (const KubeService &one : services_)
            for (const std::string protocol : {"tcp", "udp"}) {
                if (one.endpoints.empty())
                    filter += "-A KUBE-SERVICES " + match(one, protocol) + " -j REJECT\n";
                else
                    nat += iptables(one, protocol);
            }
        nat += "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";
        return filter + "COMMIT\n" + nat + "COMMIT\n";
    }

    // Input of nft -f.
    [[nodiscard]] std::string nftables() const {
        std::string chains;
        std::string services;
        std::string node_ports;
        std::string refused;
        for (const KubeService &one : services_)
            for (const std::string protocol : {"tcp", "udp"}) {
                const std::string key = to_string(one.cluster_ip) + " . " + protocol + " . " + std::to_string(one.port);
                if (one.endpoints.empty()) {
                    refused += " " + key + " : goto reject-chain,";
                    continue;
                }
                chains += nftables(one, protocol);
                services += " " + key + " : goto service-" + one.name + "-" + protocol + ",";
                if (one.node_port != 0)
                    node_ports += " " + protocol + " . " + std::to_string(one.node_port) + " : goto external-" +
                                  one.name + "-" + protocol + ",";
            }
        const auto vmap = [](const std::string &match, const std::string &entries) {
            return entries.empty() ? "" : "  " + match + " vmap {" + cut(entries) + "}\n";
        };
        const std::string address = family() + " daddr . meta l4proto . th dport";
        return "table " + family() +
               " kube-proxy {\n chain mark-for-masquerade { meta mark set meta mark or 0x4000; }\n" +
               " chain reject-chain { reject; }\n" + chains + " chain services {\n" + vmap(address, services) +
               vmap("fib daddr type local meta l4proto . th dport", node_ports) + " }\n chain refused {\n" +
               vmap(address, refused) + " }\n" +
               " chain nat-prerouting { type nat hook prerouting priority -100; jump services; }\n"
               " chain nat-output { type nat hook output priority -100; jump services; }\n"
               " chain nat-postrouting { type nat hook postrouting priority 100;\n"
               "  mark and 0x4000 == 0 return\n  meta mark set mark xor 0x4000\n  masquerade fully-random\n }\n"
               " chain filter-output { type filter hook output priority -110; ct state new jump refused; }\n"
               " chain filter-forward { type filter hook forward priority -110;\n"
               "  ct state invalid drop\n  ct state new jump refused\n" +
               (strict_ ? "  ct state new tcp flags & (fin|syn|rst|ack) != syn drop\n" : "") + " }\n}\n";
    }

  private:
    [[nodiscard]] std::string family() const { return v4_ ? "ip" : "ip6"; }
    static std::string cut(std::string list) { return list.substr(0, list.size() - 1) + " "; }
    [[nodiscard]] std::string bits() const { return v4_ ? "/32" : "/128"; }
    [[nodiscard]] std::string match(const KubeService &one, const std::string &protocol) const {
        return "-d " + to_string(one.cluster_ip) + bits() + " -p " + protocol + " --dport " + std::to_string(one.port);
    }
    [[nodiscard]] std::string target(const KubeService &one, const ip_addr &endpoint) const {
        const std::string text = to_string(endpoint);
        return (v4_ ? text : "[" + text + "]") + ":" + std::to_string(one.backend_port);
    }

    [[nodiscard]] std::string iptables(const KubeService &one, const std::string &protocol) const {
        const std::string svc = "KUBE-SVC-" + one.name + "-" + protocol;
        const std::string ext = "KUBE-EXT-" + one.name + "-" + protocol;
        std::string rules = ":" + svc + " - [0:0]\n-A KUBE-SERVICES " + match(one, protocol) + " -j " + svc + "\n-A " +
                            svc + " ! -s " + pods_ + " " + match(one, protocol) + " -j KUBE-MARK-MASQ\n";
        std::string sticky;
        std::string turns;
        std::string endpoints;
        for (std::size_t i = 0; i < one.endpoints.size(); ++i) {
            const std::string sep = "KUBE-SEP-" + one.name + "-" + protocol + "-" + std::to_string(i);
            const std::string seen = one.affinity ? " -m recent --name " + sep : "";
            if (one.affinity)
                sticky += "-A " + svc + seen + " --rcheck --seconds 10800 --reap -j " + sep + "\n";
            turns += "-A " + svc;
            if (i + 1 < one.endpoints.size())
                turns += " -m statistic --mode nth --every " + std::to_string(one.endpoints.size() - i) + " --packet 0";
            turns += " -j " + sep + "\n";
            endpoints += ":" + sep + " - [0:0]\n-A " + sep + " -s " + to_string(one.endpoints.at(i)) + bits() +
                         " -j KUBE-MARK-MASQ\n-A " + sep + " -p " + protocol + seen + (one.affinity ? " --set" : "") +
                         " -j DNAT --to-destination " + target(one, one.endpoints.at(i)) + "\n";
        }
        rules += endpoints + sticky + turns;
        if (one.node_port == 0)
            return rules;
        rules += ":" + ext + " - [0:0]\n-A KUBE-NODEPORTS -p " + protocol + " --dport " +
                 std::to_string(one.node_port) + " -j " + ext + "\n";
        if (one.local)
            return rules + "-A " + ext + " -s " + pods_ + " -j " + svc + "\n-A " + ext +
                   " -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ\n-A " + ext + " -m addrtype --src-type LOCAL -j " +
                   svc + "\n-A " + ext + " -j KUBE-SEP-" + one.name + "-" + protocol + "-0\n";
        return rules + "-A " + ext + " -j KUBE-MARK-MASQ\n-A " + ext + " -j " + svc + "\n";
    }

    [[nodiscard]] std::string nftables(const KubeService &one, const std::string &protocol) const {
        const std::string name = one.name + "-" + protocol;
        std::string sets;
        std::string endpoints;
        std::string sticky;
        std::string turns;
        for (std::size_t i = 0; i < one.endpoints.size(); ++i) {
            const std::string number = name + "-" + std::to_string(i);
            endpoints += " chain endpoint-" + number + " {\n  " + family() + " saddr " +
                         to_string(one.endpoints.at(i)) + " jump mark-for-masquerade\n";
            if (one.affinity) {
                sets += " set affinity-" + number + " { type " + (v4_ ? "ipv4_addr" : "ipv6_addr") +
                        "; flags dynamic,timeout; timeout 3h; }\n";
                sticky += "  " + family() + " saddr @affinity-" + number + " goto endpoint-" + number + "\n";
                endpoints += "  update @affinity-" + number + " { " + family() + " saddr }\n";
            }
            endpoints += "  meta l4proto " + protocol + " dnat to " + target(one, one.endpoints.at(i)) + "\n }\n";
            turns += " " + std::to_string(i) + " : goto endpoint-" + number + ",";
        }
        return sets + endpoints + " chain service-" + name + " {\n  " + family() + " saddr != " + pods_ +
               " jump mark-for-masquerade\n" + sticky + "  numgen inc mod " + std::to_string(one.endpoints.size()) +
               " vmap {" + cut(turns) + "}\n }\n chain external-" + name + " {\n" +
               (one.local
                    ? "  " + family() + " saddr " + pods_ + " goto service-" + name +
                          "\n  fib saddr type local jump mark-for-masquerade\n  fib saddr type local goto service-" +
                          name + "\n  goto endpoint-" + name + "-0\n }\n"
                    : "  jump mark-for-masquerade\n  goto service-" + name + "\n }\n");
    }

    std::vector<KubeService> services_;
    std::string pods_; // the cluster's pod range, as a prefix
    bool v4_;
    bool strict_;
};

} // namespace podlane::test
