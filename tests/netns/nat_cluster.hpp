// SPDX-License-Identifier: MIT
// What NAT tests across nodes share: a cluster, its services and clients, for one way of writing rules and one family.
#pragma once

#include "tests/harness/cluster.hpp"
#include "tests/harness/test.hpp"
#include "tests/netns/conntrack.hpp"
#include "tests/netns/kube_proxy.hpp"

namespace podlane::test {

inline constexpr std::uint16_t kPort = 80;
inline constexpr std::uint16_t kBackendPort = 8080;
inline constexpr std::uint16_t kNodePort = 30080;
inline constexpr std::array kTransports = {Transport::tcp, Transport::udp};

struct NatCase {
    std::string fast_path;
    std::string rules;
    bool ipv4 = true;
    std::string attach{}; // empty: as Podlane chooses
};
inline std::string text_of(const NatCase &of) {
    return of.fast_path + (of.attach.empty() ? "" : "_" + of.attach) + "_" + of.rules + (of.ipv4 ? "_v4" : "_v6");
}
inline void PrintTo(const NatCase &of, std::ostream *out) { *out << text_of(of); }

inline std::vector<NatCase> nat_cases(const std::vector<std::string> &rules) {
    std::vector<NatCase> all;
    for (const std::string fast_path : {"on", "local", "off"})
        for (const std::string &written : rules)
            for (const bool ipv4 : {true, false})
                all.push_back({fast_path, written, ipv4});
    return all;
}
inline std::string nat_case_name(const testing::TestParamInfo<NatCase> &info) { return text_of(info.param); }

inline std::set<std::string> callers(const EchoServer &server) {
    std::set<std::string> all;
    for (const ip_addr &caller : server.callers())
        all.insert(to_string(caller));
    return all;
}

class Nat : public testing::TestWithParam<NatCase> {
  protected:
    void SetUp() override { cluster_.route_by_hosts(); }

    [[nodiscard]] bool ipv4() const { return GetParam().ipv4; }
    [[nodiscard]] bool on() const { return GetParam().fast_path == "on"; }
    [[nodiscard]] std::string iptables() const { return ipv4() ? "iptables" : "ip6tables"; }
    [[nodiscard]] ip_addr addr(const Pod &pod) const { return pod.addr(ipv4()); }
    [[nodiscard]] std::string text(const Pod &pod) const { return to_string(addr(pod)); }
    [[nodiscard]] ip_addr node_addr(int node) const { return ip(Cluster::node_addr(node, ipv4())); }
    [[nodiscard]] std::string all_pods() const { return ipv4() ? Cluster::kPods4 : Cluster::kPods6; }
    [[nodiscard]] Json keys(Json more = Json::object()) const {
        more["fastPath"] = GetParam().fast_path;
        if (!GetParam().attach.empty())
            more["attach"] = GetParam().attach;
        return more;
    }
    Pod add_pod(int node, const Json &more = Json::object()) { return cluster_.add_pod(node, keys(more)); }
    void rule(int node, const std::string &words) const { cluster_.node(node).run(iptables() + " -w " + words); }
    // On node 1, for what its pods send: `match` and `verdict` in the words of iptables, or of nftables.
    struct SourceRule {
        std::string match, verdict;
    };
    void translate_pods_of_node1(const SourceRule &of_iptables, const SourceRule &of_nftables) const {
        const std::string pods = Cluster::pods(1, ipv4()), family = ipv4() ? "ip" : "ip6";
        if (GetParam().rules == "iptables")
            rule(1, "-t nat -A POSTROUTING -s " + pods + " " + of_iptables.match + " -j " + of_iptables.verdict);
        if (GetParam().rules == "nftables")
            cluster_.node(1).run(
                "nft -f -", "table " + family + " out { chain out { type nat hook postrouting priority 100; " + family +
                                " saddr " + pods + " " + of_nftables.match + " " + of_nftables.verdict + "; }\n}\n");
    }

    // On every node, in place of the service before; one backend, as kube-proxy writes it.
    KubeService serve(const Pod &backend, std::uint16_t backend_port = kBackendPort) {
        return serve(addr(backend), backend_port);
    }
    KubeService serve(const ip_addr &backend, std::uint16_t backend_port = kBackendPort) {
        const KubeService service{"a", ip(ipv4() ? "198.19.0.1" : "2001:db8:5e::1"), kPort, {backend}, backend_port};
        for (int node = 1; node <= Cluster::kNodes; ++node)
            write(node, service);
        return service;
    }
    void open_node_port(int node, KubeService service, bool local) const {
        service.node_port = kNodePort;
        service.local = local;
        write(node, service);
    }
    void write(int node, const KubeService &service) const {
        const KubeProxy proxy({service}, all_pods());
        const std::string table = ipv4() ? "table ip kube-proxy\n" : "table ip6 kube-proxy\n";
        if (GetParam().rules == "iptables")
            cluster_.node(node).run(iptables() + "-restore -w", proxy.iptables());
        else
            cluster_.node(node).run("nft -f -", table + "delete " + table + proxy.nftables());
        forget_former_backends(node, service);
    }
    // As kube-proxy does: a port that is used again would go on to the backend of before.
    void forget_former_backends(int node, const KubeService &service) const {
        const net::Namespace &ns = cluster_.node(node).ns();
        for (const Tracked &one : tracked(ns)) {
            const bool asks = one.destination.port == service.node_port || one.destination.addr == service.cluster_ip;
            if (one.transport == Transport::udp && asks && one.reply_source.addr != service.endpoints.front())
                (void)delete_tracked(ns, one); // it may have expired
        }
    }
    // Many connections and datagrams, each answered.
    void expect_service(const net::Namespace &from, const Endpoint &target) const {
        for (const Transport transport : kTransports)
            for (int i = 0; i < 5; ++i)
                EXPECT_EQ(ask(from, transport, target), 0) << to_string(transport) << " " << i;
    }

    Cluster cluster_;
};

} // namespace podlane::test
